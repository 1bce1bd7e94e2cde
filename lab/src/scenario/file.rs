//! The text form of a scenario file, as serde reads it before its meaning is checked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ksmith_core::decide::PolicyLimits;
use ksmith_core::sim::KhugepagedPace;
use serde::Deserialize;
use toml::Spanned;

use super::size::SizeText;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioFile {
    /// Description in one sentence.
    pub(super) about: String,
    pub(super) long: LongForm,
    pub(super) short: ShortForm,
    /// Limits of every ksmith daemon in this scenario.
    #[serde(default)]
    pub(super) limits: PolicyLimits,
    /// True if guests with parts are on transparent huge pages, unless their own `huge` says otherwise.
    #[serde(default)]
    pub(super) huge: bool,
    pub(super) guests: BTreeMap<String, Spanned<GuestTable>>,
    pub(super) timeline: Vec<Spanned<TimelineTable>>,
}

/// The form that the times and sizes in the file are written for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LongForm {
    pub(super) seconds: f64,
}

/// The short form. Times are scaled so that it ends after `seconds`, sizes by the factor `memory`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShortForm {
    pub(super) seconds: f64,
    #[serde(default = "whole")]
    pub(super) memory: f64,
}

fn whole() -> f64 {
    1.0
}

/// One kind of guest: exactly one of `parts`, `qemu` and `command`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GuestTable {
    /// True if the parts are on transparent huge pages. `None`: as the scenario says.
    pub(super) huge: Option<bool>,
    pub(super) parts: Option<Vec<PartTable>>,
    pub(super) qemu: Option<QemuTable>,
    pub(super) command: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartTable {
    pub(super) kind: PartKind,
    pub(super) size: SizeText,
    pub(super) seed: Option<u64>,
    pub(super) every_ms: Option<u64>,
    pub(super) percent: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PartKind {
    Equal,
    Mixed,
    Zero,
    Unique,
    Churn,
    Work,
}

/// A QEMU guest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QemuTable {
    pub(super) kernel: Option<PathBuf>,
    pub(super) initrd: Option<PathBuf>,
    #[serde(default)]
    pub(super) append: String,
    pub(super) disk: Option<PathBuf>,
    pub(super) memory: SizeText,
    #[serde(default = "tcg")]
    pub(super) accel: String,
    /// Hint on what to install if a file is missing.
    #[serde(default)]
    pub(super) hint: String,
}

fn tcg() -> String {
    "tcg".to_owned()
}

/// The pace of khugepaged. Settings that are left out have the kernel's defaults.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KhugepagedTable {
    pub(super) pages_to_scan: u32,
    pub(super) scan_sleep_millisecs: u32,
}

impl Default for KhugepagedTable {
    fn default() -> Self {
        let KhugepagedPace { pages_to_scan, scan_sleep_millisecs } = KhugepagedPace::default();
        Self { pages_to_scan, scan_sleep_millisecs }
    }
}

/// One line of the timeline: exactly one of `start`, `stop`, `rewrite`, `refill` and `work`, each with a guest's name, and
/// `khugepaged`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimelineTable {
    pub(super) at: f64,
    pub(super) start: Option<String>,
    pub(super) stop: Option<String>,
    pub(super) rewrite: Option<String>,
    pub(super) refill: Option<String>,
    pub(super) work: Option<String>,
    pub(super) khugepaged: Option<KhugepagedTable>,
    /// Number of repetitions.
    pub(super) times: Option<u32>,
    /// Seconds between two repetitions.
    pub(super) every: Option<f64>,
    /// Seconds until the guest is stopped, for `start`.
    pub(super) lifetime: Option<f64>,
    /// Index of the part from 0, for `rewrite` and `refill`.
    pub(super) part: Option<usize>,
    /// Load in percent from 0 to 100, for `work`.
    pub(super) percent: Option<u8>,
}
