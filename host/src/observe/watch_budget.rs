//! The budget of watched processes for each accountable uid, and the processes beyond it.
//!
//! A watched process is read at each tick, and any user may have thousands. Those beyond the budget are read in the
//! rounds of the plain ones, and counted. Root has no budget: it may take the CPU time without ksmith.

use std::collections::{BTreeMap, BTreeSet};

use ksmith_core::sample::ProcessId;

/// The most watched processes of one user, which covers a host with a thousand guests of libvirt's user.
const WATCHED_EACH: usize = 1024;

const ROOT: Option<u32> = Some(0);

/// The outcome of asking for a place among the watched processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchAdmission {
    Granted,
    /// Granted in place of a process of the same user that could save less, which is watched no more.
    GrantedInPlaceOf(ProcessId),
    Refused,
}

/// The places of each user's watched processes. `None` stands for users that can't be told: they share one budget.
#[derive(Debug)]
pub(super) struct WatchBudget {
    each: usize,
    /// The processes of each user, those that could save least first.
    ranks: BTreeMap<Option<u32>, BTreeSet<(u64, ProcessId)>>,
    places: BTreeMap<ProcessId, (Option<u32>, u64)>,
}

impl Default for WatchBudget {
    fn default() -> Self {
        Self::with(WATCHED_EACH)
    }
}

impl WatchBudget {
    /// Creates a budget of `each` processes for each user.
    pub(super) fn with(each: usize) -> Self {
        Self { each, ranks: BTreeMap::new(), places: BTreeMap::new() }
    }

    /// Returns the reason why the other processes of `user` are counted only.
    pub(super) fn refusal(&self, user: Option<u32>) -> String {
        let user = user.map_or_else(|| "an unknown user".to_owned(), |uid| format!("uid {uid}"));
        format!("{} other processes of {user} are read, the most for one user", self.each)
    }

    /// Asks for a place for a process of `user` that could save `bytes` at most. Twice as much as another's takes that
    /// place, so that two of about the same size do not take turns.
    pub(super) fn request_place(&mut self, user: Option<u32>, id: ProcessId, bytes: u64) -> WatchAdmission {
        if user == ROOT {
            return WatchAdmission::Granted;
        }
        let rank = self.ranks.entry(user).or_default();
        let mut admission = WatchAdmission::Granted;
        if rank.len() >= self.each {
            match rank.first().copied() {
                Some(least) if least.0 < bytes / 2 => {
                    rank.remove(&least);
                    self.places.remove(&least.1);
                    admission = WatchAdmission::GrantedInPlaceOf(least.1);
                }
                _ => return WatchAdmission::Refused,
            }
        }
        rank.insert((bytes, id));
        self.places.insert(id, (user, bytes));
        admission
    }

    /// Records the bytes that a watched process could save at most.
    pub(super) fn update(&mut self, id: ProcessId, bytes: u64) {
        let Some((user, had)) = self.places.get_mut(&id).filter(|(_, had)| *had != bytes) else { return };
        if let Some(rank) = self.ranks.get_mut(user) {
            rank.remove(&(*had, id));
            rank.insert((bytes, id));
        }
        *had = bytes;
    }

    /// Gives back the place of a process, if it has one.
    pub(super) fn release(&mut self, id: ProcessId) {
        let Some((user, bytes)) = self.places.remove(&id) else { return };
        if let Some(rank) = self.ranks.get_mut(&user) {
            rank.remove(&(bytes, id));
            if rank.is_empty() {
                self.ranks.remove(&user);
            }
        }
    }
}

/// A process beyond its user's budget.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountedProcess {
    pub(super) user: Option<u32>,
    /// True if it may merge, by its newest reading.
    pub(super) may_merge: bool,
}

/// The processes of one user beyond its budget.
#[derive(Debug, Default)]
struct CountedUser {
    pids: BTreeSet<u32>,
    /// The number of them that may merge.
    merging: u64,
}

/// All processes beyond their users' budgets, as a count for each user: every sample needs it.
#[derive(Debug, Default)]
pub(super) struct CountedProcesses {
    all: BTreeMap<u32, CountedProcess>,
    users: BTreeMap<Option<u32>, CountedUser>,
}

/// The count of one user's processes beyond its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UserCount {
    pub(super) user: Option<u32>,
    /// One of them.
    pub(super) first: u32,
    pub(super) count: u64,
    /// The number of them that may merge.
    pub(super) merging: u64,
}

