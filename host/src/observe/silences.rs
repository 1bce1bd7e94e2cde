//! Reading files of many processes, with a share of the waits for silent ones for each user.
//!
//! A wait for a process that does not answer takes some milliseconds, so a sample has few of them. Any user can have a
//! hundred such processes. So each accountable uid has a share of a sample's waits. At its share its other processes are
//! left to later samples, and those of all others are read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use super::schedule::spread;
use crate::proc_file::UnansweredRead;
use crate::reader::{SuspectAccount, SuspectTable, WantedFile};

/// Silent processes after which a sample reads no more; the next sample reads the others.
const OF_ALL: usize = 4;

/// Silent processes of one account after which a sample reads no more of its processes.
const OF_ONE: usize = 2;

/// Limits of the first sample, which reads every process.
const OF_ALL_AT_FIRST: usize = 100;
const OF_ONE_AT_FIRST: usize = 25;

/// Silent processes of one account from which on it is on probation: a sample waits for one of them.
const PROBATION: usize = 8;

/// Silent processes that one call and one sample read again, one of each account.
const RETRIES_OF_CALL: usize = 2;
const RETRIES: usize = 3;

/// The most accounts whose last retry is known.
const MOST_TURNS: usize = 1024;

/// The pause of a process that was held back, for each one of its sample, and the longest.
const HELD_BACK_EACH: Duration = Duration::from_millis(250);
const HELD_BACK_LONGEST: Duration = Duration::from_secs(60);

/// The outcome of reading a process's file.
#[derive(Debug)]
pub(super) enum FileAnswer {
    /// The file's bytes, or the kernel's error.
    Answer(io::Result<Vec<u8>>),
    /// The process did not answer.
    Nothing(UnansweredRead),
    /// The sample's time ended before its turn.
    NotAsked,
    /// Other processes of its user have used up the user's share of this sample.
    HeldBack,
}

