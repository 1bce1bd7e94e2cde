//! The figures of folded memory, for the threads that show or record them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ksmith_core::fold::FoldLedger;
use ksmith_core::guest::Guest;
use ksmith_core::sample::{ProcessId, Sample};

/// The folded memory of each process that was looked at. Clones share the figures.
#[derive(Debug, Clone, Default)]
pub struct FoldedFigures(Arc<Mutex<FoldedMemory>>);

#[derive(Debug, Default)]
struct FoldedMemory {
    host_bytes: u64,
    of_processes: BTreeMap<ProcessId, u64>,
}

impl FoldedFigures {
    fn memory(&self) -> MutexGuard<'_, FoldedMemory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces all figures by those of the ledger.
    pub(super) fn publish(&self, ledger: &FoldLedger, host_bytes: u64) {
        *self.memory() = FoldedMemory { host_bytes, of_processes: ledger.figures().collect() };
    }

    /// Drops the figures of processes that are not in the sample: they have ended.
    pub fn retain_processes(&self, sample: &Sample) {
        let mut memory = self.memory();
        if memory.of_processes.is_empty() {
            return;
        }
        let mut there: Vec<ProcessId> = sample.processes.iter().map(|process| process.id).collect();
        there.sort_unstable();
        memory.of_processes.retain(|id, _| there.binary_search(id).is_ok());
    }

    /// Returns the folded memory of the host; `None` if no process was looked at.
    pub fn total_bytes(&self) -> Option<u64> {
        let memory = self.memory();
        let sum = memory.of_processes.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        (!memory.of_processes.is_empty()).then(|| sum.min(memory.host_bytes))
    }

    /// Sets the figure of each guest with a process that was looked at.
    pub fn assign(&self, guests: &mut [Guest]) {
        for guest in guests {
            guest.folded_bytes = self.guest_bytes(guest);
        }
    }

    /// Returns the folded memory of a guest; `None` if none of its processes was looked at.
    pub fn guest_bytes(&self, guest: &Guest) -> Option<u64> {
        let memory = self.memory();
        let known = guest.processes.iter().filter_map(|id| memory.of_processes.get(id)).copied();
        known.reduce(u64::saturating_add).map(|bytes| bytes.min(memory.host_bytes))
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::fold::ZeroReading;
    use ksmith_core::guest;
    use ksmith_core::sample::ProcessSample;

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
        figures.publish(&ledger, 1 << 30);
        let processes = [1, 3, 5].map(|pid| ProcessSample::new(process(pid), "a".into(), true)).into();
        let sample = Sample { processes, ..Sample::default() };
        let (mut guests, _) = guest::group(&sample, |_| None);
        guests.sort_by_key(|guest| guest.id().pid());
        guests[0].processes.push(process(2));
        figures.assign(&mut guests);
        let folded: Vec<_> = guests.iter().map(|guest| guest.folded_bytes).collect();
        assert_eq!(folded, [Some(12288), Some(0), None]);
        assert_eq!(figures.total_bytes(), Some(12288));
        figures.retain_processes(&sample);
        assert_eq!(figures.total_bytes(), Some(4096), "process 2 has ended");
        figures.retain_processes(&Sample::default());
        assert_eq!(figures.total_bytes(), None);
    }
}
