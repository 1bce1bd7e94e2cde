//! Reading files whose processes may block the reader, for many processes at once.
//!
//! On the live host a [`ProcessReader`] reads them, and the total wait of one sample is bounded. A process that did not answer
//! is read after all others, and only few such processes of each user in one sample.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::proc_dir::ProcDir;
use super::silences::{FileAnswer, ProcessAccess, SilenceShares};
use crate::proc_file::{self, UnansweredRead};
use crate::reader::{ProcessReader, ReadPatience, SUSPECTS, SuspectAccount, WantedFile};
use crate::root::Root;

/// The longest wait for one process.
const STALL: Duration = Duration::from_millis(5);

/// Time limit of one sample's reading. A host that is short of CPU delays the sample, as it delays all programs.
const LONGEST: Duration = Duration::from_secs(2);

/// Quota of command-line bytes per user, for each [`LINES_EVERY`] and for the first sample. Later samples read the
/// others. A hypervisor's line has some kilobytes. But all of an ordinary user's many processes may have lines of the
/// longest permitted length, and change them all the time.
const LINES: u64 = 1 << 20;
const LINES_AT_FIRST: u64 = 64 << 20;
pub(super) const LINES_EVERY: Duration = Duration::from_secs(1);

/// The part of its user's quota that one process uses: a monitor that was taken over may execute programs, or change its
/// name, without end.
const LINES_OF_ONE: u64 = 4;

/// Least quota that a command line uses. Starting a read costs time too, so at most 64 of a user's are read per period.
const LINE_LEAST: u64 = 16 << 10;

/// Bytes that are read of a file with one record. `stat` and `ksm_stat` have a few hundred.
const RECORD: u64 = 4096;

/// The processes of the live host, for one call.
struct LiveProcesses<'a> {
    proc: &'a ProcDir,
    reader: &'a mut ProcessReader,
    until: Instant,
}

impl ProcessAccess for LiveProcesses<'_> {
    fn read(&mut self, requests: &[WantedFile<'_>]) -> Vec<Option<io::Result<Vec<u8>>>> {
        self.reader.read_all(requests, patience(self.until))
    }

    fn find_account(&self, pid: u32) -> SuspectAccount {
        find_account(self.proc, pid)
    }

    fn check_process(&self, pid: u32) -> io::Result<()> {
        self.proc.process(pid).map(drop)
    }
}

/// A reader of processes' files within the time limit of a sample.
#[derive(Debug)]
pub(super) struct SampleReader {
    reader: Option<ProcessReader>,
    until: Instant,
    shares: SilenceShares,
    /// Remaining quota of command-line bytes, for each user.
    lines: UserBudget,
    /// Time of the next refill of the quota.
    refill: Duration,
    /// A process that does not answer one read, in a tree of files.
    #[cfg(test)]
    pub(super) silent_once: Option<u32>,
}

/// A quota of bytes for each accountable uid. One user's processes use up no other's.
#[derive(Debug, Default)]
struct UserBudget {
    each: u64,
    left: BTreeMap<Option<u32>, u64>,
    /// Bytes by PID.
    used: BTreeMap<u32, u64>,
}

impl UserBudget {
    fn new(each: u64) -> Self {
        Self { each, ..Self::default() }
    }

    /// Returns true if a process has nothing left of its part of the quota, or its user of the quota.
    fn is_used_up(&self, user: Option<u32>, pid: u32) -> bool {
        self.left.get(&user).copied().unwrap_or(self.each) == 0
            || self.used.get(&pid).is_some_and(|used| *used >= self.each / LINES_OF_ONE)
    }

    fn charge(&mut self, user: Option<u32>, pid: u32, bytes: u64) {
        let left = self.left.entry(user).or_insert(self.each);
        *left = left.saturating_sub(bytes);
        let used = self.used.entry(pid).or_default();
        *used = used.saturating_add(bytes);
    }
}

impl SampleReader {
    pub(super) fn new(root: &Root) -> Self {
        let reader = root.is_host().then(ProcessReader::default);
        Self {
            reader,
            until: Instant::now(),
            shares: SilenceShares::default(),
            lines: UserBudget::default(),
            refill: Duration::ZERO,
            #[cfg(test)]
            silent_once: None,
        }
    }

    /// Starts the time of a sample, or of a glance between two samples.
    pub(super) fn begin(&mut self, is_first: bool, now: Duration) {
        self.until = Instant::now() + LONGEST;
        self.shares.begin(is_first);
        if is_first || now >= self.refill {
            self.lines = UserBudget::new(if is_first { LINES_AT_FIRST } else { LINES });
            self.refill = now + LINES_EVERY;
        }
    }

    /// Returns true if the time of this sample is over.
    pub(super) fn is_late(&self) -> bool {
        self.reader.is_some() && (self.shares.are_used_up() || Instant::now() >= self.until)
    }

