//! The account of folded memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sample::ProcessId;

/// The memory of a process that maps the kernel's zero page, and its huge pages, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZeroReading {
    /// Memory that maps the kernel's zero page.
    pub zero_mapped_bytes: u64,
    /// The part of it that KSM counts for the process.
    pub ksm_zero_bytes: u64,
    /// Memory in huge pages.
    pub huge_bytes: u64,
    /// Memory in huge pages that the host has split since boot, read before the figures above: `thp_split_page`. `None` if
    /// it is unknown.
    pub host_split_bytes: Option<u64>,
    /// Anonymous memory in small pages, merged pages among them. `None`: it was not read, and splits are not accounted for.
    pub small_bytes: Option<u64>,
    /// True if ksmd tracks or has merged pages of the process, without which it has split none.
    pub is_tracked: bool,
}

/// The account of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoldEntry {
    /// Zeros that no fold has made: a program maps the zero page too when it reads memory that it never wrote to.
    baseline_bytes: u64,
    /// Zeros that folds have made and that are still there.
    folded_bytes: u64,
    /// Huge pages at the last reading.
    huge_bytes: u64,
    /// Memory in huge pages that the host had split before the last reading.
    host_split_bytes: Option<u64>,
    /// The most memory in huge pages so far, as far as merging or a fold can have split it since and it is still there.
    #[serde(default)]
    most_huge_bytes: u64,
}

impl FoldEntry {
    /// Returns the folded memory of the process.
    pub fn folded_bytes(&self) -> u64 {
        self.folded_bytes
    }

    /// Returns the zeros that were there at the first reading and still are: never written to, or freed by splits before it.
    pub fn earlier_zero_bytes(&self) -> u64 {
        self.baseline_bytes
    }

    /// Returns the memory in huge pages at the last reading.
    pub fn huge_bytes(&self) -> u64 {
        self.huge_bytes
    }

    /// Returns the memory that was in huge pages, and is in small ones or freed: merging or a fold has split it.
    ///
    /// Who split a huge page can't be told: in a process that merges, memory that reclaim splits counts too.
    pub fn split_bytes(&self) -> u64 {
        self.most_huge_bytes.saturating_sub(self.huge_bytes)
    }

    /// Returns true if no figure differs from that of another entry by more than `bytes`.
    pub fn is_within(&self, bytes: u64, other: &Self) -> bool {
        let figures = |entry: &Self| {
            [
                Some(entry.baseline_bytes),
                Some(entry.folded_bytes),
                Some(entry.huge_bytes),
                Some(entry.most_huge_bytes),
                entry.host_split_bytes,
            ]
        };
        figures(self).into_iter().zip(figures(other)).all(|pair| match pair {
            (Some(one), Some(other)) => one.abs_diff(other) <= bytes,
            (one, other) => one == other,
        })
    }

    /// The most that splits can have freed between this reading and the next.
    ///
    /// A process that grows may have more huge pages than before although many were split: then all splits of the host may
    /// be its own. Without huge pages none is.
    fn most_freed_bytes(&self, next: &ZeroReading) -> u64 {
        let fallen = self.huge_bytes.saturating_sub(next.huge_bytes);
        let split = match (self.host_split_bytes, next.host_split_bytes) {
            (Some(before), Some(after)) if self.huge_bytes > 0 || next.huge_bytes > 0 => {
                after.saturating_sub(before)
            }
            _ => 0,
        };
        fallen.max(split)
    }

    /// Follows the most huge pages to the next reading, before the entry has its figures.
    ///
    /// Memory that is gone is not split. Nor are huge pages that went before anything could split them: then the most is what
    /// there is.
    fn follow_splits(&mut self, next: &ZeroReading) {
        let Some(small_bytes) = next.small_bytes else { return };
        let most = self.most_huge_bytes.max(self.huge_bytes);
        let may_split = next.is_tracked || self.folded_bytes > 0 || most > self.huge_bytes;
        let there = next.huge_bytes.saturating_add(small_bytes).saturating_add(next.zero_mapped_bytes);
        self.most_huge_bytes = if may_split { most.max(next.huge_bytes).min(there) } else { next.huge_bytes };
    }
}

/// The account of folded memory of all processes.
///
/// It goes by what the kernel maps. A process's figure is the zeros that have come since the first reading and that KSM
/// does not count. It is at most the folded memory at the reading before plus what folds and splits can have freed since.
/// So it falls when memory is written to again, and does not rise when a program reads memory that it never wrote to,
/// unless huge pages are split meanwhile.
#[derive(Debug, Clone, Default)]
pub struct FoldLedger {
    host_bytes: u64,
    entries: BTreeMap<ProcessId, FoldEntry>,
}

