//! The situation: all that `profit` decides upon, derived once from a view.

use crate::account;
use crate::decide::PolicyView;
use crate::sample::{PageSamples, ProcessId, ProcessSample, Sample};
use crate::scan::KsmdState;

use super::constants::{FULL_STALL, PLENTY, SHORT, SKIP_SECONDS, SMART_PERIOD, YOUNG_PASSES};
use super::wait::WaitReason;

/// The memory of one process, and its activity so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessHolding {
    pub id: ProcessId,
    /// Resident bytes and those of pages that are merged with the zero page. Such a page leaves RSS and is back in it
    /// once it is written to, but to ksmd it is not new.
    pub bytes: u64,
    pub cpu_ticks: u64,
    pub minor_faults: u64,
    /// Pages that are merged, with the zero page or others.
    pub merged_pages: u64,
}

/// The host at one sample, as far as `profit` is concerned.
#[derive(Debug, Clone, PartialEq)]
pub struct HostSituation {
    pub ksmd: KsmdState,
    /// The processes with mergeable memory.
    pub processes: Vec<ProcessHolding>,
    /// Those whose memory is new to ksmd because it was offered again.
    pub newly_offered: Vec<ProcessId>,
    /// Bytes that these processes hold.
    pub held_bytes: u64,
    /// Growth in bytes that is worth a burst. [`super::worth::price_scans`] sets it, and the price.
    pub growth_bytes: u64,
    /// The price in bytes newly saved per CPU-second.
    pub price: f64,
    /// The memory pressure of the host, 0 (none) to 1.
    pub pressure: f64,
    /// The reason for which ksmd waits, if it does.
    pub waits: Option<WaitReason>,
    /// `None` where no pages are sampled.
    pub page_samples: Option<PageSamples>,
    /// Pages that ksmd tracks and that are not merged.
    pub unmerged_pages: u64,
    /// The merged part of the pages that do not change.
    pub merged_part: f64,
    /// Smart passes to come that still visit the old pages.
    pub young_passes: u64,
    /// True if the kernel counts pages that it merges with the zero page.
    pub counts_zero_pages: bool,
}

impl HostSituation {
    /// Derives the situation from `view`. Nothing is worth a scan until it has a price.
    pub fn from_view(view: &PolicyView<'_>) -> Self {
        let (now, ksm) = (view.now, &view.now.ksm);
        let processes = now.processes.iter().filter(|process| process.may_merge());
        let processes: Vec<_> =
            processes.map(|process| ProcessHolding::from_process(process, now.page_size)).collect();
        let held_bytes = processes.iter().fold(0, |sum: u64, holding| sum.saturating_add(holding.bytes));
        let [shared, sharing] = [&ksm.pages_shared, &ksm.pages_sharing].map(|pages| pages.get().unwrap_or(0));
        let (saved, unmerged) = (account::saved_pages(now) as f64, ksm.pages_unshared.get().unwrap_or(0) as f64);
        Self {
            ksmd: KsmdState::from_sample(now, view.history, view.limits),
            held_bytes,
            processes,
            newly_offered: now.newly_offered.clone(),
            growth_bytes: u64::MAX,
            price: f64::INFINITY,
            pressure: pressure(now),
            waits: None,
            page_samples: now.page_samples.get(),
            unmerged_pages: ksm.tracked_pages().saturating_sub(shared.saturating_add(sharing)),
            merged_part: saved / (saved + unmerged).max(1.0),
            young_passes: YOUNG_PASSES.saturating_sub(view.history.smart_passes()),
            counts_zero_pages: ksm.counts_zero_pages(),
        }
    }

    /// For tests: a host with these processes at a time. Six tenths of the pages are unmerged.
    #[cfg(test)]
    pub fn for_test(
        at: std::time::Duration,
        clean_pass_seconds: f64,
        price: f64,
        processes: Vec<ProcessHolding>,
    ) -> Self {
        let (now, history, limits) =
            (Sample { at, page_size: 4096, ..Sample::default() }, Default::default(), Default::default());
        let view = PolicyView { now: &now, history: &history, limits: &limits };
        let held_bytes: u64 = processes.iter().map(|holding| holding.bytes).sum();
        let mut situation = Self {
            held_bytes,
            growth_bytes: 4 << 20,
            price,
            unmerged_pages: held_bytes / 4096 / 10 * 6,
            processes,
            ..Self::from_view(&view)
        };
        situation.ksmd.clean_pass_seconds = clean_pass_seconds;
        situation.young_passes = 0;
        situation
    }

    /// Returns true if pages are sampled.
    pub fn has_page_samples(&self) -> bool {
        self.page_samples.is_some()
    }

    /// CPU-seconds that two clean passes cost.
    pub fn two_passes_seconds(&self) -> f64 {
        2.0 * self.ksmd.clean_pass_seconds
    }

    /// CPU-seconds that a smart pass costs once most pages are old: one in nine is visited, the others are skipped.
    pub fn smart_pass_seconds(&self) -> f64 {
        self.ksmd.clean_pass_seconds / SMART_PERIOD + self.unmerged_pages as f64 * SKIP_SECONDS
    }

    /// CPU-seconds that so many smart passes cost now: the first ones visit every page ([`YOUNG_PASSES`]).
    pub fn smart_passes_seconds(&self, passes: u64) -> f64 {
        let young = passes.min(self.young_passes) as f64;
        young * self.ksmd.clean_pass_seconds + (passes as f64 - young) * self.smart_pass_seconds()
    }

