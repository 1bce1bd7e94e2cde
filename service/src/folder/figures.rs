//! The figures of folded memory, and of pages that are no longer merged, for the threads that do not sample.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ksmith_core::account;
use ksmith_core::fold::FoldLedger;
use ksmith_core::guest::Guest;
use ksmith_core::sample::{FoldedFigure, ProcessId, Sample};

/// The folded memory of each process that was looked at. Clones share the figures.
#[derive(Debug, Clone, Default)]
pub struct FoldedFigures(Arc<Mutex<FoldedMemory>>);

#[derive(Debug, Default)]
struct FoldedMemory {
    host_bytes: u64,
    /// The figures of the folder.
    of_processes: BTreeMap<ProcessId, FoldedFigure>,
    /// The figures of the newest sample.
    of_sample: BTreeMap<ProcessId, FoldedFigure>,
    /// Bytes that KSM's counters have as saved, and page tables have not.
    unmerged_bytes: u64,
}

impl FoldedMemory {
    /// Returns the folded memory of a process.
    fn bytes_of(&self, id: &ProcessId) -> Option<u64> {
        FoldedFigure::join(self.of_sample.get(id).copied(), self.of_processes.get(id).copied())
    }
}

impl FoldedFigures {
    fn memory(&self) -> MutexGuard<'_, FoldedMemory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the folder's figures by those of its ledger, with the times of its looks.
    pub(super) fn publish(&self, ledger: &FoldLedger, looks: &BTreeMap<ProcessId, Duration>, host_bytes: u64) {
        let figure = |(id, bytes)| {
            let read_at = looks.get(&id).copied().unwrap_or_default();
            (id, FoldedFigure { bytes, read_at })
        };
        let mut memory = self.memory();
        (memory.host_bytes, memory.of_processes) = (host_bytes, ledger.figures().map(figure).collect());
    }

    /// Takes over the figures of a sample, and drops those of processes that are not in it: they have ended.
    pub fn follow_sample(&self, sample: &Sample) {
        let counting = sample.processes.iter().filter(|process| !process.is_twin);
        let of_sample = counting.filter_map(|process| Some((process.id, process.folded_figure()?)));
        let unmerged_pages = sample.ksm.saved_pages().saturating_sub(account::saved_pages(sample));
        let mut memory = self.memory();
        memory.of_sample = of_sample.collect();
        memory.unmerged_bytes = unmerged_pages.saturating_mul(sample.page_size);
        if let Some(total) = sample.host.memory.value().and_then(|memory| memory.total) {
            memory.host_bytes = total;
        }
        if memory.of_processes.is_empty() {
            return;
        }
        let mut there: Vec<ProcessId> = sample.processes.iter().map(|process| process.id).collect();
        there.sort_unstable();
        memory.of_processes.retain(|id, _| there.binary_search(id).is_ok());
    }

    /// Returns the figures of the folder.
    pub fn of_folder(&self) -> BTreeMap<ProcessId, FoldedFigure> {
        self.memory().of_processes.clone()
    }

    /// Returns the folded memory of the host; `None` if no process was looked at.
    pub fn total_bytes(&self) -> Option<u64> {
        let memory = self.memory();
        let only_sampled = memory.of_sample.iter().filter(|(id, _)| !memory.of_processes.contains_key(id));
        let all = memory.of_processes.iter().chain(only_sampled).filter_map(|(id, _)| memory.bytes_of(id));
        all.reduce(u64::saturating_add).map(|sum| sum.min(memory.host_bytes))
    }

    /// Returns the bytes that KSM's counters have as saved although page tables show them no longer merged.
    pub fn unmerged_bytes(&self) -> u64 {
        self.memory().unmerged_bytes
    }

    /// Returns the folded memory of a guest; `None` if none of its processes was looked at.
    pub fn guest_bytes(&self, guest: &Guest) -> Option<u64> {
        let memory = self.memory();
        let known = guest.processes.iter().filter_map(|id| memory.bytes_of(id));
        known.reduce(u64::saturating_add).map(|bytes| bytes.min(memory.host_bytes))
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::fold::ZeroReading;
    use ksmith_core::guest;
    use ksmith_core::reading::Reading;
    use ksmith_core::sample::{MergeReading, ProcessSample};

    use super::*;

    fn process(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 5 }
    }

    #[test]
    fn a_guest_has_the_sum_of_its_processes_and_nothing_where_none_was_looked_at() {
        let figures = FoldedFigures::default();
        assert_eq!(figures.total_bytes(), None);
        let mut ledger = FoldLedger::new(1 << 30);
        for (pid, bytes) in [(1, 4096), (2, 8192), (3, 0)] {
            ledger.record_look(process(pid), ZeroReading::default());
            ledger.record_fold(
                process(pid),
                bytes,
                ZeroReading { zero_mapped_bytes: bytes, ..ZeroReading::default() },
            );
        }
        figures.publish(&ledger, &BTreeMap::new(), 1 << 30);
        let processes = [1, 3, 5].map(|pid| ProcessSample::new(process(pid), "a".into(), true)).into();
        let sample = Sample { processes, ..Sample::default() };
        let (mut guests, _) = guest::group(&sample, |_| None);
        guests.sort_by_key(|guest| guest.id().pid());
        guests[0].processes.push(process(2));
        let folded: Vec<_> = guests.iter().map(|guest| figures.guest_bytes(guest)).collect();
        assert_eq!(folded, [Some(12288), Some(0), None]);
        assert_eq!(figures.total_bytes(), Some(12288));
        figures.follow_sample(&sample);
        assert_eq!(figures.total_bytes(), Some(4096), "process 2 has ended");
        figures.follow_sample(&Sample::default());
        assert_eq!(figures.total_bytes(), None);
    }

    #[test]
    fn a_sample_adds_what_the_folder_does_not_know() {
        let figures = FoldedFigures::default();
        let mut ledger = FoldLedger::new(1 << 30);
        ledger.record_fold(process(1), 4096, ZeroReading { zero_mapped_bytes: 4096, ..ZeroReading::default() });
        figures.publish(&ledger, &BTreeMap::new(), 1 << 30);
        let mut sample = Sample { page_size: 4096, ..Sample::default() };
        sample.ksm.pages_sharing = Reading::Value(10);
        sample.processes = [1, 2].map(|pid| ProcessSample::new(process(pid), "a".into(), true)).into();
        sample.processes[0].folded_bytes = Some(0);
        sample.processes[1].folded_bytes = Some(8192);
        figures.follow_sample(&sample);
        assert_eq!((figures.total_bytes(), figures.unmerged_bytes()), (Some(12288), 0));
        // Zeros that were freed before the folder looked for the first time.
        sample.processes[0].folded_bytes = Some(16384);
        figures.follow_sample(&sample);
        assert_eq!(figures.total_bytes(), Some(16384 + 8192));
        sample.processes[0].folded_bytes = Some(0);
        // Its memory was written to since the folder looked.
        let read_at = Duration::from_secs(9);
        sample.processes[0].merge_reading = Some(MergeReading { read_at, ..MergeReading::default() });
        figures.follow_sample(&sample);
        assert_eq!(figures.total_bytes(), Some(8192));
        for process in &mut sample.processes {
            process.ksm.merging_pages = Some(10);
            process.merge_reading = Some(MergeReading { counted_pages: 10, ..MergeReading::default() });
        }
        figures.follow_sample(&sample);
        assert_eq!(figures.unmerged_bytes(), 10 * 4096);
    }
}
