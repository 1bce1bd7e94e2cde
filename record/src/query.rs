//! Queries of a time range.

use crate::tier::HistoryTier;

/// A query of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportQuery {
    /// The beginning, in milliseconds since 1970.
    pub since: i64,
    /// The end, in the same unit.
    pub until: i64,
    /// The guest: its key, UUID, name or PID. `None` for the host.
    pub guest: Option<String>,
    /// The figures, by the names of their columns. Empty for the defaults of [`ReportQuery::shown`].
    pub columns: Vec<String>,
    /// Resolution of the report.
    pub resolution: ReportResolution,
}

/// The resolution of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportResolution {
    /// At most this many rows; more are aggregated.
    Rows(usize),
    /// The unchanged rows of this tier.
    Tier(HistoryTier),
}

/// Longest range that is read from samples, in milliseconds.
const FROM_SAMPLES: i64 = 2 * 3_600_000;

/// Longest range that is read from minutes, in milliseconds.
const FROM_MINUTES: i64 = 7 * 24 * 3_600_000;

impl ReportQuery {
    /// Returns the default columns.
    pub fn shown(&self) -> &'static [&'static str] {
        match self.guest {
            None => &[
                "saved_bytes",
                "profit_bytes",
                "exposure_bytes",
                "headroom_bytes",
                "ksmd_cpu_percent",
                "memory_pressure_percent",
                "daemon_cpu_seconds",
            ],
            Some(_) => &["rss_bytes", "merged_bytes", "saved_bytes", "profit_bytes"],
        }
    }

    /// Returns the tier that provides most of the rows.
    pub(crate) fn tier(&self) -> HistoryTier {
        match (self.resolution, self.until.saturating_sub(self.since)) {
            (ReportResolution::Tier(tier), _) => tier,
            (_, ..=FROM_SAMPLES) => HistoryTier::Sample,
            (_, ..=FROM_MINUTES) => HistoryTier::Minute,
            _ => HistoryTier::Hour,
        }
    }
}
