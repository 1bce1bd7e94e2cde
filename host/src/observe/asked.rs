//! Reading files whose processes may block the reader, for many processes at once.
//!
//! On the live host a [`ProcessReader`] reads them, and the total wait of one sample is bounded. A process that did not answer
//! is read after all others, and only few such processes in one sample.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::proc_dir::ProcDir;
use crate::proc_file::{self, UnansweredRead};
use crate::reader::{ProcessReader, ReadPatience, SUSPECTS, WantedFile};
use crate::root::Root;

/// The longest wait for one process.
const STALL: Duration = Duration::from_millis(5);

/// Unanswered processes after which a sample reads no more; the next sample reads the others. A host that is short of
/// CPU delays the sample, as it delays all programs.
const STUCK: usize = 3;

/// Unanswered processes after which the first sample, which reads every process, reads no more.
const STUCK_AT_FIRST: usize = 100;

/// Time limit of one sample's reading.
const LONGEST: Duration = Duration::from_secs(2);

/// Retries per sample of processes that did not answer before.
const SUSPECTS_ASKED: usize = 1;

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

/// The outcome of reading a process's file.
#[derive(Debug)]
pub(super) enum FileAnswer {
    /// The file's bytes, or the kernel's error.
    Answer(io::Result<Vec<u8>>),
    /// The process did not answer.
    Nothing(UnansweredRead),
    /// The sample's time ended before its turn.
    NotAsked,
}

/// A reader of processes' files within the time limit of a sample.
#[derive(Debug)]
pub(super) struct SampleReader {
    reader: Option<ProcessReader>,
    until: Instant,
    stuck: usize,
    suspects: usize,
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
            stuck: STUCK,
            suspects: 0,
            lines: UserBudget::default(),
            refill: Duration::ZERO,
            #[cfg(test)]
            silent_once: None,
        }
    }

    /// Starts the time of a sample, or of a glance between two samples.
    pub(super) fn begin(&mut self, is_first: bool, now: Duration) {
        self.until = Instant::now() + LONGEST;
        self.stuck = if is_first { STUCK_AT_FIRST } else { STUCK };
        self.suspects = 0;
        if is_first || now >= self.refill {
            self.lines = UserBudget::new(if is_first { LINES_AT_FIRST } else { LINES });
            self.refill = now + LINES_EVERY;
        }
    }

    /// Returns true if the time of this sample is over.
    pub(super) fn is_late(&self) -> bool {
        self.reader.is_some() && (self.stuck == 0 || Instant::now() >= self.until)
    }

    /// Reads small files of processes, in their order. Files of one process stand side by side.
    pub(super) fn read_files(&mut self, proc: &ProcDir, wants: &[(u32, &'static str)]) -> Vec<FileAnswer> {
        let Some(reader) = &mut self.reader else {
            let read = |(pid, file): &(u32, &str)| FileAnswer::Answer(read_here(proc, *pid, file, RECORD));
            return wants.iter().map(read).collect();
        };
        let now = Instant::now();
        let (mut asked, mut due) = (Vec::with_capacity(wants.len()), Vec::new());
        let mut told: Vec<FileAnswer> = wants.iter().map(|_| FileAnswer::NotAsked).collect();
        let admitted = match self.suspects < SUSPECTS_ASKED {
            true => SUSPECTS.most_due(wants.iter().map(|(pid, _)| *pid), now),
            false => None,
        };
        self.suspects += usize::from(admitted.is_some());
        for (at, ((pid, file), answer)) in wants.iter().zip(&mut told).enumerate() {
            if !SUSPECTS.has(*pid) {
                asked.push(at);
            } else if admitted == Some(*pid) {
                due.push(at);
            } else {
                // That a process has ended can be told without its answer.
                *answer = match proc.process(*pid) {
                    Ok(_) => FileAnswer::Nothing(SUSPECTS.unanswered(*pid, file)),
                    Err(error) => FileAnswer::Answer(Err(error)),
                };
            }
        }
        asked.append(&mut due);
        let requests: Vec<WantedFile<'_>> = asked
            .iter()
            .filter_map(|at| wants.get(*at))
            .map(|(pid, file)| WantedFile { pid: *pid, file, offset: 0, most: RECORD })
            .collect();
        let answers = reader.read_all(&requests, patience(self.until, self.stuck));
        let mut last_silent: Option<UnansweredRead> = None;
        for ((at, request), answer) in asked.into_iter().zip(&requests).zip(answers) {
            let mut answer = conclude(request, answer);
            if let FileAnswer::Nothing(unanswered) = &mut answer {
                match &last_silent {
                    // The other files of such a process are not asked for.
                    Some(last) if last.pid == request.pid => *unanswered = last.clone(),
                    _ => {
                        self.stuck = self.stuck.saturating_sub(1);
                        SUSPECTS.record_silence(request.pid, request.file, Instant::now());
                        last_silent = Some(unanswered.clone());
                    }
                }
            }
            if let Some(place) = told.get_mut(at) {
                *place = answer;
            }
        }
        told
    }

    /// Reads a command line. Returns `None` to defer it: the quota of the user or the process is used up, or the sample's
    /// time ended before its turn.
    pub(super) fn command_line(&mut self, proc: &ProcDir, pid: u32) -> Option<io::Result<Vec<u8>>> {
        const FILE: &str = "cmdline";
        if self.is_late() || SUSPECTS.rests(pid, Instant::now()) {
            return None;
        }
        let user = proc.process(pid).ok().and_then(|directory| directory.accountable_uid());
        if self.lines.is_used_up(user, pid) {
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
            Some(_) if self.stuck == 0 || SUSPECTS.rests(pid, Instant::now()) => {
                return Err(UnansweredRead::new(pid, file).into());
            }
            Some(reader) => {
                let want = WantedFile { pid, file, offset: 0, most: most.saturating_add(1) };
                reader.each_piece(want, patience(self.until, 1), within).inspect_err(|error| {
                    if UnansweredRead::find_in(error).is_some() {
                        self.stuck = self.stuck.saturating_sub(1);
                        SUSPECTS.record_silence(pid, file, Instant::now());
                    }
                })?;
                SUSPECTS.record_answer(pid, file);
            }
        }
        if length > most { Err(proc_file::OverBudget::new(pid, file, most, "bytes").into()) } else { Ok(()) }
    }

    /// Returns the remaining back-off of a process that did not answer.
    pub(super) fn rest(pid: u32) -> Duration {
        SUSPECTS.rest(pid, Instant::now())
    }
}

/// Returns the patience with one process, within the time of a sample.
fn patience(until: Instant, stuck: usize) -> ReadPatience {
    ReadPatience { until, stuck, ..ReadPatience::new(STALL, LONGEST) }
}

fn conclude(request: &WantedFile<'_>, answer: Option<io::Result<Vec<u8>>>) -> FileAnswer {
    let Some(answer) = answer else { return FileAnswer::NotAsked };
    if let Some(unanswered) = answer.as_ref().err().and_then(UnansweredRead::find_in) {
        return FileAnswer::Nothing(unanswered.clone());
    }
    SUSPECTS.record_answer(request.pid, request.file);
    FileAnswer::Answer(answer)
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
