//! What programs say that they have folded by libksmith: the kernel counts no folded memory.
//!
//! It is the word of each program for itself. Nothing is decided by it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ksmith_core::guest::Guest;
use ksmith_core::sample::ProcessId;

/// Programs of one user that are noted at most.
const MOST_OF_A_USER: usize = 1024;

/// What each program has folded in all. Clones share the sums.
#[derive(Debug, Clone, Default)]
pub struct FoldedSums(Arc<Mutex<BTreeMap<ProcessId, Sum>>>);

#[derive(Debug, Clone, Copy)]
struct Sum {
    user: u32,
    bytes: u64,
}

impl FoldedSums {
    /// Notes what a program of this user has folded in all. A user with too many programs is heard no further.
    pub fn note(&self, id: ProcessId, user: u32, bytes: u64) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = sums.contains_key(&id);
        if is_known || sums.values().filter(|sum| sum.user == user).count() < MOST_OF_A_USER {
            sums.insert(id, Sum { user, bytes });
        }
    }

    /// The sum of all programs that are still there; those that have ended are forgotten. `None`: no program has said anything.
    pub fn total(&self, is_alive: impl Fn(ProcessId) -> bool) -> Option<u64> {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sums.retain(|id, _| is_alive(*id));
        let add = |sum: u64, one: &Sum| sum.saturating_add(one.bytes);
        (!sums.is_empty()).then(|| sums.values().fold(0, add))
    }

    /// Sets what each guest's processes have folded, where one of them has said anything.
    pub fn assign(&self, guests: &mut [Guest]) {
        let sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for guest in guests {
            let said = guest.processes.iter().filter_map(|id| sums.get(id)).map(|sum| sum.bytes);
            guest.folded_bytes = said.reduce(u64::saturating_add);
        }
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::guest;
    use ksmith_core::sample::{Process, Sample};

    use super::*;

    fn process(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 5 }
    }

    #[test]
    fn living_programs_are_added_up_by_their_last_word() {
        let sums = FoldedSums::default();
        assert_eq!(sums.total(|_| true), None);
        sums.note(process(1), 1000, 4096);
        sums.note(process(1), 1000, 8192);
        sums.note(process(2), 1001, u64::MAX);
        assert_eq!(sums.total(|_| true), Some(u64::MAX));
        assert_eq!(sums.total(|id| id.pid == 1), Some(8192));
        assert_eq!(sums.total(|_| true), Some(8192), "the other one is forgotten");
    }

    #[test]
    fn a_user_fills_no_memory() {
        let sums = FoldedSums::default();
        (0..5000).for_each(|pid| sums.note(process(pid), 1000, 1));
        assert_eq!(sums.total(|_| true), Some(MOST_OF_A_USER as u64));
        sums.note(process(9000), 1001, 1);
        assert_eq!(sums.total(|_| true), Some(MOST_OF_A_USER as u64 + 1));
    }

    #[test]
    fn a_guest_has_the_sum_of_its_processes_and_nothing_where_none_has_spoken() {
        let sums = FoldedSums::default();
        [(1, 4096), (2, 8192), (3, 1)].into_iter().for_each(|(pid, bytes)| sums.note(process(pid), 1000, bytes));
        let processes = [1, 3, 5].map(|pid| Process::new(process(pid), "a".into(), true)).into();
        let (mut guests, _) = guest::group(&Sample { processes, ..Sample::default() }, |_| None);
        guests.sort_by_key(|guest| guest.id().pid());
        guests[0].processes.push(process(2));
        sums.assign(&mut guests);
        let folded: Vec<_> = guests.iter().map(|guest| guest.folded_bytes).collect();
        assert_eq!(folded, [Some(12288), Some(1), None]);
    }
}
