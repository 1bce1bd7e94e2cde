//! Accounting: what KSM saves and costs, for the host and for each process, so that the parts add up.
//!
//! The kernel's own figures per process do not add up: `ksm_merging_pages` summed over processes is
//! `pages_shared + pages_sharing`, because the frame that is kept counts in every process that maps it. So
//! the host's saving is apportioned by each process's share in what is merged, to the page.
//!
//! The counters are an upper bound: they do not notice that a page is un-merged before ksmd visits it. Where a process's
//! page tables were read ([`MergeReading`](crate::sample::MergeReading)), its part is what they say, and the host's is
//! the sum of the parts, at most the counters.
//!
//! Processes with one memory map each show all of it. It counts once, in the first of them.

use std::time::Duration;

use serde::Serialize;

use crate::huge_worth::SplitMemory;
use crate::kernel::{Meminfo, RMAP_ITEM_BYTES};
use crate::sample::{MergeReading, ProcessSample, Sample};

/// The age from which on a reading confirms nothing: khugepaged's default pace puts a GiB together in that time.
pub const STALE_READING: Duration = Duration::from_secs(600);

/// The memory that merging saves and costs on a host at one moment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HostTotals {
    /// Memory not needed because pages are merged or zeros were freed: merged pages less the frames that are kept, zero
    /// pages of KSM, and `folded_bytes`.
    pub saved_bytes: u64,
    /// The part of `saved_bytes` that no reading of the last ten minutes confirms: an upper bound of what is merged in the
    /// processes that it is about, without the zeros that splits have freed there since.
    pub unverified_bytes: u64,
    /// The most that splits can have freed before the first readings, which `saved_bytes` lacks. `None` if nothing was read, or
    /// a process with merged pages was not.
    pub earlier_zero_bytes: Option<u64>,
    /// Age of the oldest reading that `saved_bytes` goes by, in seconds; `None` if there is none.
    pub oldest_reading_seconds: Option<u64>,
    /// Memory in huge pages, of the processes whose page tables were read; `None` if there are none.
    pub huge_bytes: Option<u64>,
    /// Huge pages that merging has split, of the same processes; `None` if there are none.
    pub split: Option<SplitMemory>,
    /// KSM's reverse mappings: 64 bytes for each page that it tracks.
    pub overhead_bytes: u64,
    /// Saved less overhead: negative when KSM costs memory.
    pub profit_bytes: i64,
    /// The part of `saved_bytes` that splits of huge pages have freed. 0 where no process was examined.
    pub folded_bytes: u64,
    /// Memory that the host would need if every merged page and every folded zero were written to: the saved bytes.
    pub exposure_bytes: u64,
    /// Memory that the host has to cover the exposure, free swap included; `None` where /proc/meminfo does not tell.
    pub headroom_bytes: Option<u64>,
    /// True if KSM's counters of merged pages can't be read; then all figures above but the headroom are meaningless.
    pub is_unknown: bool,
}

impl HostTotals {
    /// Computes the host's totals.
    pub fn from_sample(sample: &Sample) -> Self {
        let parts = SavingParts::from_sample(sample);
        let folded_bytes = parts.folded_bytes();
        let saved_bytes = parts.ksm_pages().saturating_mul(sample.page_size).saturating_add(folded_bytes);
        let counting = || sample.processes.iter().filter(|process| !process.is_twin);
        let huge = counting().filter_map(|process| Some(process.merge_reading?.huge_bytes));
        let overhead_bytes = sample.ksm.tracked_pages().saturating_mul(RMAP_ITEM_BYTES);
        let headroom_bytes = sample.host.memory.value().and_then(Meminfo::headroom);
        Self {
            saved_bytes,
            unverified_bytes: parts.unverified_pages.saturating_mul(sample.page_size),
            earlier_zero_bytes: earlier_zero_bytes(sample),
            oldest_reading_seconds: oldest_reading_seconds(sample),
            huge_bytes: huge.reduce(u64::saturating_add),
            split: counting().filter_map(|process| process.split).reduce(SplitMemory::plus),
            overhead_bytes,
            profit_bytes: difference(saved_bytes, overhead_bytes),
            folded_bytes,
            exposure_bytes: saved_bytes,
            headroom_bytes,
            is_unknown: !sample.ksm.shows_savings(),
        }
    }

