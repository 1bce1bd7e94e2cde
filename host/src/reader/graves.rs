//! Killed children that have not ended.
//!
//! Most end at once. A child that reads a process's memory (`mem`) may not: if the page belongs to a file system that
//! never delivers it (FUSE), not even SIGKILL ends the wait. The kernel reads no such page for `cmdline` and `environ`
//! (`FOLL_ANON`). So there is a small limit of such children for each accountable uid, and one for all users together.
//! All other files are read regardless.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::WantedFile;
use super::child::ReaderChild;
use crate::accountable;

/// The most children waiting for pages of one accountable uid's processes. At the limit the memory of its processes is
/// not read.
const MOST_OF_ONE: usize = 2;

/// The most such children of all users. At the limit no process's memory is read. There may be one more per reader,
/// that it has just killed.
const MOST: usize = 32;

/// The killed children of all readers.
static GRAVES: Mutex<KilledChildren<ReaderChild>> = Mutex::new(KilledChildren(Vec::new()));

fn graves() -> MutexGuard<'static, KilledChildren<ReaderChild>> {
    GRAVES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The accountable uid of a process with memory to be read; `None` if the process had ended before.
pub(super) type Account = Option<u32>;

/// Kills a child. `account` is set for a child that reads memory, since its wait for a page may not end.
pub(super) fn kill_child(child: ReaderChild, account: Option<Account>) {
    child.kill();
    graves().0.push((child, account));
    collect();
}

/// Reaps the children that have ended. It does not wait.
pub(super) fn collect() {
    graves().0.retain(|(child, _)| !child.has_ended());
}

/// Returns true if the child with this PID has not ended.
pub(super) fn has(pid: u32) -> bool {
    graves().0.iter().any(|(child, _)| child.pid() == pid)
}

/// A cache of the accounts of the processes that one call reads. While any child waits for a page, they are looked up
/// before a read, since a process may end during it. Otherwise the lookup is not worth a few system calls per read: by
/// ending at once a process can hide only one child per reader.
#[derive(Debug, Default)]
pub(super) struct ReadAccounts(BTreeMap<u32, Account>);

impl ReadAccounts {
    /// Returns the account for a read; `None` if SIGKILL always ends the read.
    pub(super) fn account_for(&mut self, want: &WantedFile<'_>) -> Option<Account> {
        (want.file == "mem").then(|| *self.0.entry(want.pid).or_insert_with(|| accountable::uid_of_pid(want.pid)))
    }

    /// Returns true if this read may begin.
    pub(super) fn admit(&mut self, want: &WantedFile<'_>) -> bool {
        let any_waits = graves().have_lasting();
        !any_waits || self.account_for(want).is_none_or(|account| !graves().are_full_for(account))
    }
}

/// Killed children, each with the account that it counts to, if it may wait for ever.
#[derive(Debug)]
struct KilledChildren<C>(Vec<(C, Option<Account>)>);

impl<C> KilledChildren<C> {
    /// Returns true if any child waits for a page, perhaps for ever.
    fn have_lasting(&self) -> bool {
        self.0.iter().any(|(_, account)| account.is_some())
    }

    fn are_full_for(&self, account: Account) -> bool {
        let lasting = || self.0.iter().filter_map(|(_, account)| *account);
        lasting().count() >= MOST || lasting().filter(|other| *other == account).count() >= MOST_OF_ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_shuts_out_none_but_itself_and_all_users_together_leave_other_files() {
        let mut graves = KilledChildren(vec![((), None); 100]);
        assert!(!graves.are_full_for(Some(7)), "these end at once");
        graves.0.extend([((), Some(Some(7))); MOST_OF_ONE]);
        assert!(graves.are_full_for(Some(7)) && !graves.are_full_for(Some(8)) && !graves.are_full_for(None));
        graves.0.extend((100..130).map(|uid| ((), Some(Some(uid)))));
        assert!(graves.are_full_for(Some(8)));
        let own = |file| WantedFile { pid: std::process::id(), file, offset: 0, most: 1 };
        let mut accounts = ReadAccounts::default();
        assert!(graves.have_lasting() && !KilledChildren(vec![((), None); 100]).have_lasting());
        assert_eq!(accounts.account_for(&own("ksm_stat")), None);
        assert_eq!(accounts.account_for(&own("mem")), Some(Some(rustix::process::getuid().as_raw())));
    }
}