impl FoldLedger {
    /// Creates an empty account for a host with this much memory, which no figure exceeds.
    pub fn new(host_bytes: u64) -> Self {
        Self { host_bytes, entries: BTreeMap::new() }
    }

    /// Sets the memory of the host.
    pub fn set_host_bytes(&mut self, host_bytes: u64) {
        self.host_bytes = host_bytes;
    }

    /// Records a reading of a process. Huge pages may have been split by others: ksmd splits them too.
    pub fn record_look(&mut self, id: ProcessId, reading: ZeroReading) {
        let freed_bytes = self.entries.get(&id).map_or(0, |entry| entry.most_freed_bytes(&reading));
        self.update(id, freed_bytes, reading);
    }

    /// Records a reading after a fold that freed this much.
    pub fn record_fold(&mut self, id: ProcessId, freed_bytes: u64, after: ZeroReading) {
        self.update(id, freed_bytes, after);
    }

    fn update(&mut self, id: ProcessId, freed_bytes: u64, reading: ZeroReading) {
        let zeros = reading.zero_mapped_bytes.saturating_sub(reading.ksm_zero_bytes);
        let first = FoldEntry {
            baseline_bytes: zeros.saturating_sub(freed_bytes),
            folded_bytes: 0,
            huge_bytes: reading.huge_bytes,
            host_split_bytes: reading.host_split_bytes,
            most_huge_bytes: reading.huge_bytes,
        };
        let entry = self.entries.entry(id).or_insert(first);
        let most = entry.folded_bytes.saturating_add(freed_bytes).min(self.host_bytes);
        entry.baseline_bytes = entry.baseline_bytes.min(zeros);
        entry.folded_bytes = (zeros - entry.baseline_bytes).min(most);
        entry.follow_splits(&reading);
        (entry.huge_bytes, entry.host_split_bytes) = (reading.huge_bytes, reading.host_split_bytes);
    }

    /// Returns the accounts of all processes that were looked at.
    pub fn entries(&self) -> impl Iterator<Item = (ProcessId, FoldEntry)> {
        self.entries.iter().map(|(id, entry)| (*id, *entry))
    }

    /// Continues the account of a process that an earlier ledger has kept. One that was looked at since stays.
    pub fn restore(&mut self, id: ProcessId, entry: FoldEntry) {
        self.entries.entry(id).or_insert(entry);
    }

    /// Drops the processes that have ended or can't be read any more.
    pub fn retain(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.entries.retain(|id, _| is_there(*id));
    }

    /// The folded memory of a process. `None`: nothing was looked at.
    pub fn folded_bytes(&self, id: ProcessId) -> Option<u64> {
        self.entries.get(&id).map(|entry| entry.folded_bytes.min(self.host_bytes))
    }

    /// Returns the account of a process. `None`: nothing was looked at.
    pub fn entry(&self, id: ProcessId) -> Option<&FoldEntry> {
        self.entries.get(&id)
    }

    /// The figures of all processes that were looked at.
    pub fn figures(&self) -> impl Iterator<Item = (ProcessId, u64)> {
        self.entries.iter().map(|(id, entry)| (*id, entry.folded_bytes.min(self.host_bytes)))
    }

