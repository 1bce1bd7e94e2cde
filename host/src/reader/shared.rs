//! Idle readers kept between calls of any thread, for files that are read occasionally.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::child::RequestForm;
use super::silence::SilenceLimit;
use super::suspects::SuspectTable;
use super::{FileStatus, NamespaceOwner, ProcessReader, ReadPatience, SUSPECTS, WantedFile};
use crate::proc_file::{OverBudget, UnansweredRead, budget, check_items, lossy};

/// The most idle readers.
const KEPT: usize = 2;

/// Time limits of one file, and of all of a long one.
const STALL: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(20);

/// Time limit of each of many processes.
const STALL_OF_ONE: Duration = Duration::from_millis(5);

/// Silent processes of all users after which a call reads no more, which is a wait of five seconds, and of one user after
/// which it reads no more of that user's.
const SILENT: usize = 1000;
const SILENT_OF_ONE: usize = 25;

/// The longest reply about a link: its target.
const LINK: u64 = 4096;

/// Processes that were asked for the owner of their namespace without an answer.
static SILENT_OWNERS: Mutex<SilenceLimit> = Mutex::new(SilenceLimit::new());

/// Idle readers, the one used last at the end.
static IDLE: Mutex<Vec<ProcessReader>> = Mutex::new(Vec::new());

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