    /// True if the host would run out of memory if all that is merged and folded were written to.
    pub fn is_overexposed(&self) -> bool {
        self.headroom_bytes.is_some_and(|headroom| self.exposure_bytes > headroom)
    }
}

/// Returns the reading of a process that confirms what it saves, if there is one.
fn recent_reading<'a>(sample: &Sample, process: &'a ProcessSample) -> Option<&'a MergeReading> {
    let is_recent = |reading: &&MergeReading| sample.at.saturating_sub(reading.read_at) < STALE_READING;
    process.merge_reading.as_ref().filter(is_recent)
}

/// Returns the zeros that were there at the first readings.
fn earlier_zero_bytes(sample: &Sample) -> Option<u64> {
    let mut sum = None;
    for process in sample.processes.iter().filter(|process| !process.is_twin) {
        match process.earlier_zero_bytes {
            Some(bytes) => sum = Some(bytes.saturating_add(sum.unwrap_or(0))),
            None if process.merging_pages() > 0 => return None,
            None => {}
        }
    }
    sum.filter(|_| !sample.has_unknown_figures())
}

/// Returns the age of the oldest reading of a process with merged pages or freed zeros.
fn oldest_reading_seconds(sample: &Sample) -> Option<u64> {
    let saves = |process: &&ProcessSample| process.merging_pages() > 0 || process.folded_bytes.unwrap_or(0) > 0;
    let counting = sample.processes.iter().filter(|process| !process.is_twin).filter(saves);
    let oldest = counting.filter_map(|process| process.merge_reading).map(|reading| reading.read_at).min()?;
    Some(sample.at.saturating_sub(oldest).as_secs())
}

/// One process's part of the host's totals, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ProcessShare {
    /// Its merged pages, zero pages included: what is mapped, not what is saved.
    pub merged_bytes: u64,
    /// Its part of the host's `saved_bytes`.
    pub saved_bytes: u64,
    /// `saved_bytes` less the metadata for the pages that ksmd tracks in it.
    pub profit_bytes: i64,
    /// True if KSM's counters can't be read; then the figures above are meaningless.
    pub is_unknown: bool,
    /// True if the process does not show its metadata: `profit_bytes` is an upper bound.
    pub is_metadata_unknown: bool,
}

/// The parts of what the host saves: one for each process, in the order of the sample, and one that can't be
/// attributed.
#[derive(Debug, Default)]
struct SavingParts {
    /// Pages saved by merging.
    merged: (Vec<u64>, u64),
    /// Zero pages of KSM.
    zero: (Vec<u64>, u64),
    /// Bytes freed by splits.
    folded: (Vec<u64>, u64),
    /// The part of the pages saved by merging that no recent reading confirms.
    unverified_pages: u64,
}

impl SavingParts {
    fn from_sample(sample: &Sample) -> Self {
        let of_each = |figure: fn(&ProcessSample) -> u64| -> Vec<u64> {
            let figure = |process: &ProcessSample| if process.is_twin { 0 } else { figure(process) };
            sample.processes.iter().map(figure).collect()
        };
        let merging = of_each(ProcessSample::merging_pages);
        let zero = of_each(ProcessSample::zero_pages);
        let folded = of_each(|process| process.folded_bytes.unwrap_or(0));
        let shared = sample.ksm.pages_shared.get().unwrap_or(0);
        let sharing = sample.ksm.pages_sharing.get().unwrap_or(0);
        let mapped = shared.saturating_add(sharing);
        let of_ended = sample.shows_all_merged_pages();
        let counted = attribute(sample, sharing, mapped, &merging, of_ended);
        let (merged, unverified_pages) = correct(sample, counted, shared, sharing);
        let zero_total = sample.ksm.zero_pages();
        let of_ended = of_ended && sample.processes.iter().all(|process| process.ksm.zero_pages.is_some());
        let examined = folded.iter().copied().fold(0, u64::saturating_add);
        let folded_rest = sample.folded_bytes.unwrap_or(0).saturating_sub(examined);
        Self {
            merged,
            zero: attribute(sample, zero_total, zero_total, &zero, of_ended),
            folded: (folded, folded_rest),
            unverified_pages,
        }
    }

