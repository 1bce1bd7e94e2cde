//! The table `[history]` of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use ksmith_core::contradiction::Contradiction;
use ksmith_host::root::Root;
use ksmith_record::HistoryBounds;
use serde::Deserialize;

/// Path of the history, unless the configuration names another.
pub const DEFAULT_PATH: &str = "/var/lib/ksmith/history/history.db";

/// The table `[history]`: the recorded history and its retention.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryConfig {
    /// True if the daemon records.
    pub enabled: bool,
    /// The SQLite file.
    pub path: PathBuf,
    /// Hours for which samples are kept, at least 2.
    pub samples_hours: u32,
    /// Days for which a row for each minute is kept, with decisions and events.
    pub minutes_days: u32,
    /// Years for which a row for each hour is kept.
    pub hours_years: u32,
    /// The most that the file may use, in MiB.
    pub max_mib: u64,
    /// Time between two records of the guests, in seconds.
    pub guest_seconds: u32,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            path: PathBuf::from(DEFAULT_PATH),
            samples_hours: 24,
            minutes_days: 31,
            hours_years: 5,
            max_mib: 512,
            guest_seconds: 10,
        }
    }
}

impl HistoryConfig {
    /// Finds settings that make no sense.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let faults = [
            // The minutes of guests are made when their hour is over.
            (self.samples_hours < 2, "samples_hours", "samples are needed for 2 hours at least"),
            (self.minutes_days == 0, "minutes_days", "a row for each minute is needed for a day at least"),
            (self.hours_years == 0, "hours_years", "it must be over 0"),
            (self.max_mib < 4, "max_mib", "the file needs 4 MiB at least"),
            (self.guest_seconds == 0, "guest_seconds", "it must be over 0"),
            (!self.path.is_absolute(), "path", "name an absolute path"),
        ];
        let found = faults.into_iter().filter(|(is_wrong, ..)| *is_wrong);
        found
            .map(|(_, key, why)| Contradiction::new(&[&["history", key]], format!("[history] {key}: {why}")))
            .collect()
    }

    /// Returns the file on this host, which is below the root of a captured or a simulated tree.
    pub fn file(&self, root: &Root) -> PathBuf {
        match root.is_host() {
            true => self.path.clone(),
            false => root.path(self.path.strip_prefix("/").unwrap_or(&self.path)),
        }
    }

    pub(super) fn bounds(&self) -> HistoryBounds {
        const HOUR: u64 = 3600;
        HistoryBounds {
            samples: Duration::from_secs(u64::from(self.samples_hours) * HOUR),
            minutes: Duration::from_secs(u64::from(self.minutes_days) * 24 * HOUR),
            hours: Duration::from_secs(u64::from(self.hours_years) * 366 * 24 * HOUR),
            bytes: self.max_mib.saturating_mul(1 << 20),
            ..HistoryBounds::default()
        }
    }
}