impl CountedProcesses {
    /// Counts a process, in place of what was known of its PID.
    pub(super) fn insert(&mut self, pid: u32, process: CountedProcess) {
        self.remove(pid);
        self.all.insert(pid, process);
        let of_user = self.users.entry(process.user).or_default();
        of_user.pids.insert(pid);
        of_user.merging += u64::from(process.may_merge);
    }

    /// Counts a process no more.
    pub(super) fn remove(&mut self, pid: u32) {
        let Some(process) = self.all.remove(&pid) else { return };
        let Some(of_user) = self.users.get_mut(&process.user) else { return };
        of_user.pids.remove(&pid);
        of_user.merging -= u64::from(process.may_merge);
        if of_user.pids.is_empty() {
            self.users.remove(&process.user);
        }
    }

    /// Drops the processes for which `is_there` is false.
    pub(super) fn keep(&mut self, is_there: impl Fn(u32) -> bool) {
        let gone: Vec<u32> = self.all.keys().copied().filter(|pid| !is_there(*pid)).collect();
        gone.into_iter().for_each(|pid| self.remove(pid));
    }

    /// Returns the count of each user that has any.
    pub(super) fn counts(&self) -> impl Iterator<Item = UserCount> {
        self.users.iter().filter_map(|(user, of_user)| {
            let first = *of_user.pids.first()?;
            Some(UserCount { user: *user, first, count: of_user.pids.len() as u64, merging: of_user.merging })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 1 }
    }

    #[test]
    fn those_that_could_save_most_are_watched_and_root_has_no_budget() {
        let mut budget = WatchBudget::with(2);
        let user = Some(1000);
        assert_eq!(budget.request_place(user, id(1), 10), WatchAdmission::Granted);
        assert_eq!(budget.request_place(user, id(2), 20), WatchAdmission::Granted);
        assert_eq!(budget.request_place(user, id(3), 21), WatchAdmission::Refused);
        assert_eq!(budget.request_place(user, id(4), 22), WatchAdmission::GrantedInPlaceOf(id(1)));
        assert_eq!(budget.request_place(Some(1001), id(5), 1), WatchAdmission::Granted, "another user's budget");
        assert_eq!(budget.request_place(None, id(6), 1), WatchAdmission::Granted, "of one that can't be told");
        budget.update(id(2), 100);
        assert_eq!(budget.request_place(user, id(7), 90), WatchAdmission::GrantedInPlaceOf(id(4)));
        budget.release(id(2));
        assert_eq!(budget.request_place(user, id(8), 1), WatchAdmission::Granted);
        for pid in 100..200 {
            assert_eq!(budget.request_place(Some(0), id(pid), 0), WatchAdmission::Granted);
        }
    }

    proptest! {
        #[test]
        fn no_user_has_more_places_than_its_budget(
            steps in prop::collection::vec((0_u8..3, 0_u32..3, 0_u32..12, 0_u64..50), 0..80),
        ) {
            let mut budget = WatchBudget::with(3);
            for (what, user, pid, bytes) in steps {
                match what {
                    0 => {
                        budget.release(id(pid));
                        budget.request_place(Some(user + 1), id(pid), bytes);
                    }
                    1 => budget.update(id(pid), bytes),
                    _ => budget.release(id(pid)),
                }
                let ranked: usize = budget.ranks.values().map(BTreeSet::len).sum();
                prop_assert_eq!(ranked, budget.places.len());
                for (user, rank) in &budget.ranks {
                    prop_assert!((1..=3).contains(&rank.len()));
                    for (bytes, id) in rank {
                        prop_assert_eq!(budget.places.get(id), Some(&(*user, *bytes)));
                    }
                }
            }
        }

        #[test]
        fn counts_are_those_of_the_processes(
            steps in prop::collection::vec((0_u8..3, 0_u32..3, 0_u32..9, any::<bool>()), 0..60),
        ) {
            let mut counted = CountedProcesses::default();
            for (what, user, pid, may_merge) in steps {
                match what {
                    0 => counted.insert(pid, CountedProcess { user: Some(user), may_merge }),
                    1 => counted.remove(pid),
                    _ => counted.keep(|other| other != pid),
                }
                for of_user in counted.counts() {
                    let of_it = || counted.all.iter().filter(|(_, process)| process.user == of_user.user);
                    prop_assert_eq!(of_user.count, of_it().count() as u64);
                    prop_assert_eq!(of_user.merging, of_it().filter(|(_, process)| process.may_merge).count() as u64);
                    prop_assert_eq!(Some(of_user.first), of_it().map(|(pid, _)| *pid).min());
                }
                prop_assert_eq!(counted.counts().map(|of_user| of_user.count).sum::<u64>(), counted.all.len() as u64);
            }
        }
    }
}