    /// The folded memory of the host. `None`: nothing was looked at.
    pub fn total_bytes(&self) -> Option<u64> {
        let sum = self.entries.values().fold(0_u64, |sum, entry| sum.saturating_add(entry.folded_bytes));
        (!self.entries.is_empty()).then(|| sum.min(self.host_bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn process(pid: u32, start_ticks: u64) -> ProcessId {
        ProcessId { pid, start_ticks }
    }

    fn reading(zeros: u64, ksm: u64, huge: u64) -> ZeroReading {
        let (zero_mapped_bytes, ksm_zero_bytes, huge_bytes) = (zeros * MIB, ksm * MIB, huge * MIB);
        ZeroReading { zero_mapped_bytes, ksm_zero_bytes, huge_bytes, ..ZeroReading::default() }
    }

    #[test]
    fn what_a_fold_frees_is_counted_until_it_is_written_to() {
        let (mut ledger, id) = (FoldLedger::new(1000 * MIB), process(7, 1));
        assert_eq!((ledger.total_bytes(), ledger.folded_bytes(id)), (None, None), "nothing was looked at");
        ledger.record_look(id, reading(10, 4, 200));
        assert_eq!(ledger.folded_bytes(id), Some(0), "there before");
        ledger.record_fold(id, 100 * MIB, reading(110, 4, 0));
        assert_eq!((ledger.folded_bytes(id), ledger.total_bytes()), (Some(100 * MIB), Some(100 * MIB)));
        // KSM adds zeros of its own, which it counts itself.
        ledger.record_look(id, reading(150, 44, 0));
        assert_eq!(ledger.folded_bytes(id), Some(100 * MIB));
        ledger.record_look(id, reading(80, 44, 0));
        assert_eq!(ledger.folded_bytes(id), Some(30 * MIB), "the rest was written to");
        // The program reads memory that it never wrote to.
        ledger.record_look(id, reading(900, 44, 0));
        assert_eq!(ledger.folded_bytes(id), Some(30 * MIB));
        assert_eq!(
            ledger.entry(id).map(FoldEntry::earlier_zero_bytes),
            Some(6 * MIB),
            "or were they freed before?"
        );
        ledger.record_look(id, reading(0, 0, 0));
        assert_eq!(ledger.folded_bytes(id), Some(0));
        ledger.record_fold(id, 5 * MIB, reading(5, 0, 0));
        assert_eq!(ledger.folded_bytes(id), Some(5 * MIB), "nothing of the baseline is left");
    }

    #[test]
    fn splits_by_ksmd_count_and_mere_reads_do_not() {
        let (mut ledger, id) = (FoldLedger::new(1000 * MIB), process(7, 1));
        ledger.record_look(id, reading(0, 0, 200));
        ledger.record_look(id, reading(500, 0, 200));
        assert_eq!(ledger.folded_bytes(id), Some(0), "no huge page has gone");
        ledger.record_look(id, reading(560, 20, 100));
        assert_eq!(ledger.folded_bytes(id), Some(100 * MIB), "at most what was in the huge pages");
    }

    #[test]
    fn what_splits_freed_counts_also_in_a_process_that_grows() {
        let (mut ledger, id) = (FoldLedger::new(1000 * MIB), process(7, 1));
        let at = |splits: u64, zeros, huge| ZeroReading {
            host_split_bytes: Some(splits * MIB),
            ..reading(zeros, 0, huge)
        };
        // A guest boots, and ksmd splits its huge pages as fast as it gets new ones.
        ledger.record_look(id, at(1000, 0, 50));
        ledger.record_look(id, at(1240, 200, 60));
        assert_eq!(ledger.folded_bytes(id), Some(200 * MIB));
        ledger.record_look(id, at(1240, 300, 60));
        assert_eq!(ledger.folded_bytes(id), Some(200 * MIB), "nothing was split: mere reads");
        ledger.record_look(id, at(1270, 400, 60));
        assert_eq!(ledger.folded_bytes(id), Some(230 * MIB), "at most what was split");
        // None of the splits is in a process without huge pages.
        let small = process(8, 1);
        ledger.record_look(small, at(1270, 0, 0));
        ledger.record_look(small, at(1370, 90, 0));
        assert_eq!(ledger.folded_bytes(small), Some(0));
    }

    /// A reading of a process that merges, or does not, with its memory in zeros, huge and small pages.
    fn tracked(is_tracked: bool, zeros: u64, huge: u64, small: u64) -> ZeroReading {
        ZeroReading { small_bytes: Some(small * MIB), is_tracked, ..reading(zeros, 0, huge) }
    }

    fn split_after(readings: &[ZeroReading]) -> u64 {
        let (mut ledger, id) = (FoldLedger::new(1000 * MIB), process(7, 1));
        readings.iter().for_each(|reading| ledger.record_look(id, *reading));
        ledger.entry(id).unwrap().split_bytes() / MIB
    }

    #[test]
    fn huge_pages_that_went_where_ksmd_was_are_split_as_far_as_their_memory_is_there() {
        let whole = tracked(false, 0, 200, 10);
        assert_eq!(split_after(&[whole]), 0);
        assert_eq!(split_after(&[whole, tracked(true, 60, 20, 130)]), 180, "merged, or freed as zeros");
        assert_eq!(split_after(&[whole, tracked(true, 60, 20, 40)]), 100, "80 MiB are gone");
        assert_eq!(split_after(&[whole, tracked(false, 0, 20, 190)]), 0, "ksmd was never there");
        let unmerged = tracked(false, 0, 20, 190);
        assert_eq!(split_after(&[whole, tracked(true, 0, 20, 190), unmerged]), 180, "they stay split");
        let collapsed = tracked(false, 0, 200, 10);
        assert_eq!(
            split_after(&[whole, tracked(true, 0, 20, 190), collapsed, unmerged]),
            0,
            "and were put together"
        );
        assert_eq!(
            split_after(&[whole, tracked(true, 0, 20, 40), tracked(true, 0, 20, 500)]),
            40,
            "new small pages"
        );
        assert_eq!(split_after(&[whole, tracked(true, 0, 300, 10), tracked(true, 0, 250, 60)]), 50);
    }

    #[test]
    fn an_account_without_the_most_huge_pages_goes_on_from_those_at_its_last_reading() {
        let text = format!(
            r#"{{"baseline_bytes":0,"folded_bytes":0,"huge_bytes":{},"host_split_bytes":null}}"#,
            200 * MIB
        );
        let (mut ledger, id) = (FoldLedger::new(1000 * MIB), process(7, 1));
        ledger.restore(id, serde_json::from_str(&text).unwrap());
        assert_eq!(ledger.entry(id).unwrap().split_bytes(), 0);
        ledger.record_look(id, tracked(true, 0, 20, 190));
        assert_eq!(ledger.entry(id).unwrap().split_bytes(), 180 * MIB);
    }

    #[test]
    fn an_account_that_was_kept_goes_on_where_it_ended() {
        let (mut before, id) = (FoldLedger::new(1000 * MIB), process(7, 1));
        before.record_look(id, reading(10, 0, 200));
        before.record_look(id, reading(90, 0, 100));
        let entry = before.entries().next().unwrap().1;
        let text = serde_json::to_string(&entry).unwrap();
        let mut after = FoldLedger::new(1000 * MIB);
        after.restore(id, serde_json::from_str(&text).unwrap());
        assert_eq!(after.folded_bytes(id), Some(80 * MIB));
        // Huge pages were split meanwhile.
        after.record_look(id, reading(150, 0, 20));
        assert_eq!(after.folded_bytes(id), Some(140 * MIB));
        after.restore(id, entry);
        assert_eq!(after.folded_bytes(id), Some(140 * MIB), "the newer figure stays");
        let newer = after.entries().next().unwrap().1;
        assert!(newer.is_within(80 * MIB, &entry) && !newer.is_within(80 * MIB - 1, &entry));
    }

    #[test]
    fn a_process_with_the_pid_of_another_begins_anew() {
        let mut ledger = FoldLedger::new(1000 * MIB);
        ledger.record_look(process(7, 1), reading(0, 0, 0));
        ledger.record_fold(process(7, 1), 50 * MIB, reading(50, 0, 0));
        ledger.record_look(process(7, 2), reading(50, 0, 0));
        assert_eq!(ledger.folded_bytes(process(7, 2)), Some(0));
        ledger.retain(|id| id.start_ticks == 2);
        assert_eq!((ledger.folded_bytes(process(7, 1)), ledger.total_bytes()), (None, Some(0)));
    }

    proptest! {
        #[test]
        fn no_figure_exceeds_what_the_host_holds_or_what_was_freed(
            host: u64,
            steps in prop::collection::vec((0_u32..4, any::<[u64; 3]>(), prop::option::of(any::<u64>()), prop::option::of(any::<u64>())), 0..40),
        ) {
            let mut ledger = FoldLedger::new(host);
            let mut freed_in_all = 0_u64;
            let mut huge_in_all = 0_u64;
            for (pid, [zero_mapped_bytes, ksm_zero_bytes, huge_bytes], host_split_bytes, freed) in steps {
                let reading = ZeroReading {
                    zero_mapped_bytes,
                    ksm_zero_bytes,
                    huge_bytes,
                    host_split_bytes,
                    small_bytes: Some(zero_mapped_bytes ^ huge_bytes),
                    is_tracked: ksm_zero_bytes.is_multiple_of(2),
                };
                let id = process(pid, 0);
                match freed {
                    Some(freed) => ledger.record_fold(id, freed, reading),
                    None => ledger.record_look(id, reading),
                }
                freed_in_all = freed_in_all.saturating_add(freed.unwrap_or(0));
                huge_in_all = huge_in_all.saturating_add(huge_bytes).saturating_add(host_split_bytes.unwrap_or(0));
                let figure = ledger.folded_bytes(id).unwrap();
                let split = ledger.entry(id).unwrap().split_bytes();
                prop_assert!(split <= reading.small_bytes.unwrap().saturating_add(zero_mapped_bytes));
                prop_assert!(figure <= host && figure <= zero_mapped_bytes.saturating_sub(ksm_zero_bytes));
                prop_assert!(ledger.total_bytes().unwrap() <= host.min(freed_in_all.saturating_add(huge_in_all)));
            }
        }
    }
}
