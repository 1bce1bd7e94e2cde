//! The accounting of a job: what its processes hold and what KSM saves them, over time.
//!
//! A job holds the sum of its processes' PSS and swap; RSS would count a shared page in every process. Averages are
//! over the job's whole time, for each process too, so that the averages of the processes add up to the job's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::account::shares;
use crate::kernel::{Ksm, KsmStat};
use crate::sample::{MergeReading, ProcessId, ProcessSample, Sample};

/// One process of the job at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobProcess {
    /// The identity of the process.
    pub id: ProcessId,
    /// The program's name.
    pub name: Arc<str>,
    /// PSS and swap. `None`: not read this time, or denied; then the last figure holds.
    pub held_bytes: Option<u64>,
    /// KSM's figures of the process.
    pub ksm: KsmStat,
    /// The newest reading of its page tables. `None`: KSM's counters hold.
    pub merge_reading: Option<MergeReading>,
    /// Zeros in it that splits of huge pages have freed. `None` if they were not counted.
    pub folded_bytes: Option<u64>,
}

impl JobProcess {
    /// Creates a process of which only KSM's counters are known.
    pub fn new(id: ProcessId, name: Arc<str>, ksm: KsmStat) -> Self {
        Self { id, name, held_bytes: None, ksm, merge_reading: None, folded_bytes: None }
    }
}

/// The job at one moment.
#[derive(Debug, Clone, Default)]
pub struct JobMoment {
    /// Since the job's start.
    pub age: Duration,
    /// Bytes in a page.
    pub page_size: u64,
    /// The host's KSM.
    pub ksm: Ksm,
    /// The job's processes.
    pub processes: Vec<JobProcess>,
}

/// A figure over time, which holds from each look to the next.
#[derive(Debug, Clone, Copy, Default)]
struct TimeWeightedFigure {
    now: u64,
    peak: u64,
    byte_seconds: f64,
}

impl TimeWeightedFigure {
    fn pass(&mut self, seconds: f64) {
        self.byte_seconds += self.now as f64 * seconds;
    }

    fn set(&mut self, value: u64) {
        self.now = value;
        self.peak = self.peak.max(value);
    }

    fn mean(&self, seconds: f64) -> u64 {
        // A job with a single look has the figure of that look.
        if seconds > 0.0 { (self.byte_seconds / seconds).round() as u64 } else { self.peak }
    }
}

#[derive(Debug, Clone)]
struct ProcessAccount {
    name: Arc<str>,
    held: TimeWeightedFigure,
    saved: TimeWeightedFigure,
    merge_any: Option<bool>,
    has_opted_in: bool,
}

/// The accounting of a job while it runs.
#[derive(Debug, Clone, Default)]
pub struct JobAccounting {
    entries: BTreeMap<ProcessId, ProcessAccount>,
    held: TimeWeightedFigure,
    saved: TimeWeightedFigure,
    last: Duration,
}

/// The totals of one process, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessTotals {
    /// The identity of the process.
    pub id: ProcessId,
    /// The program's name at the last look.
    pub name: Arc<str>,
    /// The peak of PSS and swap.
    pub peak_held_bytes: u64,
    /// The savings, averaged over the job's whole time.
    pub mean_saved_bytes: u64,
    /// The peak of the savings.
    pub peak_saved_bytes: u64,
    /// True if all its memory was mergeable at the last look; `None` if the kernel does not say (before 6.14).
    pub merge_any: Option<bool>,
    /// True if all its memory was mergeable at any time.
    pub has_opted_in: bool,
}

/// The totals of a job, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobTotals {
    /// The peak of PSS and swap of all processes together.
    pub peak_held_bytes: u64,
    /// The average of that sum.
    pub mean_held_bytes: u64,
    /// The peak of the savings.
    pub peak_saved_bytes: u64,
    /// The average of the savings.
    pub mean_saved_bytes: u64,
    /// Each process, in the order of PIDs.
    pub processes: Vec<ProcessTotals>,
}