    /// Returns the pages that KSM saves, zero pages included.
    fn ksm_pages(&self) -> u64 {
        sum(&self.merged).saturating_add(sum(&self.zero))
    }

    /// Returns the bytes that splits have freed.
    fn folded_bytes(&self) -> u64 {
        sum(&self.folded)
    }
}

fn sum((parts, rest): &(Vec<u64>, u64)) -> u64 {
    parts.iter().copied().fold(*rest, u64::saturating_add)
}

/// Replaces the parts that the counters give by those of the page tables, where they were read. Returns the parts, and
/// the pages among them that no recent reading confirms. The sum does not exceed `sharing`.
fn correct(sample: &Sample, counted: (Vec<u64>, u64), shared: u64, sharing: u64) -> ((Vec<u64>, u64), u64) {
    let (counted, rest) = counted;
    let mut unread = rest;
    let part = |(process, counted): (&ProcessSample, u64)| match &process.merge_reading {
        _ if process.is_twin => 0,
        Some(reading) => {
            let saved = reading.saved_now(process.merging_pages(), shared, sharing);
            let is_recent = recent_reading(sample, process).is_some();
            unread = unread.saturating_add(if is_recent { 0 } else { saved });
            saved
        }
        None => {
            unread = unread.saturating_add(counted);
            counted
        }
    };
    let parts: Vec<u64> = sample.processes.iter().zip(counted).map(part).collect();
    let corrected = (parts, rest);
    let total = sum(&corrected);
    if total <= sharing {
        return (corrected, unread);
    }
    let (parts, rest) = apportion(sharing, &corrected.0, rest);
    let of_unread =
        sample.processes.iter().zip(&parts).filter(|(process, _)| recent_reading(sample, process).is_none());
    let unread = of_unread.fold(rest, |sum, (_, part)| sum.saturating_add(*part));
    ((parts, rest), unread)
}

/// Returns the pages that KSM saves, zero pages included: by the page tables that were read, and else by the counters.
pub fn saved_pages(sample: &Sample) -> u64 {
    SavingParts::from_sample(sample).ksm_pages()
}

/// Computes each process's share, in the order of `sample.processes`, and the bytes that can't be attributed because
/// some processes hide their figures. Together they are exactly the host's `saved_bytes`.
pub fn shares(sample: &Sample) -> (Vec<ProcessShare>, u64) {
    let page = sample.page_size;
    let parts = SavingParts::from_sample(sample);
    let each = parts.merged.0.iter().zip(&parts.zero.0).zip(&parts.folded.0);
    let shares = sample.processes.iter().zip(each).map(|(process, ((merged, zero), folded))| {
        let saved_bytes = merged.saturating_add(*zero).saturating_mul(page).saturating_add(*folded);
        let overhead = process.ksm.rmap_items.unwrap_or(0).saturating_mul(RMAP_ITEM_BYTES);
        ProcessShare {
            merged_bytes: process.merging_pages().saturating_add(process.zero_pages()).saturating_mul(page),
            saved_bytes,
            profit_bytes: difference(saved_bytes, overhead),
            is_unknown: !sample.ksm.shows_savings(),
            is_metadata_unknown: process.ksm.rmap_items.is_none(),
        }
    });
    let rest = parts.merged.1.saturating_add(parts.zero.1).saturating_mul(page);
    (shares.collect(), rest.saturating_add(parts.folded.1))
}

/// Attributes the `total` of a counter to the processes by the pages that each has `seen` of those `mapped`, and the
/// rest to processes that hide their figures.
///
/// The counters keep what ended processes had merged until ksmd visits them: with `run` = 0 for ever. Nobody maps that,
/// and it saves nothing. It is dropped if the sample `shows_all` pages, and else a part of the rest.
fn attribute(sample: &Sample, total: u64, mapped: u64, seen: &[u64], shows_all: bool) -> (Vec<u64>, u64) {
    let unseen = mapped.saturating_sub(seen.iter().fold(0, |sum, &pages| sum.saturating_add(pages)));
    if shows_all {
        return (bounded(apportion(total, seen, unseen), seen).0, 0);
    }
    // The two sums are read a moment apart: without hidden processes their difference is nobody's.
    let hidden = if sample.has_unknown_figures() { unseen } else { 0 };
    bounded(apportion(total, seen, hidden), seen)
}

