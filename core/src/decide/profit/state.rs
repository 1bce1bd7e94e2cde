//! The state of `profit`: what ksmd does for it, and since when.

use std::time::Duration;

use super::look::ScanForecast;
use super::scan_reason::ScanReason;
use crate::decide::ReasonSentences;
use crate::scan::ScanProgress;

/// The state of the policy.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum ProfitState {
    /// Nothing was scanned yet, or all was unmerged since.
    Forgotten,
    /// ksmd works on a scan.
    Scanning(RunningScan),
    /// ksmd is stopped. It costs nothing, and merged pages stay merged.
    Parked(ParkedPhase),
}

/// The parking of ksmd, and its reason.
#[derive(Debug, Clone)]
pub struct ParkedPhase {
    pub since: Duration,
    /// The time at which `next` is due.
    pub until: Duration,
    pub next: ScanReason,
    pub why: ReasonSentences,
}

/// A scan in progress and its reason.
#[derive(Debug, Clone, Copy)]
pub struct RunningScan {
    pub reason: ScanReason,
    pub scan: ScanProgress,
    /// True if old memory is skipped until ksmd reaches the new.
    pub is_new_first: bool,
    /// New memory that it is for, in bytes.
    pub new_bytes: u64,
    /// The forecast on which it was begun, if there was one.
    pub foretold: Option<ScanForecast>,
}