    /// Reads small files of processes, in their order. Files of one process stand side by side.
    pub(super) fn read_files(&mut self, proc: &ProcDir, wants: &[(u32, &'static str)]) -> Vec<FileAnswer> {
        let Some(reader) = &mut self.reader else {
            let read = |(pid, file): &(u32, &str)| FileAnswer::Answer(read_here(proc, *pid, file, RECORD));
            return wants.iter().map(read).collect();
        };
        let requests: Vec<WantedFile<'_>> =
            wants.iter().map(|(pid, file)| WantedFile { pid: *pid, file, offset: 0, most: RECORD }).collect();
        self.shares.read_files(&SUSPECTS, &mut LiveProcesses { proc, reader, until: self.until }, &requests)
    }

    /// Reads a command line. Returns `None` to defer it: the quota of the user or the process is used up, the user's share of
    /// waits is, or the sample's time ended before its turn.
    pub(super) fn command_line(&mut self, proc: &ProcDir, pid: u32) -> Option<io::Result<Vec<u8>>> {
        const FILE: &str = "cmdline";
        if self.is_late() || SUSPECTS.rests(pid, Instant::now()) {
            return None;
        }
        let user = find_account(proc, pid);
        if self.lines.is_used_up(user, pid) || self.shares.is_limited(user) {
            return None;
        }
        let mut bytes = Vec::new();
        let mut length = 0;
        let outcome = self.each_piece(proc, pid, FILE, |piece| {
            length += piece.len() as u64;
            bytes.extend_from_slice(piece);
            ControlFlow::Continue(())
        });
        let is_late =
            |error: &io::Error| error.kind() == io::ErrorKind::TimedOut && UnansweredRead::find_in(error).is_none();
        if outcome.as_ref().is_err_and(is_late) {
            // The end of the sample's time, and nothing that the process said.
            return None;
        }
        self.lines.charge(user, pid, length.max(LINE_LEAST));
        Some(outcome.and_then(|()| Ok(proc_file::check_items(&bytes, pid, FILE)?)).map(|()| bytes))
    }

    /// Reads another file of a process piece by piece, within its budget, until `take` breaks off.
    ///
    /// # Errors
    /// The file can't be read, is over its budget, or does not answer.
    pub(super) fn each_piece(
        &mut self,
        proc: &ProcDir,
        pid: u32,
        file: &str,
        mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> io::Result<()> {
        #[cfg(test)]
        if self.silent_once == Some(pid) {
            self.silent_once = None;
            return Err(UnansweredRead::new(pid, file).into());
        }
        let most = proc_file::budget(file);
        let mut length = 0;
        let mut within = |piece: &[u8]| {
            length += piece.len() as u64;
            if length > most { ControlFlow::Continue(()) } else { take(piece) }
        };
        match &mut self.reader {
            None => {
                let _ = within(&read_here(proc, pid, file, most.saturating_add(1))?);
            }
            Some(_)
                if self.shares.are_used_up()
                    || SUSPECTS.rests(pid, Instant::now())
                    || self.shares.is_held_back(pid, || find_account(proc, pid)) =>
            {
                return Err(UnansweredRead::new(pid, file).into());
            }
            Some(reader) => {
                let want = WantedFile { pid, file, offset: 0, most: most.saturating_add(1) };
                reader.each_piece(want, patience(self.until), within).inspect_err(|error| {
                    if let Some(silent) = UnansweredRead::find_in(error) {
                        self.shares.count_silence(&SUSPECTS, silent, Instant::now(), || find_account(proc, pid));
                    }
                })?;
                SUSPECTS.record_answer(pid, file);
            }
        }
        if length > most { Err(proc_file::OverBudget::new(pid, file, most, "bytes").into()) } else { Ok(()) }
    }

    /// Returns the pause of a process that was held back.
    pub(super) fn held_back_pause(&self, pid: u32) -> Duration {
        self.shares.held_back_pause(pid)
    }

    /// Returns the remaining back-off of a process that did not answer.
    pub(super) fn rest(pid: u32) -> Duration {
        SUSPECTS.rest(pid, Instant::now())
    }
}

/// Returns the patience with one process, within the time of a sample.
fn patience(until: Instant) -> ReadPatience {
    ReadPatience { until, stuck: 1, ..ReadPatience::new(STALL, LONGEST) }
}

/// Looks up the accountable uid of a process; `None` if it has ended, or can't be told.
fn find_account(proc: &ProcDir, pid: u32) -> SuspectAccount {
    proc.process(pid).ok()?.accountable_uid()
}

fn read_here(proc: &ProcDir, pid: u32, file: &str, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::from(proc.open_file(pid, file)?).take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_changes_its_name_without_end_keeps_no_other_of_its_user_from_being_named() {
        let tree = tempfile::tempdir().unwrap();
        for pid in [71_007, 71_008] {
            let directory = tree.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("status"), "Uid:\t1000\t1000\t1000\t1000\n").unwrap();
            std::fs::write(directory.join("cmdline"), vec![b'x'; 200 << 10]).unwrap();
        }
        let root = Root::at(tree.path());
        let (proc, mut asked) = (ProcDir::open(&root).unwrap(), SampleReader::new(&root));
        let mut read = |pid, second| {
            asked.begin(false, Duration::from_secs(second));
            asked.command_line(&proc, pid).is_some()
        };
        let read_of_one = (0..100).filter(|_| read(71_007, 1)).count();
        assert_eq!(read_of_one, 2, "a quarter of a mebibyte, and what the last one was longer");
        assert!(read(71_008, 1), "the other has its part");
        assert!(read(71_007, 2), "in the next second");
    }
}