/// Bounds each part by the pages that the process maps merged, and adds what is beyond to the rest.
fn bounded((mut parts, mut rest): (Vec<u64>, u64), mapped: &[u64]) -> (Vec<u64>, u64) {
    for (part, mapped) in parts.iter_mut().zip(mapped) {
        let excess = part.saturating_sub(*mapped);
        *part -= excess;
        rest = rest.saturating_add(excess);
    }
    (parts, rest)
}

/// Splits `total` in proportion to `weights` and `rest`, to the unit, by largest remainders. Returns each
/// weight's part and the remaining part; they add up to `total`. Without any weight all of it remains.
pub fn apportion(total: u64, weights: &[u64], rest: u64) -> (Vec<u64>, u64) {
    let sum: u128 = weights.iter().map(|&w| u128::from(w)).sum::<u128>() + u128::from(rest);
    if sum == 0 {
        return (vec![0; weights.len()], total);
    }
    let part = |weight: u64| {
        let product = u128::from(total) * u128::from(weight);
        (u64::try_from(product / sum).unwrap_or(u64::MAX), product % sum)
    };
    let (mut parts, remainders): (Vec<u64>, Vec<u128>) = weights.iter().map(|&w| part(w)).unzip();
    let (rest_part, _) = part(rest);
    let left = total - parts.iter().sum::<u64>() - rest_part;
    // At most one unit per weight is left; what a hidden rest would have rounded up to goes to the visible.
    let mut order: Vec<usize> = (0..parts.len()).filter(|&i| remainders[i] > 0).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(remainders[i]), i));
    let mut left = left;
    for i in order {
        if left == 0 {
            break;
        }
        parts[i] += 1;
        left -= 1;
    }
    (parts, rest_part + left)
}

