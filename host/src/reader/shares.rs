//! A share of the waits for silent processes, of one call or of several together, for each accountable uid.
//!
//! A call that reads many processes waits some milliseconds for each one that does not answer, and any user may have a
//! thousand. At its share a user's other processes are left unread, and those of all others are read.

use std::collections::{BTreeMap, BTreeSet};

use super::SuspectAccount;

/// The silent processes of each account in one call, or in several that share their waits.
#[derive(Debug)]
pub(crate) struct SilentAccounts {
    most: usize,
    silent: BTreeMap<SuspectAccount, usize>,
    /// The accounts at their share.
    limited: BTreeSet<SuspectAccount>,
    /// The accounts of processes, as far as they were looked up.
    known: BTreeMap<u32, SuspectAccount>,
}

impl SilentAccounts {
    /// Begins a call in which `most` processes of one account may be silent.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, silent: BTreeMap::new(), limited: BTreeSet::new(), known: BTreeMap::new() }
    }

    /// Returns true if this process's account is at its share. Only once some account is, accounts are looked up.
    pub(crate) fn is_held_back(&mut self, pid: u32, find_account: impl FnOnce() -> SuspectAccount) -> bool {
        !self.limited.is_empty() && {
            let account = *self.known.entry(pid).or_insert_with(find_account);
            self.limited.contains(&account)
        }
    }

    /// Counts a process that did not answer.
    pub(crate) fn count_silence(&mut self, pid: u32, find_account: impl FnOnce() -> SuspectAccount) {
        if self.most == usize::MAX {
            return;
        }
        let account = *self.known.entry(pid).or_insert_with(find_account);
        let count = self.silent.entry(account).or_default();
        *count += 1;
        if *count >= self.most {
            self.limited.insert(account);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes of simulated users: PID 7_003 is of uid 7.
    fn account(pid: u32) -> SuspectAccount {
        Some(pid / 1000)
    }

    #[test]
    fn an_account_at_its_share_holds_back_its_own_processes_alone() {
        let mut accounts = SilentAccounts::new(2);
        assert!(!accounts.is_held_back(7_000, || unreachable!("nobody is at a share")));
        accounts.count_silence(7_000, || account(7_000));
        assert!(!accounts.is_held_back(7_001, || account(7_001)));
        accounts.count_silence(7_001, || account(7_001));
        let held_back = [7_002, 8_000, 7_003].map(|pid| accounts.is_held_back(pid, || account(pid)));
        assert_eq!(held_back, [true, false, true]);
        assert!(accounts.is_held_back(7_003, || unreachable!("it is known")));
    }

    #[test]
    fn without_a_share_no_account_is_looked_up() {
        let mut accounts = SilentAccounts::new(usize::MAX);
        for pid in 0..100 {
            accounts.count_silence(pid, || unreachable!("there is no share"));
        }
        assert!(!accounts.is_held_back(7, || unreachable!("nobody is at a share")));
    }
}
