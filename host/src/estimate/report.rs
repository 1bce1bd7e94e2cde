//! The model of `ksmith estimate`.

use std::collections::BTreeMap;

use ksmith_core::kernel::IneligibleReason;
use ksmith_core::sample::MergeForecast;
use ksmith_core::sketch::{GuestOutcome, MergeAdvice, MergeVerdict, PairMatrix};
use ksmith_core::units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::sums::GuestScanSums;

/// The least foldable part of the memory for a message about folding.
pub(super) const WORTH_FOLDING: f64 = 0.05;

/// The result of an estimate.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EstimateReport {
    /// The way in which memory was read: `exact`, `sketch` or `sample`.
    pub mode: &'static str,
    /// The probability of reading a page, in sample mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub rate: Option<f64>,
    /// The figures of each guest.
    pub guests: Vec<GuestReport>,
    /// The figures of all guests together.
    pub total: GuestReport,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Duration, pauses included.
    pub seconds: f64,
    /// CPU time of the estimate.
    pub cpu_seconds: f64,
    /// Peak memory of the sketch, in sketch mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub sketch_bytes: Option<u64>,
    /// The verdict in a word.
    #[schemars(with = "String")]
    pub advice: MergeAdvice,
    /// CPU time of ksmd per day, once all is merged.
    pub ksmd_cpu_seconds_per_day: f64,
    /// The verdict in a sentence.
    pub verdict: String,
    /// The effect of merging on huge pages. `null` without huge pages, without the right to see them, and under a limit of
    /// the rate.
    pub huge_pages: Option<HugePagesReport>,
    /// The effect on processes that run all the time. `null` if fewer than two do.
    pub running: Option<RunningReport>,
    /// Expected savings if pages merged within NUMA nodes alone (`merge_across_nodes` 0). `null` on a host with one node, and
    /// in other modes than `sketch`.
    pub within_nodes_saved_bytes: Option<u64>,
    /// The sharing of each pair of guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MatrixReport")]
    pub matrix: Option<MatrixReport>,
    /// Skipped processes, with the reasons.
    pub skipped: Vec<SkippedReport>,
}

/// The effect of merging on huge pages, estimated from pages drawn at random.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct HugePagesReport {
    /// Bytes of the memory in huge pages.
    pub huge_bytes: u64,
    /// Bytes of huge pages that merging would split.
    pub split_bytes: u64,
    /// Bytes in them that it would save.
    pub saved_bytes: u64,
    /// Bytes that it would split for each byte that it saves in them. `null` if it saves none.
    pub split_for_saved: Option<f64>,
}

/// The effect of merging on processes that run all the time, such as ranks that spin while they wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct RunningReport {
    /// Their number.
    pub processes: u64,
    /// The number of CPUs that they may use.
    pub cpus: u64,
    /// The number of other CPUs, to which ksmd can be bound (`ksmd_cpus`).
    pub spare_cpus: u64,
    /// The most seconds by which merging would delay them: what ksmd takes from their CPUs. 0 if a CPU is idle.
    pub delay_seconds: f64,
    /// The advice on their memory.
    pub advice: JobAdvice,
}

/// An advice on the memory of processes that run all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobAdvice {
    /// Fold zeros, without ksmd.
    Fold,
    /// Merge equal pages.
    Merge,
    /// Fold zeros, and merge the rest.
    FoldAndMerge,
    /// Leave it alone.
    Neither,
}

/// The figures of one guest, or of all.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct GuestReport {
    /// The guest's name.
    pub name: String,
    /// Its process, if it is one.
    pub pid: Option<u32>,
    /// The PIDs of its processes.
    pub pids: Vec<u32>,
    /// Anonymous memory that is present and could be merged, changing pages included.
    pub present_bytes: u64,
    /// Pages of zeros.
    pub zero_bytes: u64,
    /// The most zero pages that folding would free, without ksmd: those that are not the kernel's zero page yet, as far
    /// as the guest's memory is in huge pages.
    pub foldable_bytes: u64,
    /// Copies within the guest, beyond the first of each content.
    pub equal_within_bytes: u64,
    /// Contents that another guest has as well.
    pub equal_across_bytes: u64,
    /// Bytes that are merged already.
    pub merged_bytes: u64,
    /// Bytes that changed between two passes; `null` after a single one.
    pub changing_bytes: Option<u64>,
    /// Memory that can't be merged, by reason.
    pub ineligible: BTreeMap<&'static str, u64>,
    /// True if some of its memory is marked mergeable.
    pub is_mergeable: bool,
    /// Expected savings in all, with those so far.
    pub expected_saved_bytes: u64,
    /// The lower end of the 95 % interval.
    pub low_bytes: u64,
    /// The upper end of the 95 % interval.
    pub high_bytes: u64,
    /// KSM's own memory for it.
    pub metadata_bytes: u64,
    /// Savings less metadata.
    pub net_profit_bytes: i64,
    /// CPU time of ksmd until all is merged.
    pub ksmd_cpu_seconds: f64,
    /// The effect of merging on its huge pages. `null` as for all guests, and if too few of its pages were drawn.
    pub huge_pages: Option<HugePagesReport>,
}