/// Reads a small file of many processes. The error of a process that does not answer, is in its back-off, or whose user
/// has used up its share of the waits, is [`UnansweredRead`].
pub fn read_each<'a>(pids: &[u32], file: &'a str) -> Vec<(u32, io::Result<Vec<u8>>)> {
    let now = Instant::now();
    let (resting, asked): (Vec<u32>, Vec<u32>) = pids.iter().partition(|pid| SUSPECTS.rests_for(**pid, file, now));
    let wants: Vec<WantedFile<'a>> =
        asked.iter().map(|pid| WantedFile { pid: *pid, file, offset: 0, most: budget(file) }).collect();
    let limits = ReadPatience::new(STALL_OF_ONE, LONGEST);
    let patience = ReadPatience { stuck: SILENT, stuck_of_one: SILENT_OF_ONE, ..limits };
    let answers = with_reader(|reader| reader.read_all(&wants, patience));
    let silent = |pid: u32| (pid, Err(UnansweredRead::new(pid, file).into()));
    let told = asked.into_iter().zip(answers).map(|(pid, answer)| {
        let Some(answer) = answer else { return silent(pid) };
        record_answer(pid, file, answer.as_ref().err());
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
    if SUSPECTS.rests_for(pid, file, Instant::now()) {
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
    record_answer(pid, file, outcome.as_ref().err());
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

/// Returns the status of the file behind a link of a process, such as `exe` or `fd/7`. Its file system is not asked.
///
/// # Errors
/// There is none, or the process does not answer: [`UnansweredRead::find_in`].
pub fn file_status(pid: u32, link: &str) -> io::Result<FileStatus> {
    FileStatus::from_bytes(&ask_link(pid, link, RequestForm::Status)?)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the owner of the outermost user namespace between a process and this one; `None` if both have one namespace.
/// `account` pays if the process does not answer.
///
/// # Errors
/// As of [`file_status`]. An account with too many missing answers in this second has no more processes asked.
pub(super) fn namespace_owner(pid: u32, account: u32) -> io::Result<Option<NamespaceOwner>> {
    const LINK: &str = "ns/user";
    let limit = || SILENT_OWNERS.lock().unwrap_or_else(PoisonError::into_inner);
    // A process in its back-off costs nothing.
    let now = Instant::now();
    if SUSPECTS.rests_for(pid, LINK, now) || limit().is_reached(account, now) {
        return Err(UnansweredRead::new(pid, LINK).into());
    }
    let answer = ask_link(pid, LINK, RequestForm::Namespace);
    if answer.as_ref().is_err_and(|error| UnansweredRead::find_in(error).is_some()) {
        limit().count(account, Instant::now());
    }
    let bytes = answer?;
    if bytes.is_empty() {
        return Ok(None);
    }
    NamespaceOwner::from_bytes(&bytes).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the targets of links of a process, such as `fd/7`, in their order.
///
/// # Errors
/// The process does not answer, or is in its back-off. A link that has gone meanwhile is `None`.
pub fn links(pid: u32, links: &[String]) -> io::Result<Vec<Option<String>>> {
    let now = Instant::now();
    if let Some(link) = links.iter().find(|link| SUSPECTS.rests_for(pid, link, now)) {
        return Err(UnansweredRead::new(pid, link).into());
    }
    let wants: Vec<WantedFile<'_>> = links.iter().map(|link| want_link(pid, link)).collect();
    let answers =
        with_reader(|reader| reader.ask_links(&wants, RequestForm::Link, ReadPatience::new(STALL, LONGEST)));
    record_answers(&SUSPECTS, &wants, &answers);
    let target = |answer: Option<io::Result<Vec<u8>>>| match answer.ok_or(io::ErrorKind::TimedOut)? {
        Ok(bytes) => Ok(Some(lossy(bytes))),
        Err(error) if UnansweredRead::find_in(&error).is_some() => Err(error),
        Err(_) => Ok(None),
    };
    answers.into_iter().map(target).collect()
}

/// Records the answers to requests for one process. A process that did not answer is recorded once: the files after
/// the unanswered one were not asked for.
fn record_answers(suspects: &SuspectTable, wants: &[WantedFile<'_>], answers: &[Option<io::Result<Vec<u8>>>]) {
    for (want, answer) in wants.iter().zip(answers) {
        let Some(answer) = answer else { continue };
        if answer.as_ref().is_err_and(|error| UnansweredRead::find_in(error).is_some()) {
            return suspects.record_silence(want.pid, want.file, Instant::now());
        }
        suspects.record_answer(want.pid, want.file);
    }
}

fn want_link(pid: u32, link: &str) -> WantedFile<'_> {
    WantedFile { pid, file: link, offset: 0, most: LINK }
}

fn ask_link(pid: u32, link: &str, form: RequestForm) -> io::Result<Vec<u8>> {
    if SUSPECTS.rests_for(pid, link, Instant::now()) {
        return Err(UnansweredRead::new(pid, link).into());
    }
    let patience = ReadPatience::new(STALL_OF_ONE, LONGEST);
    let answer = with_reader(|reader| reader.ask_links(&[want_link(pid, link)], form, patience).pop().flatten());
    let answer = answer.ok_or(io::ErrorKind::TimedOut)?;
    record_answer(pid, link, answer.as_ref().err());
    answer
}

/// Calls `work` with an idle reader, or a new one.
fn with_reader<T>(work: impl FnOnce(&mut ProcessReader) -> T) -> T {
    let idle = || IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut reader = idle().pop().unwrap_or_default();
    let outcome = work(&mut reader);
    let oldest = {
        let mut idle = idle();
        idle.push(reader);
        (idle.len() > KEPT).then(|| idle.remove(0))
    };
    // Its child is ended without the lock.
    drop(oldest);
    outcome
}

/// Records that a process has answered or not.
fn record_answer(pid: u32, file: &str, error: Option<&io::Error>) {
    if error.is_some_and(|error| UnansweredRead::find_in(error).is_some()) {
        SUSPECTS.record_silence(pid, file, Instant::now());
    } else {
        SUSPECTS.record_answer(pid, file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_link_does_not_answer_is_left_alone_once_for_all_of_its_links() {
        let names: Vec<String> = (0..100).map(|number| format!("fd/{number}")).collect();
        let wants: Vec<WantedFile<'_>> = names.iter().map(|name| want_link(4_100_200, name)).collect();
        let answer = |at: usize| match at {
            0 => Some(Ok(b"/dev/null".to_vec())),
            1 => Some(Err(io::ErrorKind::NotFound.into())),
            _ => Some(Err(UnansweredRead::new(4_100_200, &names[2]).into())),
        };
        let suspects = SuspectTable::default();
        record_answers(&suspects, &wants, &(0..100).map(answer).collect::<Vec<_>>());
        let now = Instant::now();
        assert!(suspects.rests_for(4_100_200, "fd/0", now), "each link waits for one lock");
        assert!(suspects.rest(4_100_200, now) <= Duration::from_millis(250), "one silence, and not ninety-eight");
        record_answers(&suspects, &wants, &(0..100).map(|_| answer(0)).collect::<Vec<_>>());
        assert!(!suspects.has(4_100_200), "the link has answered");
        record_answers(&suspects, &wants, &[None]);
        assert!(!suspects.has(4_100_200), "one that was not asked has said nothing");
    }

    #[test]
    fn links_of_a_process_in_its_back_off_are_not_asked_for_and_others_are_recorded() {
        let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (pid, wanted) = (sleeper.id(), ["cwd".to_owned(), "fd/700".to_owned()]);
        SUSPECTS.record_silence(pid, "cwd", Instant::now() + LONGEST);
        let resting = links(pid, &wanted).unwrap_err();
        assert_eq!(UnansweredRead::find_in(&resting).unwrap().pid, pid);
        SUSPECTS.record_answer(pid, "cwd");
        SUSPECTS.record_silence(pid, "cwd", Instant::now() - LONGEST);
        let found = links(pid, &wanted).unwrap();
        assert_eq!(found, [std::fs::read_link("/proc/self/cwd").unwrap().to_str().map(str::to_owned), None]);
        assert!(!SUSPECTS.has(pid), "it has answered");
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
}
