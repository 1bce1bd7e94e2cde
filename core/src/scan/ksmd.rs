//! The state of ksmd at one sample: where it is, how fast it works, and how much CPU it may use.

use std::time::Duration;

use crate::history::PassHistory;
use crate::kernel::RunState;
use crate::limits::PolicyLimits;
use crate::sample::{BoundaryPause, Sample};

/// The state of ksmd that a scan depends on, derived once from a sample, the history and the limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KsmdState {
    /// The time of the sample.
    pub at: Duration,
    /// The duration of taking the sample.
    pub took: Duration,
    /// Bytes of a page.
    pub page_size: u64,
    /// Bytes of a transparent huge page.
    pub huge_page_bytes: u64,
    /// True if `run` is 1.
    pub runs: bool,
    /// True if ksmd has yet to end its batch.
    pub is_in_batch: bool,
    /// True if `smart_scan` is on.
    pub is_smart: bool,
    /// The state of ksmd's rest at the end of a pass.
    pub rest: BoundaryPause,
    /// The sleep after each batch.
    pub sleep: Duration,
    /// Pages in a batch.
    pub pages_to_scan: u64,
    /// Passes that have ended since boot.
    pub full_scans: u64,
    /// Pages visited since boot. `None` before Linux 6.6.
    pub visited: Option<u64>,
    /// Pages visited or skipped since boot. `None` before Linux 6.6.
    pub passed: Option<u64>,
    /// Pages that ksmd tracks.
    pub tracked: u64,
    /// Pages of living processes that ksmd tracks. Before Linux 6.1 pages of ended processes are included until the
    /// next pass.
    pub tracked_of_living: u64,
    /// Huge pages that were split since boot, by ksmd and others.
    pub splits: u64,
    /// Pages that are merged with the kernel's zero page.
    pub zero_pages: u64,
    /// Pages that are in neither tree because they changed or are new. `None` where the kernel does not tell.
    pub in_no_tree: Option<u64>,
    /// Pages that change all the time, by the page samples: no pass puts them into a tree. 0 where no pages are
    /// sampled.
    pub changing: u64,
    /// Bytes that merging saves by KSM's counters, zero pages included.
    pub saved_bytes: u64,
    /// Bytes of zeros that splits of huge pages have freed, which no counter of KSM has.
    pub freed_bytes: u64,
    /// CPU time since boot. `None` where it cannot be read.
    pub cpu_ns: Option<u64>,
    /// The share of a CPU that ksmd used between the last two samples.
    pub used_share: Option<f64>,
    /// The cost of a visit, in nanoseconds.
    pub ns_per_page: f64,
    /// The time by which ksmd sleeps longer than told.
    pub oversleeps: Duration,
    /// CPU-seconds that a clean pass would cost.
    pub clean_pass_seconds: f64,
    /// The largest share of a CPU that ksmd may use, 0 to 1.
    pub max_share: f64,
    /// The shortest sleep that the limits allow, in milliseconds.
    pub min_sleep_milliseconds: u32,
    /// CPUs that no program of normal priority uses. `None` where they cannot be told.
    pub spare_cpus: Option<f64>,
    /// CPUs that run programs of low priority.
    pub nice_cpus: f64,
    /// Per cent of the time in which work waits for a CPU, the smaller of two figures; `None` where the kernel does not
    /// tell. The one of the last ten seconds is not raised by a moment. The one of the last seconds falls at once,
    /// while the kernel's average takes 16 s to fall from 100 to 20.
    pub cpu_stall_percent: Option<f32>,
}