/// The sharing of each pair of guests.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct MatrixReport {
    /// The guests, in the order of the rows and columns.
    pub guests: Vec<String>,
    /// Rows of bytes. The diagonal holds each guest's sharing with itself.
    pub shared_bytes: Vec<Vec<u64>>,
}

/// A skipped process.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SkippedReport {
    /// The process's PID.
    pub pid: u32,
    /// The reason, in a sentence.
    pub reason: String,
}

impl HugePagesReport {
    pub(super) fn new(forecast: &MergeForecast) -> Self {
        let (split, saved) = (forecast.split_bytes, forecast.saved_in_huge_bytes);
        Self {
            huge_bytes: forecast.huge_bytes,
            split_bytes: split,
            saved_bytes: saved,
            split_for_saved: (saved > 0).then(|| split as f64 / saved as f64),
        }
    }
}

impl GuestReport {
    pub(super) fn new(
        name: String,
        pid: Option<u32>,
        pids: Vec<u32>,
        outcome: &GuestOutcome,
        sums: &GuestScanSums,
        page_size: u64,
    ) -> Self {
        let bytes = |pages: f64| (pages.max(0.0) * page_size as f64).round() as u64;
        let reason = |reason: IneligibleReason| (reason.key(), sums.ineligible.get(&reason).copied().unwrap_or(0));
        Self {
            name,
            pid,
            pids,
            present_bytes: (outcome.pages + sums.changing) * page_size,
            zero_bytes: bytes(outcome.zero),
            foldable_bytes: bytes(outcome.zero - sums.merged_zero as f64).min(sums.huge_bytes),
            equal_within_bytes: bytes(outcome.within),
            equal_across_bytes: bytes(outcome.across),
            merged_bytes: sums.merged * page_size,
            changing_bytes: sums.looked_twice.then_some(sums.changing * page_size),
            ineligible: IneligibleReason::ALL.map(reason).into_iter().collect(),
            is_mergeable: sums.is_mergeable,
            expected_saved_bytes: 0,
            low_bytes: 0,
            high_bytes: 0,
            metadata_bytes: 0,
            net_profit_bytes: 0,
            ksmd_cpu_seconds: 0.0,
            huge_pages: None,
        }
    }

    /// Returns a sentence on folding, if that frees enough.
    pub(super) fn advice_to_fold(&self) -> Option<String> {
        let part = self.foldable_bytes as f64 / self.present_bytes.max(1) as f64;
        let of_merging = match self.expected_saved_bytes {
            0 => String::new(),
            saved => format!(", {:.0} % of what merging saves", self.foldable_bytes as f64 * 100.0 / saved as f64),
        };
        (part >= WORTH_FOLDING).then(|| {
            format!(
                "Folding zeros of huge pages would free up to {} ({:.0} %{of_merging}) without ksmd: ksmith fold; what a \
                 virtual machine frees comes back by free page reporting.",
                Bytes::from(self.foldable_bytes),
                part * 100.0,
            )
        })
    }

    pub(super) fn weigh(&mut self, verdict: &MergeVerdict) {
        [self.low_bytes, self.expected_saved_bytes, self.high_bytes] = verdict.saved_bytes;
        self.metadata_bytes = verdict.metadata_bytes;
        self.net_profit_bytes = verdict.net_profit_bytes;
        self.ksmd_cpu_seconds = verdict.ksmd_cpu_seconds;
    }
}

impl MatrixReport {
    pub(super) fn new(guests: Vec<String>, pairs: &PairMatrix, page_size: u64) -> Self {
        let bytes = |a, b| (pairs.get(a, b) * page_size as f64).round() as u64;
        let shared_bytes = (0..guests.len()).map(|a| (0..guests.len()).map(|b| bytes(a, b)).collect()).collect();
        Self { guests, shared_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_is_named_where_zero_pages_are_a_good_part() {
        let outcome = GuestOutcome { pages: 1000, zero: 300.0, ..GuestOutcome::default() };
        let report = |merged_zero| {
            let sums = GuestScanSums { merged_zero, huge_bytes: 250 * 4096, ..GuestScanSums::default() };
            GuestReport::new("a".to_owned(), None, Vec::new(), &outcome, &sums, 4096)
        };
        let mut guest = report(100);
        assert_eq!((guest.zero_bytes, guest.foldable_bytes), (300 * 4096, 200 * 4096));
        guest.expected_saved_bytes = 400 * 4096;
        let advice = guest.advice_to_fold().unwrap();
        assert!(
            advice.contains("(20 %, 50 % of what merging saves)") && advice.contains("ksmith fold"),
            "{advice}"
        );
        assert_eq!(report(280).advice_to_fold(), None, "little is left that folding would free");
        assert_eq!(report(0).foldable_bytes, 250 * 4096, "what is not in huge pages can't be folded");
    }
}
