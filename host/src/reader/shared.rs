//! Idle readers kept between calls, for files that are read occasionally.
//!
//! A reader's child ends with the thread that forked it, at any moment (`PR_SET_PDEATHSIG`). So each thread uses its
//! own readers: with another thread's, a reply could end half way.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::{ProcessReader, ReadPatience, SUSPECTS, WantedFile};
use crate::proc_file::{OverBudget, UnansweredRead, budget, check_items};

/// The most idle readers.
const KEPT: usize = 2;

/// Time limits of one file, and of all of a long one.
const STALL: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(20);

/// Time limit of each of many processes.
const STALL_OF_ONE: Duration = Duration::from_millis(5);

/// Idle readers with their threads, the one used last at the end.
static IDLE: Mutex<Vec<(ThreadId, ProcessReader)>> = Mutex::new(Vec::new());

/// Reads a whole file of a process, within its budget.
///
/// # Errors
/// The file can't be read, is longer ([`OverBudget::of`]), or does not answer ([`UnansweredRead::of`]).
pub fn read(pid: u32, file: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    each_piece(pid, file, |piece| {
        bytes.extend_from_slice(piece);
        ControlFlow::Continue(())
    })?;
    check_items(&bytes, pid, file)?;
    Ok(bytes)
}

/// Reads a small file of many processes. The error of a process that does not answer, or is in its back-off, is
/// [`UnansweredRead`].
pub fn read_each<'a>(pids: &[u32], file: &'a str) -> Vec<(u32, io::Result<Vec<u8>>)> {
    let now = Instant::now();
    let (resting, asked): (Vec<u32>, Vec<u32>) = pids.iter().partition(|pid| SUSPECTS.rests(**pid, now));
    let wants: Vec<WantedFile<'a>> =
        asked.iter().map(|pid| WantedFile { pid: *pid, file, offset: 0, most: budget(file) }).collect();
    let answers = with_reader(|reader| reader.read_all(&wants, ReadPatience::new(STALL_OF_ONE, LONGEST)));
    let silent = |pid: u32| (pid, Err(UnansweredRead::new(pid, file).into()));
    let told = asked.into_iter().zip(answers).map(|(pid, answer)| {
        let Some(answer) = answer else { return silent(pid) };
        record_answer(pid, answer.as_ref().err());
        (pid, answer)
    });
    let told: Vec<(u32, io::Result<Vec<u8>>)> = told.collect();
    resting.into_iter().map(silent).chain(told).collect()
}

/// Reads a file of a process piece by piece, without holding a long one in memory, until `take` breaks off.
///
/// # Errors
/// As [`read`].
pub fn each_piece(pid: u32, file: &str, mut take: impl FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<()> {
    if SUSPECTS.rests(pid, Instant::now()) {
        return Err(UnansweredRead::new(pid, file).into());
    }
    let most = budget(file);
    let mut length = 0;
    let want = WantedFile { pid, file, offset: 0, most: most.saturating_add(1) };
    let outcome = with_reader(|reader| {
        reader.each_piece(want, ReadPatience::new(STALL, LONGEST), |piece| {
            length += piece.len() as u64;
            // The child reads one byte more at most.
            if length > most { ControlFlow::Continue(()) } else { take(piece) }
        })
    });
    record_answer(pid, outcome.as_ref().err());
    outcome?;
    if length > most { Err(OverBudget::new(pid, file, most, "bytes").into()) } else { Ok(()) }
}

/// Returns for each of `others` if it has one memory map with process `pid`.
///
/// # Errors
/// As of [`ProcessReader::compare_memory`].
pub fn compare_memory(pid: u32, others: &[u32]) -> io::Result<Vec<bool>> {
    with_reader(|reader| reader.compare_memory(pid, others, ReadPatience::new(STALL_OF_ONE, LONGEST)))
}

/// Calls `work` with a reader of this thread.
fn with_reader<T>(work: impl FnOnce(&mut ProcessReader) -> T) -> T {
    let idle = || IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let here = thread::current().id();
    let own = {
        let mut idle = idle();
        idle.iter().rposition(|(thread, _)| *thread == here).map(|at| idle.remove(at).1)
    };
    let mut reader = own.unwrap_or_default();
    let outcome = work(&mut reader);
    let oldest = {
        let mut idle = idle();
        idle.push((here, reader));
        (idle.len() > KEPT).then(|| idle.remove(0))
    };
    // Its child is ended without the lock.
    drop(oldest);
    outcome
}

/// Records that a process has answered or not.
fn record_answer(pid: u32, error: Option<&io::Error>) {
    if error.is_some_and(|error| UnansweredRead::find_in(error).is_some()) {
        SUSPECTS.record_silence(pid, Instant::now());
    } else if SUSPECTS.has(pid) {
        SUSPECTS.clear(pid);
    }
}