impl KsmdState {
    /// Derives ksmd's state from the newest sample.
    pub fn from_sample(now: &Sample, history: &PassHistory, limits: &PolicyLimits) -> Self {
        let ksm = &now.ksm;
        let visited = ksm.pages_scanned.get();
        let tracked = ksm.tracked_pages();
        let of_each = now.processes.iter().map(|process| process.ksm.rmap_items);
        let tracked_of_living = of_each.sum::<Option<u64>>().filter(|_| !now.has_unknown_figures());
        Self {
            at: now.at,
            took: now.took,
            page_size: now.page_size,
            huge_page_bytes: now.huge_page_bytes(),
            runs: ksm.run_state() == Some(RunState::Running),
            is_in_batch: now.is_ksmd_in_batch,
            is_smart: ksm.smart_scan.get().unwrap_or(0) != 0,
            rest: now.rest,
            sleep: Duration::from_millis(ksm.sleep_millisecs.get().unwrap_or(0)),
            pages_to_scan: ksm.pages_to_scan.get().unwrap_or(0),
            full_scans: ksm.full_scans.get().unwrap_or(0),
            visited,
            passed: ksm.passed_pages(),
            tracked,
            tracked_of_living: tracked_of_living.unwrap_or(tracked),
            splits: now.host.vmstat.value().and_then(|vmstat| vmstat.thp_split_page).unwrap_or(0),
            zero_pages: ksm.zero_pages(),
            in_no_tree: ksm.pages_volatile.get(),
            changing: (tracked as f64 * now.page_samples.get().map_or(0.0, |samples| samples.changing_part()))
                as u64,
            saved_bytes: ksm.saved_pages().saturating_mul(now.page_size),
            freed_bytes: now.folded_bytes.unwrap_or(0),
            cpu_ns: now.ksmd_cpu_ns.get(),
            used_share: history.ksmd_share(),
            ns_per_page: history.ns_per_page(),
            oversleeps: history.oversleeps(),
            clean_pass_seconds: clean_pass_seconds(now, history),
            max_share: limits.max_cpu.part(),
            min_sleep_milliseconds: limits.min_sleep_milliseconds,
            spare_cpus: history.spare_cpus(),
            nice_cpus: history.nice_cpus(),
            cpu_stall_percent: now
                .host
                .cpu_pressure
                .value()
                .and_then(|psi| psi.some.avg10)
                .map(|percent| percent.min(history.recent_cpu_stall_percent())),
        }
    }

    /// Returns the bytes that merging saves beside zero pages, which take no memory at all.
    pub fn saved_nonzero_bytes(&self) -> u64 {
        self.saved_bytes.saturating_sub(self.zero_pages.saturating_mul(self.page_size))
    }
}

/// CPU-seconds that a clean pass would cost now.
///
/// `seconds = tracked_pages * seconds_per_visit`, with the cost per visit of the last clean passes. The cost of the
/// last visits is not used: a visit to a merged page costs a twentieth of another, and each kind comes in long runs.
/// Before the first clean pass: `seconds = unmerged_pages * ns_per_page`.
fn clean_pass_seconds(sample: &Sample, history: &PassHistory) -> f64 {
    let ksm = &sample.ksm;
    let (seconds, visited) = history.clean_passes().fold((0.0, 0.0), |(seconds, visited), pass| {
        (seconds + pass.ksmd_cpu.as_secs_f64(), visited + pass.visited.unwrap_or(0) as f64)
    });
    if visited > 0.0 && seconds > 0.0 {
        return ksm.tracked_pages() as f64 * seconds / visited;
    }
    let pages = ksm.pages_unshared.get().unwrap_or(0).saturating_add(ksm.pages_volatile.get().unwrap_or(0));
    pages as f64 * history.ns_per_page() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;
    use crate::sample::PageSamples;

    #[test]
    fn of_tracked_pages_as_large_a_part_changes_all_the_time_as_of_sampled_ones() {
        let changing = |page_samples| {
            let mut sample = Sample { page_samples, ..Sample::default() };
            sample.ksm.pages_unshared = Reading::Value(10_000);
            KsmdState::from_sample(&sample, &PassHistory::default(), &PolicyLimits::default()).changing
        };
        let samples = PageSamples { pages: 500, changing: 10, ..PageSamples::default() };
        assert_eq!(changing(Reading::Value(samples)), 200);
        assert_eq!(changing(Reading::Absent), 0, "no pages are sampled");
    }
}
