//! The model of `ksmith estimate`.

use std::collections::BTreeMap;

use ksmith_core::kernel::Ineligible;
use ksmith_core::sketch::{Advice, GuestOutcome, Pairs, Verdict};
use serde::Serialize;

use super::sums::GuestSums;

/// Everything that came out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `exact`, `sketch` or `sample`.
    pub mode: &'static str,
    /// The chance with which each page was read, in sample mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The figures of each guest.
    pub guests: Vec<GuestReport>,
    /// The figures of all guests together.
    pub total: GuestReport,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Time it took, pauses included.
    pub seconds: f64,
    /// CPU time it took.
    pub cpu_seconds: f64,
    /// The most memory the sketch took, in sketch mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sketch_bytes: Option<u64>,
    /// The verdict in a word.
    pub advice: Advice,
    /// CPU time of ksmd per day, once all is merged.
    pub ksmd_cpu_seconds_per_day: f64,
    /// The verdict in a sentence.
    pub verdict: String,
    /// What each two guests share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<MatrixReport>,
    /// Processes that were left out, and why.
    pub skipped: Vec<SkippedReport>,
}

/// One guest, or all.
#[derive(Debug, Clone, Serialize)]
pub struct GuestReport {
    /// The guest's name.
    pub name: String,
    /// Its process, if it is one.
    pub pid: Option<u32>,
    /// The PIDs of its processes.
    pub pids: Vec<u32>,
    /// Anonymous memory that is present and could be merged, with what changes.
    pub present_bytes: u64,
    /// Pages of zeros.
    pub zero_bytes: u64,
    /// Copies within the guest, beyond the first of each content.
    pub equal_within_bytes: u64,
    /// Contents that another guest has as well.
    pub equal_across_bytes: u64,
    /// Merged by now.
    pub merged_bytes: u64,
    /// Changed between two looks. `null` if there was only one.
    pub changing_bytes: Option<u64>,
    /// What can't be merged, by reason.
    pub ineligible: BTreeMap<&'static str, u64>,
    /// Whether it has memory that is marked mergeable.
    pub is_mergeable: bool,
    /// What merging saves in all, with what is saved by now.
    pub expected_saved_bytes: u64,
    /// The lower end of the 95 % interval.
    pub low_bytes: u64,
    /// The upper end.
    pub high_bytes: u64,
    /// KSM's own memory for it.
    pub metadata_bytes: u64,
    /// Saved less metadata.
    pub net_profit_bytes: i64,
    /// CPU time of ksmd until all is merged.
    pub ksmd_cpu_seconds: f64,
}

/// What each two guests share.
#[derive(Debug, Clone, Serialize)]
pub struct MatrixReport {
    /// The guests, in the order of the rows and columns.
    pub guests: Vec<String>,
    /// Rows of bytes. On the diagonal what a guest shares with itself.
    pub shared_bytes: Vec<Vec<u64>>,
}

/// A process that was left out.
#[derive(Debug, Clone, Serialize)]
pub struct SkippedReport {
    /// The process's PID.
    pub pid: u32,
    /// The reason, in a sentence.
    pub reason: String,
}

impl GuestReport {
    pub(super) fn new(
        name: String,
        pid: Option<u32>,
        pids: Vec<u32>,
        outcome: &GuestOutcome,
        sums: &GuestSums,
        page_size: u64,
    ) -> Self {
        let bytes = |pages: f64| (pages.max(0.0) * page_size as f64).round() as u64;
        let reason = |reason: Ineligible| (reason.key(), sums.ineligible.get(&reason).copied().unwrap_or(0));
        Self {
            name,
            pid,
            pids,
            present_bytes: (outcome.pages + sums.changing) * page_size,
            zero_bytes: bytes(outcome.zero),
            equal_within_bytes: bytes(outcome.within),
            equal_across_bytes: bytes(outcome.across),
            merged_bytes: sums.merged * page_size,
            changing_bytes: sums.looked_twice.then_some(sums.changing * page_size),
            ineligible: Ineligible::ALL.map(reason).into_iter().collect(),
            is_mergeable: sums.is_mergeable,
            expected_saved_bytes: 0,
            low_bytes: 0,
            high_bytes: 0,
            metadata_bytes: 0,
            net_profit_bytes: 0,
            ksmd_cpu_seconds: 0.0,
        }
    }

    pub(super) fn weigh(&mut self, verdict: &Verdict) {
        [self.low_bytes, self.expected_saved_bytes, self.high_bytes] = verdict.saved_bytes;
        self.metadata_bytes = verdict.metadata_bytes;
        self.net_profit_bytes = verdict.net_profit_bytes;
        self.ksmd_cpu_seconds = verdict.ksmd_cpu_seconds;
    }
}

impl MatrixReport {
    pub(super) fn new(guests: Vec<String>, pairs: &Pairs, page_size: u64) -> Self {
        let bytes = |a, b| (pairs.get(a, b) * page_size as f64).round() as u64;
        let shared_bytes = (0..guests.len()).map(|a| (0..guests.len()).map(|b| bytes(a, b)).collect()).collect();
        Self { guests, shared_bytes }
    }
}