/// Access to processes, as reading by share needs it.
pub(super) trait ProcessAccess {
    /// Reads files until a process does not answer. Those after that process are `None`.
    fn read(&mut self, requests: &[WantedFile<'_>]) -> Vec<Option<io::Result<Vec<u8>>>>;

    /// Looks up the accountable uid of a process.
    fn find_account(&self, pid: u32) -> SuspectAccount;

    /// Checks that a process has not ended, without an answer of its own.
    ///
    /// # Errors
    /// It has ended.
    fn check_process(&self, pid: u32) -> io::Result<()>;

    /// Returns the present time.
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// The waits of one sample for silent processes, and the accounts that they count to.
#[derive(Debug, Default)]
pub(super) struct SilenceShares {
    left: usize,
    of_one: usize,
    probation: usize,
    /// The silent processes of each account.
    silent: BTreeMap<SuspectAccount, usize>,
    /// The accounts at their share.
    limited: BTreeSet<SuspectAccount>,
    /// The accounts of processes, as far as this sample has looked them up.
    accounts: BTreeMap<u32, SuspectAccount>,
    /// The accounts of which this sample has read a silent process again.
    retried: BTreeSet<SuspectAccount>,
    /// The processes that this sample has held back.
    held_back: u32,
    /// The number of the sample, and of the one in which each account had its last retry.
    sample: u64,
    turns: BTreeMap<SuspectAccount, u64>,
}

impl SilenceShares {
    /// Begins a sample.
    pub(super) fn begin(&mut self, is_first: bool) {
        let (left, of_one, probation) = match is_first {
            true => (OF_ALL_AT_FIRST, OF_ONE_AT_FIRST, usize::MAX),
            false => (OF_ALL, OF_ONE, PROBATION),
        };
        let mut turns = std::mem::take(&mut self.turns);
        if turns.len() > MOST_TURNS {
            turns.clear();
        }
        *self = Self { left, of_one, probation, turns, sample: self.sample + 1, ..Self::default() };
    }

    /// Returns true if this sample waits for no more processes of any user.
    pub(super) fn are_used_up(&self) -> bool {
        self.left == 0
    }

    /// Returns true if this sample reads no more processes of this account.
    pub(super) fn is_limited(&self, account: SuspectAccount) -> bool {
        self.limited.contains(&account)
    }

    /// Returns true if this sample reads no more of the user of this process. Only then accounts are looked up.
    pub(super) fn is_held_back(&mut self, pid: u32, find_account: impl FnOnce() -> SuspectAccount) -> bool {
        !self.limited.is_empty() && {
            let account = *self.accounts.entry(pid).or_insert_with(find_account);
            self.is_limited(account)
        }
    }

    /// Returns the pause of a process that was held back. It grows with their number, so that they do not fill each sample.
    pub(super) fn held_back_pause(&self, pid: u32) -> Duration {
        spread(pid, (HELD_BACK_EACH * self.held_back).min(HELD_BACK_LONGEST))
    }

    /// Records that a process did not answer.
    pub(super) fn count_silence(
        &mut self,
        suspects: &SuspectTable,
        silent: &UnansweredRead,
        now: Instant,
        find_account: impl FnOnce() -> SuspectAccount,
    ) {
        // Before its account is looked up: that reads nothing then for which the process would be waited for again.
        suspects.record_silence(silent.pid, &silent.file, now);
        let account = *self.accounts.entry(silent.pid).or_insert_with(find_account);
        suspects.record_account(silent.pid, account);
        let is_on_probation = suspects.count_silent(account, now) >= self.probation;
        let count = self.silent.entry(account).or_default();
        *count += 1;
        if is_on_probation || *count >= self.of_one {
            self.limited.insert(account);
        }
        self.left = self.left.saturating_sub(1);
    }

    /// Reads small files of processes, in their order. Files of one process stand side by side.
    pub(super) fn read_files(
        &mut self,
        suspects: &SuspectTable,
        host: &mut impl ProcessAccess,
        requests: &[WantedFile<'_>],
    ) -> Vec<FileAnswer> {
        let mut told: Vec<FileAnswer> = requests.iter().map(|_| FileAnswer::NotAsked).collect();
        let chosen = self.choose_suspects(suspects, &*host, requests);
        let (mut asked, mut due) = (Vec::with_capacity(requests.len()), Vec::new());
        for (at, (request, answer)) in requests.iter().zip(&mut told).enumerate() {
            let WantedFile { pid, file, .. } = *request;
            if !suspects.has(pid) {
                asked.push(at);
                continue;
            }
            if chosen.contains(&pid) {
                due.push(at);
            }
            // That a process has ended can be told without its answer.
            *answer = match host.check_process(pid) {
                Ok(()) => FileAnswer::Nothing(suspects.unanswered(pid, file)),
                Err(error) => FileAnswer::Answer(Err(error)),
            };
        }
        asked.append(&mut due);
        loop {
            if !self.limited.is_empty() {
                asked.retain(|at| !self.hold_back(suspects, &*host, requests.get(*at), told.get_mut(*at)));
            }
            if asked.is_empty() || self.are_used_up() {
                return told;
            }
            let batch: Vec<WantedFile<'_>> = asked.iter().filter_map(|at| requests.get(*at)).copied().collect();
            let mut silent: Option<UnansweredRead> = None;
            let mut unread = Vec::new();
            for ((at, request), answer) in asked.into_iter().zip(&batch).zip(host.read(&batch)) {
                let Some(answer) = answer else {
                    unread.push(at);
                    continue;
                };
                let unanswered = answer.as_ref().err().and_then(UnansweredRead::find_in).cloned();
                let answer = match unanswered {
                    // The other files of such a process are not asked for.
                    Some(unanswered) => FileAnswer::Nothing(silent.get_or_insert(unanswered).clone()),
                    None => {
                        suspects.record_answer(request.pid, request.file);
                        FileAnswer::Answer(answer)
                    }
                };
                if let Some(place) = told.get_mut(at) {
                    *place = answer;
                }
            }
            let Some(silent) = silent else { return told };
            let now = host.now();
            self.count_silence(suspects, &silent, now, || host.find_account(silent.pid));
            asked = unread;
        }
    }

    /// Returns true, with the answer, if a request is held back. A silent process stays one.
    fn hold_back(
        &mut self,
        suspects: &SuspectTable,
        host: &impl ProcessAccess,
        request: Option<&WantedFile<'_>>,
        answer: Option<&mut FileAnswer>,
    ) -> bool {
        let (Some(request), Some(answer)) = (request, answer) else { return true };
        let is_held_back = self.is_held_back(request.pid, || host.find_account(request.pid));
        if is_held_back && !suspects.has(request.pid) {
            self.held_back += 1;
            *answer = FileAnswer::HeldBack;
        }
        is_held_back
    }

    /// Returns the silent processes to be read again: one of each account, the one whose back-off ended first, and first
    /// those of the accounts that have waited for longest.
    fn choose_suspects(
        &mut self,
        suspects: &SuspectTable,
        host: &impl ProcessAccess,
        requests: &[WantedFile<'_>],
    ) -> Vec<u32> {
        let mut first: BTreeMap<SuspectAccount, u32> = BTreeMap::new();
        for due in suspects.list_due(requests.iter().map(|request| request.pid), host.now()) {
            let account = due.account.unwrap_or_else(|| {
                let account = host.find_account(due.pid);
                suspects.record_account(due.pid, account);
                account
            });
            first.entry(account).or_insert(due.pid);
        }
        first.retain(|account, _| !self.limited.contains(account) && !self.retried.contains(account));
        let turn = |account| self.turns.get(account).copied().unwrap_or(0);
        let mut chosen: Vec<(u64, SuspectAccount, u32)> =
            first.iter().map(|(account, pid)| (turn(account), *account, *pid)).collect();
        chosen.sort_unstable();
        chosen.truncate(RETRIES_OF_CALL.min(RETRIES.saturating_sub(self.retried.len())));
        for (_, account, _) in &chosen {
            self.retried.insert(*account);
            self.turns.insert(*account, self.sample);
        }
        chosen.into_iter().map(|(_, _, pid)| pid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes of simulated users: PID 7_003 is of uid 7.
    struct SimulatedProcesses {
        silent: BTreeSet<u32>,
        now: Instant,
        waits: usize,
        lookups: std::cell::Cell<usize>,
    }

    impl SimulatedProcesses {
        fn with(silent: impl IntoIterator<Item = u32>) -> Self {
            let silent = silent.into_iter().collect();
            Self { silent, now: Instant::now(), waits: 0, lookups: std::cell::Cell::default() }
        }

        /// Returns the waits since the last call.
        fn take_waits(&mut self) -> usize {
            std::mem::take(&mut self.waits)
        }
    }

    impl ProcessAccess for SimulatedProcesses {
        fn read(&mut self, requests: &[WantedFile<'_>]) -> Vec<Option<io::Result<Vec<u8>>>> {
            let mut stuck: Option<u32> = None;
            let read = |request: &WantedFile<'_>| {
                let is_silent = self.silent.contains(&request.pid) && stuck.is_none_or(|pid| pid == request.pid);
                if is_silent {
                    self.waits += usize::from(stuck.is_none());
                    stuck = Some(request.pid);
                    return Some(Err(UnansweredRead::new(request.pid, request.file).into()));
                }
                stuck.is_none().then(|| Ok(b"text".to_vec()))
            };
            requests.iter().map(read).collect()
        }

        fn find_account(&self, pid: u32) -> SuspectAccount {
            self.lookups.set(self.lookups.get() + 1);
            Some(pid / 1000)
        }

        fn check_process(&self, _: u32) -> io::Result<()> {
            Ok(())
        }

        fn now(&self) -> Instant {
            self.now
        }
    }

    fn of_user(user: u32, count: u32) -> impl Iterator<Item = u32> + Clone {
        (0..count).map(move |number| user * 1000 + number)
    }

    /// Reads two files of each process in one sample. Returns the processes that have answered.
    fn sample(
        shares: &mut SilenceShares,
        suspects: &SuspectTable,
        host: &mut SimulatedProcesses,
        pids: impl IntoIterator<Item = u32>,
    ) -> BTreeSet<u32> {
        shares.begin(false);
        let wants: Vec<WantedFile<'_>> = pids
            .into_iter()
            .flat_map(|pid| ["ksm_stat", "stat"].map(|file| WantedFile { pid, file, offset: 0, most: 1 }))
            .collect();
        let told = shares.read_files(suspects, host, &wants);
        assert_eq!(told.len(), wants.len());
        let answered = wants.iter().zip(told).filter(|(_, answer)| matches!(answer, FileAnswer::Answer(Ok(_))));
        answered.map(|(want, _)| want.pid).collect()
    }

    #[test]
    fn a_hundred_silent_processes_of_one_user_delay_no_reading_of_another() {
        let (silent, others) = (of_user(7, 100), of_user(8, 50));
        let mut host = SimulatedProcesses::with(silent.clone());
        let (mut shares, suspects) = (SilenceShares::default(), SuspectTable::default());
        let mut waits = Vec::new();
        for _ in 0..200 {
            let answered = sample(&mut shares, &suspects, &mut host, silent.clone().chain(others.clone()));
            assert!(others.clone().all(|pid| answered.contains(&pid)), "each turn reads the other user's");
            waits.push(host.take_waits());
            host.now += Duration::from_secs(1);
        }
        assert_eq!(waits[..3], [2, 2, 2]);
        assert!(waits[PROBATION..].iter().all(|waits| *waits == 1), "on probation: {waits:?}");
        assert_eq!(of_user(7, 100).filter(|pid| suspects.has(*pid)).count(), 100, "each has had its turn");
    }

    #[test]
    fn processes_that_answer_again_end_their_users_probation() {
        let mut host = SimulatedProcesses::with(of_user(7, 20));
        let (mut shares, suspects) = (SilenceShares::default(), SuspectTable::default());
        for _ in 0..30 {
            sample(&mut shares, &suspects, &mut host, of_user(7, 20));
            host.now += Duration::from_secs(1);
        }
        host.silent.clear();
        let mut answered = BTreeSet::new();
        for _ in 0..200 {
            answered = sample(&mut shares, &suspects, &mut host, of_user(7, 20));
            host.now += Duration::from_secs(1);
        }
        assert_eq!(answered.len(), 20);
        host.silent = of_user(7, 20).collect();
        host.take_waits();
        sample(&mut shares, &suspects, &mut host, of_user(7, 20));
        assert_eq!(host.waits, OF_ONE);
    }

    #[test]
    fn a_users_suspect_is_read_again_when_its_pause_ends_however_many_another_user_has() {
        let mut host = SimulatedProcesses::with(of_user(7, 100));
        let (mut shares, suspects) = (SilenceShares::default(), SuspectTable::default());
        of_user(7, 100).for_each(|pid| suspects.record_silence(pid, "stat", host.now));
        host.now += Duration::from_secs(9);
        suspects.record_silence(8_000, "stat", host.now);
        let pids = || of_user(7, 100).chain([8_000]);
        assert!(
            sample(&mut shares, &suspects, &mut host, pids()).is_empty(),
            "no pause of the other user's has ended"
        );
        host.now += Duration::from_secs(1);
        assert_eq!(sample(&mut shares, &suspects, &mut host, pids()), [8_000].into());
        assert!(!suspects.has(8_000));
    }

    #[test]
    fn suspects_of_many_users_take_turns() {
        let pids: Vec<u32> = (1..=10).map(|user| user * 1000).collect();
        let mut host = SimulatedProcesses::with(pids.iter().copied().take(5));
        let (mut shares, suspects) = (SilenceShares::default(), SuspectTable::default());
        pids.iter().for_each(|pid| suspects.record_silence(*pid, "stat", host.now));
        host.now += Duration::from_secs(300);
        for _ in 0..pids.len().div_ceil(RETRIES_OF_CALL) {
            sample(&mut shares, &suspects, &mut host, pids.iter().copied());
        }
        assert_eq!(pids.iter().filter(|pid| suspects.has(**pid)).count(), 5, "each was asked once more");
        assert_eq!(host.waits, 5);
    }

    #[test]
    fn all_users_together_have_a_sample_wait_for_so_many() {
        let pids: Vec<u32> = (1..=100).map(|user| user * 1000).collect();
        let mut host = SimulatedProcesses::with(pids.iter().copied());
        let (mut shares, suspects) = (SilenceShares::default(), SuspectTable::default());
        for _ in 0..30 {
            sample(&mut shares, &suspects, &mut host, pids.iter().copied());
            let waits = host.take_waits();
            assert!((1..=OF_ALL).contains(&waits), "{waits}");
            host.now += Duration::from_secs(1);
        }
    }

    #[test]
    fn where_all_answer_no_account_is_looked_up_and_all_are_read_at_once() {
        let mut host = SimulatedProcesses::with([]);
        let (mut shares, suspects) = (SilenceShares::default(), SuspectTable::default());
        assert_eq!(sample(&mut shares, &suspects, &mut host, of_user(7, 100)).len(), 100);
        assert_eq!(host.lookups.get(), 0);
    }

    #[test]
    fn those_that_are_held_back_wait_for_longer_the_more_they_are() {
        let mut shares = SilenceShares::default();
        let longest = |shares: &SilenceShares| of_user(7, 100).map(|pid| shares.held_back_pause(pid)).max();
        assert_eq!(longest(&shares), Some(Duration::ZERO));
        shares.held_back = 100;
        let some = longest(&shares).unwrap();
        assert!(some > Duration::from_secs(20) && some <= Duration::from_secs(25), "{some:?}");
        shares.held_back = u32::MAX;
        assert!(longest(&shares).unwrap() <= HELD_BACK_LONGEST);
    }
}