fn difference(gain: u64, cost: u64) -> i64 {
    let difference = i128::from(gain) - i128::from(cost);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::huge_worth::SplitLosses;
    use crate::kernel::KsmStat;
    use crate::reading::Reading;
    use crate::sample::ProcessId;

    fn process(pid: u32, merging: u64, zero: u64) -> ProcessSample {
        ProcessSample {
            ksm: KsmStat {
                merging_pages: Some(merging),
                zero_pages: Some(zero),
                rmap_items: Some(merging),
                ..KsmStat::default()
            },
            ..ProcessSample::new(ProcessId { pid, start_ticks: 0 }, "guest".into(), true)
        }
    }

    fn sample(shared: u64, sharing: u64, zero: u64, processes: Vec<ProcessSample>) -> Sample {
        let mut sample = Sample { page_size: 4096, processes, ..Sample::default() };
        sample.ksm.pages_shared = Reading::Value(shared);
        sample.ksm.pages_sharing = Reading::Value(sharing);
        sample.ksm.ksm_zero_pages = Reading::Value(zero.cast_signed());
        sample
    }

    #[test]
    fn two_equal_guests_save_half_each() {
        let sample = sample(100, 100, 0, vec![process(1, 100, 0), process(2, 100, 0)]);
        let (shares, rest) = shares(&sample);
        assert_eq!(shares[0].saved_bytes, 50 * 4096);
        assert_eq!(shares[0].merged_bytes, 100 * 4096);
        assert_eq!(shares[1].profit_bytes, 50 * 4096 - 100 * 64);
        assert_eq!(rest, 0);
    }

    #[test]
    fn savings_of_hidden_processes_are_unattributed() {
        let mut sample = sample(100, 100, 0, vec![process(1, 100, 0)]);
        sample.hidden_processes = 1;
        let (shares, rest) = shares(&sample);
        assert_eq!((shares[0].saved_bytes, rest), (50 * 4096, 50 * 4096));
    }

    #[test]
    fn no_process_saves_more_than_it_has_merged() {
        // It can't be told whether all processes were seen.
        let sample = sample(100, 500, 70, vec![process(1, 100, 10), process(2, 100, 0)]);
        let (shares, rest) = shares(&sample);
        assert_eq!((shares[0].saved_bytes, shares[1].saved_bytes), (110 * 4096, 100 * 4096));
        assert_eq!(rest, (300 + 60) * 4096);
    }

    #[test]
    fn what_ended_processes_had_merged_is_not_saved() {
        // Processes 3 and 4 had half of it. ksmd has visited nothing since they ended.
        let mut sample = sample(100, 300, 70, vec![process(1, 100, 10), process(2, 100, 0)]);
        sample.ksmd_cpu_ns = Reading::Value(1);
        sample.shows_mergeable = true;
        let (parts, rest) = shares(&sample);
        assert_eq!((parts[0].saved_bytes, parts[1].saved_bytes, rest), (85 * 4096, 75 * 4096, 0));
        assert_eq!(HostTotals::from_sample(&sample).exposure_bytes, 160 * 4096);
        assert_eq!(HostTotals::from_sample(&Sample { processes: vec![], ..sample.clone() }).saved_bytes, 0);
        // Zero pages of a process are counted since Linux 6.10.
        let mut older = sample.clone();
        older.processes[1].ksm.zero_pages = None;
        assert_eq!((saved_pages(&older), shares(&older).1), (150 + 70, 60 * 4096));
        let in_a_namespace = Sample { ksmd_cpu_ns: Reading::Absent, ..sample.clone() };
        let hidden = Sample { hidden_processes: 1, ..sample.clone() };
        let before_6_14 = Sample { shows_mergeable: false, processes: vec![], ..sample };
        assert_eq!([in_a_namespace, hidden, before_6_14].map(|sample| saved_pages(&sample)), [370; 3]);
    }

    #[test]
    fn exposure_beyond_headroom_is_noticed() {
        let mut sample = sample(1, 10, 10, vec![]);
        assert_eq!(HostTotals::from_sample(&sample).headroom_bytes, None);
        assert!(!HostTotals::from_sample(&sample).is_overexposed());
        sample.host.memory = Reading::Value(Meminfo {
            total: Some(1 << 30),
            available: Some(10 * 4096),
            swap_free: Some(9 * 4096),
            ..Meminfo::default()
        });
        assert!(HostTotals::from_sample(&sample).is_overexposed());
    }

    #[test]
    fn folded_memory_is_a_part_of_what_is_saved_and_exposed() {
        let mut sample = sample(1, 10, 10, vec![]);
        assert_eq!(HostTotals::from_sample(&sample).folded_bytes, 0);
        sample.folded_bytes = Some(4096);
        let totals = HostTotals::from_sample(&sample);
        assert_eq!((totals.saved_bytes, totals.exposure_bytes, totals.folded_bytes), (21 * 4096, 21 * 4096, 4096));
        assert_eq!(shares(&sample).1, 21 * 4096);
        sample.folded_bytes = Some(u64::MAX);
        assert_eq!(HostTotals::from_sample(&sample).exposure_bytes, u64::MAX);
    }

    #[test]
    fn pages_that_page_tables_no_longer_show_merged_are_not_saved() {
        let mut sample = sample(100, 100, 0, vec![process(1, 100, 0), process(2, 100, 0)]);
        let totals = HostTotals::from_sample(&sample);
        assert_eq!((totals.saved_bytes, totals.unverified_bytes), (100 * 4096, 100 * 4096));
        assert_eq!(totals.huge_bytes, None);
        let read = |saved_pages| MergeReading {
            counted_pages: 100,
            merged_pages: 2 * saved_pages,
            saved_pages,
            huge_bytes: 2 << 20,
            ..MergeReading::default()
        };
        sample.processes[0].merge_reading = Some(read(10));
        let totals = HostTotals::from_sample(&sample);
        assert_eq!((totals.saved_bytes, totals.unverified_bytes), (60 * 4096, 50 * 4096));
        sample.processes[1].merge_reading = Some(read(10));
        sample.processes[1].folded_bytes = Some(8192);
        let totals = HostTotals::from_sample(&sample);
        assert_eq!((totals.saved_bytes, totals.unverified_bytes), (22 * 4096, 0));
        assert_eq!((totals.folded_bytes, totals.huge_bytes), (8192, Some(4 << 20)));
        let (parts, rest) = shares(&sample);
        assert_eq!((parts[0].saved_bytes, parts[1].saved_bytes, rest), (10 * 4096, 12 * 4096, 0));
        assert_eq!(saved_pages(&sample), 20);
    }

    #[test]
    fn what_is_unverified_is_a_part_of_what_is_saved_also_where_readings_are_old() {
        let mut sample = sample(0, 100, 0, vec![process(1, 100, 0), process(2, 100, 0)]);
        let reading =
            MergeReading { counted_pages: 100, merged_pages: 100, saved_pages: 100, ..MergeReading::default() };
        sample.processes[0].merge_reading = Some(reading);
        let totals = HostTotals::from_sample(&sample);
        // 100 by the reading and 50 by the counters are more than the host's 100.
        assert_eq!((totals.saved_bytes, totals.unverified_bytes), (100 * 4096, 33 * 4096));
    }

    #[test]
    fn a_reading_that_is_too_old_confirms_nothing() {
        let mut sample = sample(100, 100, 0, vec![process(1, 100, 0), process(2, 100, 0), process(3, 0, 0)]);
        for (process, seconds) in sample.processes.iter_mut().zip([100, 650, 1]) {
            process.merge_reading = Some(MergeReading {
                read_at: Duration::from_secs(seconds),
                counted_pages: 100,
                merged_pages: 100,
                saved_pages: 40,
                ..MergeReading::default()
            });
        }
        let at = |sample: &mut Sample, seconds| {
            sample.at = Duration::from_secs(seconds);
            let totals = HostTotals::from_sample(sample);
            (totals.saved_bytes / 4096, totals.unverified_bytes / 4096, totals.oldest_reading_seconds)
        };
        assert_eq!(at(&mut sample, 699), (80, 0, Some(599)));
        assert_eq!(at(&mut sample, 700), (80, 40, Some(600)), "what nothing is saved by does not count");
        assert_eq!(at(&mut sample, 5000), (80, 80, Some(4900)));
        sample.processes[1].merge_reading = None;
        assert_eq!(at(&mut sample, 699), (90, 50, Some(599)));
    }

    #[test]
    fn zeros_that_were_there_before_have_a_bound_only_where_all_that_merge_were_read() {
        let mut sample = sample(100, 100, 0, vec![process(1, 100, 0), process(2, 100, 0), process(3, 0, 0)]);
        let bound = |sample: &Sample| HostTotals::from_sample(sample).earlier_zero_bytes;
        assert_eq!(bound(&sample), None);
        sample.processes[0].earlier_zero_bytes = Some(4096);
        assert_eq!(bound(&sample), None, "process 2 may have any number");
        sample.processes[1].earlier_zero_bytes = Some(8192);
        assert_eq!(bound(&sample), Some(3 * 4096), "process 3 does not merge");
        sample.processes[1].is_twin = true;
        assert_eq!(bound(&sample), Some(4096));
        sample.hidden_processes = 1;
        assert_eq!(bound(&sample), None);
    }

    #[test]
    fn one_memory_map_counts_once_however_many_processes_have_it() {
        let mut sample = sample(100, 100, 20, vec![process(1, 100, 20), process(2, 100, 20), process(3, 100, 0)]);
        let reading = MergeReading {
            counted_pages: 100,
            merged_pages: 100,
            saved_pages: 40,
            huge_bytes: 2 << 20,
            ..MergeReading::default()
        };
        for process in &mut sample.processes {
            (process.merge_reading, process.folded_bytes) = (Some(reading), Some(8192));
        }
        sample.processes[1].is_twin = true;
        let totals = HostTotals::from_sample(&sample);
        assert_eq!((totals.saved_bytes, totals.unverified_bytes), (100 * 4096 + 2 * 8192, 0));
        assert_eq!((totals.folded_bytes, totals.huge_bytes), (2 * 8192, Some(4 << 20)));
        let (parts, rest) = shares(&sample);
        let saved: Vec<u64> = parts.iter().map(|part| part.saved_bytes).collect();
        assert_eq!((saved, rest), (vec![62 * 4096, 0, 42 * 4096], 0));
    }

    #[test]
    fn profit_is_negative_when_metadata_outweighs_savings() {
        let mut sample = sample(0, 0, 0, vec![]);
        sample.ksm.pages_unshared = Reading::Value(1000);
        assert_eq!(HostTotals::from_sample(&sample).profit_bytes, -64_000);
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_hosts_savings_and_never_exceed_the_counters(
            shared in 0_u64..1 << 40,
            sharing in 0_u64..1 << 40,
            zero in 0_u64..1 << 40,
            hidden in 0_u64..2,
            shows_all: bool,
            of_processes in prop::collection::vec(
                (
                    0_u64..1 << 40,
                    0_u64..1 << 40,
                    prop::option::of([0_u64..1 << 40, 0..1 << 40, 0..1 << 40, 0..1 << 40]),
                    any::<bool>(),
                ),
                0..20,
            ),
        ) {
            let processes = of_processes.iter().zip(1..).map(|((merging, zero, read, is_twin), pid)| {
                let reading = read.map(|[counted, merged, saved, _]| MergeReading {
                    counted_pages: counted,
                    merged_pages: merged.min(counted),
                    saved_pages: saved.min(merged).min(counted),
                    ..MergeReading::default()
                });
                ProcessSample {
                    merge_reading: reading,
                    folded_bytes: read.map(|read| read[3]),
                    split: read.map(|[split, huge, cpu_ms, _]| {
                        SplitMemory::new(split, huge, cpu_ms as f64 / 1e3, &SplitLosses::default())
                    }),
                    is_twin: *is_twin,
                    ..process(pid, *merging, *zero)
                }
            });
            let mut sample = sample(shared, sharing, zero, processes.collect());
            sample.hidden_processes = hidden;
            if shows_all {
                sample.ksmd_cpu_ns = Reading::Value(1);
                sample.shows_mergeable = true;
            }
            let totals = HostTotals::from_sample(&sample);
            let (parts, rest) = shares(&sample);
            let sum = parts.iter().map(|part| part.saved_bytes).sum::<u64>() + rest;
            prop_assert_eq!(sum, totals.saved_bytes);
            prop_assert!(totals.saved_bytes <= (sharing + zero) * 4096 + totals.folded_bytes);
            prop_assert!(totals.unverified_bytes <= totals.saved_bytes);
            let mapped = parts.iter().map(|part| part.merged_bytes).sum::<u64>() + totals.folded_bytes;
            prop_assert!(totals.saved_bytes <= mapped || !sample.shows_all_merged_pages());
            prop_assert!(totals.exposure_bytes == totals.saved_bytes);
            let guests = crate::guest::group(&sample, |_| None).0;
            let split = guests.iter().filter_map(|guest| guest.split).reduce(SplitMemory::plus);
            prop_assert_eq!(split, totals.split);
        }

        #[test]
        fn parts_always_add_up(total: u64, weights in prop::collection::vec(any::<u64>(), 0..50), rest: u64) {
            let (parts, remaining) = apportion(total, &weights, rest);
            let sum = parts.iter().map(|&p| u128::from(p)).sum::<u128>() + u128::from(remaining);
            prop_assert_eq!(sum, u128::from(total));
        }

        #[test]
        fn no_part_is_more_than_one_off_its_share(
            total in 0_u64..1 << 40,
            weights in prop::collection::vec(0_u64..1 << 40, 1..50),
        ) {
            let sum: u64 = weights.iter().sum();
            prop_assume!(sum > 0);
            let (parts, remaining) = apportion(total, &weights, 0);
            prop_assert_eq!(remaining, 0);
            for (part, weight) in parts.iter().zip(&weights) {
                let exact = total as f64 * *weight as f64 / sum as f64;
                prop_assert!((*part as f64 - exact).abs() <= 1.001);
            }
        }
    }
}
