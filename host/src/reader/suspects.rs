//! Processes that did not answer, each left alone with an exponential back-off.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::proc_file::{UnansweredRead, waits_for_memory};

/// The first and the longest back-off.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// The most entries. Beyond this the one with the earliest retry is dropped.
const MOST: usize = 16_384;

/// The processes of this host that did not answer this process.
pub(crate) static SUSPECTS: SuspectTable = SuspectTable(Mutex::new(BTreeMap::new()));

/// Unanswered processes by PID. A reused PID is left alone too, for a minute at most.
#[derive(Debug, Default)]
pub(crate) struct SuspectTable(Mutex<BTreeMap<u32, SuspectEntry>>);

#[derive(Debug, Clone)]
struct SuspectEntry {
    /// The file that did not answer: others of the process may.
    file: String,
    again: Instant,
    pause: Duration,
    /// `None` until the account was looked up.
    account: Option<SuspectAccount>,
}

/// The accountable uid of a process; `None` if it can't be told.
pub(crate) type SuspectAccount = Option<u32>;

/// A process whose back-off has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DueSuspect {
    /// The PID of the process.
    pub(crate) pid: u32,
    /// Its account; `None` until it was looked up.
    pub(crate) account: Option<SuspectAccount>,
}

impl SuspectTable {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, SuspectEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a process is in its back-off.
    pub(crate) fn rests(&self, pid: u32, now: Instant) -> bool {
        self.all().get(&pid).is_some_and(|suspect| now < suspect.again)
    }

    /// Returns true if a process is in its back-off and this file would wait too. Where only the memory map is locked, files
    /// that do not need it are read.
    pub(crate) fn rests_for(&self, pid: u32, file: &str, now: Instant) -> bool {
        let needs = |suspect: &SuspectEntry| !waits_for_memory(&suspect.file) || waits_for_memory(file);
        self.all().get(&pid).is_some_and(|suspect| now < suspect.again && needs(suspect))
    }

    /// Returns the remaining back-off of a process.
    pub(crate) fn rest(&self, pid: u32, now: Instant) -> Duration {
        self.all().get(&pid).map_or(Duration::ZERO, |suspect| suspect.again.saturating_duration_since(now))
    }