    /// The merged part of the memory of these processes, 0 to 1. KSM's own counters keep what ended ones had merged until
    /// ksmd visits it.
    pub fn held_merged_part(&self) -> f64 {
        let merged: u64 = self.processes.iter().map(|process| process.merged_pages).fold(0, u64::saturating_add);
        (merged as f64 * self.ksmd.page_size as f64 / (self.held_bytes as f64).max(1.0)).min(1.0)
    }

    /// CPU-seconds that a clean pass will cost once ksmd tracks all that the processes hold.
    pub fn pass_seconds_once_tracked(&self) -> f64 {
        let (held, tracked) = (self.held_bytes / self.ksmd.page_size.max(1), self.ksmd.tracked.max(1));
        self.ksmd.clean_pass_seconds * (held as f64 / tracked as f64).max(1.0)
    }
}

impl ProcessHolding {
    /// For tests: a process that holds so many bytes and does nothing.
    #[cfg(test)]
    pub fn for_test(bytes: u64) -> Self {
        Self { id: ProcessId { pid: 1, start_ticks: 1 }, bytes, cpu_ticks: 0, minor_faults: 0, merged_pages: 0 }
    }

    fn from_process(process: &ProcessSample, page_size: u64) -> Self {
        let zero_pages = process.zero_pages();
        Self {
            id: process.id,
            bytes: process.known_rss_bytes().saturating_add(zero_pages.saturating_mul(page_size)),
            cpu_ticks: process.cpu_ticks,
            minor_faults: process.minor_faults,
            merged_pages: process.merging_pages().saturating_add(zero_pages),
        }
    }
}

/// Returns the memory pressure of the host, 0 (none) to 1: the largest of scarcity, stalls and shortness of the pool.
///
/// `scarcity = (PLENTY - available / total) / (PLENTY - SHORT)`, within 0 and 1. What cannot be read counts as 0.
fn pressure(sample: &Sample) -> f64 {
    let available = available_part(sample);
    let scarcity = available.map(|available| ((PLENTY - available) / (PLENTY - SHORT)).clamp(0.0, 1.0));
    scarcity.unwrap_or(0.0).max(stalls(sample, available)).max(sample.pool_shortness.clamp(0.0, 1.0))
}

/// Returns the memory that can be had, as a part of all memory. `None` where the host does not say.
pub(super) fn available_part(sample: &Sample) -> Option<f64> {
    let memory = sample.host.memory.value()?;
    Some(memory.obtainable()? as f64 / memory.total.filter(|&total| total > 0)? as f64)
}

/// Returns how much tasks stall for memory, 0 to 1 at [`FULL_STALL`]. 0 while [`PLENTY`] is available: then they stall for
/// whole huge pages, or in a control group at its limit, and merging relieves neither.
pub(super) fn stalls(sample: &Sample, available: Option<f64>) -> f64 {
    let psi = sample.host.memory_pressure.value().filter(|_| available.is_none_or(|available| available < PLENTY));
    psi.and_then(|psi| psi.some.avg10).map_or(0.0, |percent| (f64::from(percent) / FULL_STALL).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kernel::{HostReadings, KsmStat, Meminfo, Psi, StallTimes};
    use crate::reading::Reading;

    fn sample(available: u64) -> Sample {
        let memory = Meminfo { total: Some(100), available: Some(available), ..Meminfo::default() };
        let host = HostReadings { memory: Reading::Value(memory), ..HostReadings::default() };
        Sample { host, ..Sample::default() }
    }

    #[test]
    fn a_page_that_merged_with_the_zero_page_is_still_held_when_it_is_written_to() {
        let held = |rss_bytes, zero_pages| {
            let ksm = KsmStat { zero_pages: Some(zero_pages), ..KsmStat::default() };
            let id = ProcessId { pid: 1, start_ticks: 1 };
            let name = "guest".into();
            ProcessHolding::from_process(
                &ProcessSample { rss_bytes: Some(rss_bytes), ksm, ..ProcessSample::new(id, name, true) },
                10,
            )
            .bytes
        };
        assert_eq!((held(100, 0), held(30, 7), held(80, 2), held(130, 2)), (100, 100, 100, 150));
    }

    #[test]
    fn what_ended_guests_have_left_merged_is_no_merged_memory_of_those_that_run() {
        let holding = |merged_pages| ProcessHolding { merged_pages, ..ProcessHolding::for_test(100 * 4096) };
        let host = |merged| HostSituation::for_test(Duration::ZERO, 1.0, 1.0, vec![holding(merged)]);
        let left = HostSituation { merged_part: 0.9, ..host(0) };
        assert_eq!((left.held_merged_part(), host(25).held_merged_part()), (0.0, 0.25));
    }

    #[test]
    fn the_pressure_rises_as_memory_runs_short() {
        assert_eq!([80, 30, 5].map(|available| pressure(&sample(available))), [0.0, 0.5, 1.0]);
        assert_eq!(pressure(&Sample::default()), 0.0);
    }

    #[test]
    fn a_short_pool_is_pressure_on_a_host_with_plenty() {
        assert_eq!(pressure(&Sample { pool_shortness: 1.0, ..sample(80) }), 1.0);
    }

    #[test]
    fn stalls_count_as_pressure_where_memory_is_not_plentiful() {
        let stalling = |mut sample: Sample, avg10| {
            let some = StallTimes { avg10: Some(avg10), ..StallTimes::default() };
            sample.host.memory_pressure = Reading::Value(Psi { some });
            pressure(&sample)
        };
        assert_eq!([80, 50].map(|available| stalling(sample(available), 5.0)), [0.0; 2]);
        assert_eq!((stalling(sample(49), 5.0), stalling(Sample::default(), 20.0)), (0.5, 1.0));
    }
}