impl JobAccounting {
    /// Records a moment. Moments must be in the order of time.
    pub fn record(&mut self, moment: &JobMoment) {
        self.pass(moment.age);
        let mut left: Vec<ProcessId> = self.entries.keys().copied().collect();
        for (seen, saved) in moment.processes.iter().zip(saved_bytes(moment)) {
            left.retain(|id| *id != seen.id);
            let entry = self.entries.entry(seen.id).or_insert_with(|| ProcessAccount {
                name: Arc::clone(&seen.name),
                held: TimeWeightedFigure::default(),
                saved: TimeWeightedFigure::default(),
                merge_any: None,
                has_opted_in: false,
            });
            entry.name = Arc::clone(&seen.name);
            entry.held.set(seen.held_bytes.unwrap_or(entry.held.now));
            entry.saved.set(saved);
            entry.merge_any = seen.ksm.merge_any;
            entry.has_opted_in |= seen.ksm.merge_any == Some(true);
        }
        for id in left {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.held.set(0);
                entry.saved.set(0);
            }
        }
        let sum = |of: fn(&ProcessAccount) -> u64| self.entries.values().map(of).fold(0, u64::saturating_add);
        let (held, saved) = (sum(|entry| entry.held.now), sum(|entry| entry.saved.now));
        self.held.set(held);
        self.saved.set(saved);
    }

    /// Returns the present savings.
    pub fn saved_bytes(&self) -> u64 {
        self.saved.now
    }

    /// Returns the totals of a job that ended at this age.
    #[must_use]
    pub fn finish(mut self, age: Duration) -> JobTotals {
        self.pass(age);
        let seconds = self.last.as_secs_f64();
        let process = |(id, entry): (&ProcessId, &ProcessAccount)| ProcessTotals {
            id: *id,
            name: Arc::clone(&entry.name),
            peak_held_bytes: entry.held.peak,
            mean_saved_bytes: entry.saved.mean(seconds),
            peak_saved_bytes: entry.saved.peak,
            merge_any: entry.merge_any,
            has_opted_in: entry.has_opted_in,
        };
        JobTotals {
            peak_held_bytes: self.held.peak,
            mean_held_bytes: self.held.mean(seconds),
            peak_saved_bytes: self.saved.peak,
            mean_saved_bytes: self.saved.mean(seconds),
            processes: self.entries.iter().map(process).collect(),
        }
    }

    fn pass(&mut self, age: Duration) {
        let seconds = age.saturating_sub(self.last).as_secs_f64();
        self.held.pass(seconds);
        self.saved.pass(seconds);
        for entry in self.entries.values_mut() {
            entry.held.pass(seconds);
            entry.saved.pass(seconds);
        }
        self.last = self.last.max(age);
    }
}