    /// Returns true if a process did not answer its last read.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.all().contains_key(&pid)
    }

    /// Returns the file of a process that did not answer its last read, or `file` if all have.
    pub(crate) fn unanswered(&self, pid: u32, file: &str) -> UnansweredRead {
        UnansweredRead::new(pid, self.all().get(&pid).map_or(file, |suspect| &suspect.file))
    }

    /// Records that a file of a process did not answer.
    pub(crate) fn record_silence(&self, pid: u32, file: &str, now: Instant) {
        let mut all = self.all();
        let before = all.get(&pid);
        let pause = before.map_or(FIRST_PAUSE, |suspect| (suspect.pause * 2).min(LAST_PAUSE));
        let account = before.and_then(|suspect| suspect.account);
        all.insert(pid, SuspectEntry { file: file.to_owned(), again: now + pause, pause, account });
        if all.len() > MOST
            && let Some(soonest) = all.iter().min_by_key(|(_, suspect)| suspect.again).map(|(pid, _)| *pid)
        {
            all.remove(&soonest);
        }
    }

    /// Records that a file of a process has answered, or that the process has ended. The process stays suspect if this says
    /// nothing of the lock for which the unanswered file waited.
    pub(crate) fn record_answer(&self, pid: u32, file: &str) {
        let has_one_lock = |suspect: &SuspectEntry| match waits_for_memory(&suspect.file) {
            true => waits_for_memory(file),
            false => file == "stat",
        };
        let mut all = self.all();
        if all.get(&pid).is_some_and(|suspect| suspect.file == file || has_one_lock(suspect)) {
            all.remove(&pid);
        }
    }

    /// Records the account of a process, if that is a suspect.
    pub(crate) fn record_account(&self, pid: u32, account: SuspectAccount) {
        if let Some(suspect) = self.all().get_mut(&pid) {
            suspect.account = Some(account);
        }
    }

    /// Counts the suspects of an account. Those whose back-off ended a minute ago may have ended too, and do not count.
    pub(crate) fn count_silent(&self, account: SuspectAccount, now: Instant) -> usize {
        let counts = |suspect: &&SuspectEntry| suspect.account == Some(account) && now < suspect.again + LAST_PAUSE;
        self.all().values().filter(counts).count()
    }

    /// Returns those of these processes that are suspects and whose back-off has ended, the earliest end first. So each has
    /// its turn.
    pub(crate) fn list_due(&self, pids: impl Iterator<Item = u32>, now: Instant) -> Vec<DueSuspect> {
        let all = self.all();
        if all.is_empty() {
            return Vec::new();
        }
        let suspects = pids.filter_map(|pid| Some((pid, all.get(&pid)?)));
        let due = suspects.filter(|(_, suspect)| suspect.again <= now);
        let due: BTreeMap<(Instant, u32), Option<SuspectAccount>> =
            due.map(|(pid, suspect)| ((suspect.again, pid), suspect.account)).collect();
        due.into_iter().map(|((_, pid), account)| DueSuspect { pid, account }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_until_the_process_answers() {
        let suspects = SuspectTable::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            suspects.record_silence(7, "stat", now);
            suspects.record_answer(7, "ksm_stat");
            let begin = now;
            while suspects.rests(7, now) {
                now += Duration::from_millis(250);
            }
            pauses.push((now - begin).as_millis());
        }
        assert_eq!(pauses[..4], [250, 500, 1000, 2000]);
        assert_eq!(pauses[11], 60_000);
        assert!(suspects.has(7) && !suspects.rests(8, now));
        suspects.record_answer(7, "stat");
        suspects.record_silence(7, "stat", now);
        assert!(suspects.rests(7, now) && !suspects.rests(7, now + FIRST_PAUSE));
    }

    #[test]
    fn a_locked_memory_map_leaves_the_files_that_do_not_need_it() {
        let suspects = SuspectTable::default();
        let now = Instant::now();
        let rests = |pid| ["ksm_stat", "smaps", "stat", "exe"].map(|file| suspects.rests_for(pid, file, now));
        suspects.record_silence(7, "cmdline", now);
        assert_eq!(rests(7), [true, true, false, false]);
        suspects.record_silence(8, "stat", now);
        assert_eq!((rests(8), rests(9)), ([true; 4], [false; 4]));
    }

    #[test]
    fn an_answer_that_needs_the_same_lock_ends_the_suspicion() {
        let is_cleared = |silent, answered| {
            let suspects = SuspectTable::default();
            suspects.record_silence(7, silent, Instant::now());
            suspects.record_answer(7, answered);
            !suspects.has(7)
        };
        assert!(
            is_cleared("cmdline", "ksm_stat") && is_cleared("smaps", "cmdline") && is_cleared("ns/user", "stat")
        );
        assert!(!is_cleared("cmdline", "stat") && !is_cleared("exe", "ksm_stat") && !is_cleared("stat", "exe"));
    }

    #[test]
    fn suspects_have_their_turns_by_the_ends_of_their_pauses() {
        let suspects = SuspectTable::default();
        let now = Instant::now();
        for (pid, second) in [(7, 2), (8, 1), (9, 60)] {
            suspects.record_silence(pid, "stat", now + Duration::from_secs(second));
        }
        let due = |second| {
            let due = suspects.list_due([6, 7, 8, 9, 7].into_iter(), now + Duration::from_secs(second));
            due.into_iter().map(|due| due.pid).collect::<Vec<u32>>()
        };
        assert_eq!([due(0), due(2), due(20)], [vec![], vec![8], vec![8, 7]]);
        suspects.record_silence(8, "stat", now + Duration::from_secs(20));
        assert_eq!(due(20), [7]);
    }

    #[test]
    fn an_account_has_the_suspects_of_the_last_minute_until_they_answer() {
        let suspects = SuspectTable::default();
        let now = Instant::now();
        for pid in [7, 8, 9] {
            suspects.record_silence(pid, "stat", now);
            suspects.record_account(pid, Some(pid / 9));
        }
        suspects.record_account(10, Some(0));
        let count =
            |second| [0, 1, 2].map(|uid| suspects.count_silent(Some(uid), now + Duration::from_secs(second)));
        assert_eq!((count(0), count(61)), ([2, 1, 0], [0, 0, 0]));
        suspects.record_answer(8, "stat");
        assert_eq!(count(0), [1, 1, 0]);
        suspects.record_silence(7, "stat", now);
        assert_eq!(count(0), [1, 1, 0], "the account stays");
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let suspects = SuspectTable::default();
        let now = Instant::now();
        (0..MOST as u32 + 10)
            .for_each(|pid| suspects.record_silence(pid, "stat", now + Duration::from_secs(u64::from(pid))));
        assert_eq!(suspects.all().len(), MOST);
        assert!(suspects.has(MOST as u32 + 9) && !suspects.has(3));
    }
}