/// Returns the savings of each process at this moment. Other merged memory on the host takes its part.
pub fn saved_bytes(moment: &JobMoment) -> Vec<u64> {
    let process = |seen: &JobProcess| ProcessSample {
        ksm: seen.ksm,
        merge_reading: seen.merge_reading,
        folded_bytes: seen.folded_bytes,
        ..ProcessSample::new(seen.id, Arc::clone(&seen.name), false)
    };
    let sample = Sample {
        page_size: moment.page_size,
        ksm: moment.ksm.clone(),
        processes: moment.processes.iter().map(process).collect(),
        hidden_processes: 1,
        ..Sample::default()
    };
    shares(&sample).0.iter().map(|share| share.saved_bytes).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reading::Reading;

    fn seen(pid: u32, held_bytes: u64, merging: u64) -> JobProcess {
        let ksm = KsmStat { merging_pages: Some(merging), merge_any: Some(true), ..KsmStat::default() };
        let id = ProcessId { pid, start_ticks: 1 };
        JobProcess { held_bytes: Some(held_bytes), ..JobProcess::new(id, "rank".into(), ksm) }
    }

    fn moment(second: u64, shared: u64, sharing: u64, processes: Vec<JobProcess>) -> JobMoment {
        let ksm =
            Ksm { pages_shared: Reading::Value(shared), pages_sharing: Reading::Value(sharing), ..Ksm::default() };
        JobMoment { age: Duration::from_secs(second), page_size: 4096, ksm, processes }
    }

    #[test]
    fn averages_are_over_time_and_peaks_at_one_moment() {
        let mut accounting = JobAccounting::default();
        accounting.record(&moment(0, 0, 0, vec![seen(1, 1000, 0)]));
        accounting.record(&moment(6, 10, 10, vec![seen(1, 3000, 10), seen(2, 500, 10)]));
        accounting.record(&moment(8, 10, 10, vec![seen(2, 700, 10)]));
        let totals = accounting.finish(Duration::from_secs(10));
        assert_eq!((totals.peak_held_bytes, totals.mean_held_bytes), (3500, 1440));
        assert_eq!(totals.peak_saved_bytes, 10 * 4096);
        // Ten pages for two seconds; then the five of the one that is left, until ksmd visits them.
        assert_eq!(totals.mean_saved_bytes, (20 + 10) * 4096 / 10);
        assert_eq!(totals.processes[0].peak_saved_bytes, 5 * 4096);
        assert_eq!(totals.processes[0].mean_saved_bytes, 4096);
    }

    #[test]
    fn merged_memory_of_others_is_not_the_jobs() {
        let mut accounting = JobAccounting::default();
        accounting.record(&moment(0, 100, 300, vec![seen(1, 0, 40)]));
        assert_eq!(accounting.saved_bytes(), 30 * 4096);
    }

    #[test]
    fn what_was_unmerged_is_not_saved_and_what_splits_freed_is() {
        let counted = seen(1, 0, 100);
        let read =
            MergeReading { counted_pages: 100, merged_pages: 60, saved_pages: 30, ..MergeReading::default() };
        let by_page_tables =
            JobProcess { merge_reading: Some(read), folded_bytes: Some(7 * 4096), ..counted.clone() };
        let saved = |process: &JobProcess| saved_bytes(&moment(0, 50, 50, vec![process.clone()]))[0];
        assert_eq!([saved(&counted), saved(&by_page_tables)], [50 * 4096, 37 * 4096]);
    }

    #[test]
    fn a_figure_that_was_not_read_holds() {
        let mut accounting = JobAccounting::default();
        accounting.record(&moment(0, 0, 0, vec![seen(1, 1000, 0)]));
        accounting.record(&moment(5, 0, 0, vec![JobProcess { held_bytes: None, ..seen(1, 0, 0) }]));
        assert_eq!(accounting.finish(Duration::from_secs(10)).mean_held_bytes, 1000);
    }

    #[test]
    fn one_look_suffices() {
        let mut accounting = JobAccounting::default();
        accounting.record(&moment(0, 1, 1, vec![seen(1, 1000, 2)]));
        let totals = accounting.finish(Duration::ZERO);
        assert_eq!((totals.mean_held_bytes, totals.mean_saved_bytes), (1000, 4096));
    }

    #[test]
    fn an_opt_in_that_was_lost_shows() {
        let mut accounting = JobAccounting::default();
        accounting.record(&moment(0, 0, 0, vec![seen(1, 0, 0)]));
        let lost = KsmStat { merge_any: Some(false), ..KsmStat::default() };
        accounting.record(&moment(1, 0, 0, vec![JobProcess { ksm: lost, ..seen(1, 0, 0) }]));
        let process = accounting.finish(Duration::from_secs(2)).processes.remove(0);
        assert_eq!((process.merge_any, process.has_opted_in), (Some(false), true));
    }

    proptest! {
        #[test]
        fn the_processes_averages_add_up_to_the_jobs(
            rows in prop::collection::vec((0_u64..1000, prop::collection::vec(0_u64..1 << 20, 3)), 1..20)
        ) {
            let mut accounting = JobAccounting::default();
            let mut second = 0;
            for (step, pages) in rows {
                second += step;
                let sum: u64 = pages.iter().sum();
                let processes = pages.iter().zip(1..).map(|(pages, pid)| seen(pid, 1 << 20, *pages)).collect();
                accounting.record(&moment(second, sum / 3, sum - sum / 3, processes));
            }
            let totals = accounting.finish(Duration::from_secs(second + 1));
            let sum: u64 = totals.processes.iter().map(|process| process.mean_saved_bytes).sum();
            prop_assert!(sum.abs_diff(totals.mean_saved_bytes) <= 3, "{sum} {}", totals.mean_saved_bytes);
            prop_assert!(totals.mean_saved_bytes <= totals.peak_saved_bytes + 1);
        }
    }
}
