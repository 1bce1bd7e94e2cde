//! Reading files of other processes in a child that can be killed, so that no process blocks ksmith.
//!
//! Most files under `/proc/PID` about memory take the lock of the process's memory map: `ksm_stat` (6.14 and later),
//! `cmdline`, `environ`, `smaps`, `smaps_rollup`, `numa_maps`, `pagemap`, `mem`, and `maps` before 6.17. An ordinary
//! user can hold that lock for ever, by a page of a file system of their own (FUSE). Only SIGKILL ends such a wait. So
//! a [`ProcessReader`] reads in a forked child.
//!
//! A process that executes a program holds a lock too (`exec_update_lock`), and for ever if it closes a file of such a
//! file system meanwhile. On Linux 6.18 all that needs the right to examine a process waits for that: `stat`, the
//! files about memory, links (`exe`, `root`, `fd/7`, `ns/user`) and kcmp(2). `status`, `statm`, `comm`, `cgroup`,
//! `schedstat`, `uid_map` and lists of descriptors wait for nothing.
//!
//! A child that waits for too long is killed, the process is reported as unanswered, and it is left alone with an
//! exponential back-off.

pub mod accountable;
mod child;
mod graves;
mod shared;
mod shares;
mod silence;
mod suspects;
mod walk;

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use self::child::{ADDRESSES, ENTRY, HEAD, REQUEST, ReaderChild, RequestForm};
pub use self::child::{FileStatus, NamespaceOwner, SampledPage, pids};
use self::graves::{Account, ReadAccounts};
pub use self::shared::{compare_memory, each_piece, file_status, links, read, read_each};
pub(crate) use self::shares::SilentAccounts;
pub(crate) use self::suspects::{SUSPECTS, SuspectAccount, SuspectTable};
use crate::proc_file::UnansweredRead;

/// Bytes of one read from the child: a pipe's size.
const HEARD: usize = 64 << 10;

/// The most requests in flight, and their bytes. They fit the socket, so that sending them does not wait for the child.
const UNDER_WAY: usize = 128;
const BYTES_UNDER_WAY: usize = 16 << 10;

/// Remaining replies from which on the parent waits for several at once: a wake-up for each costs more than to read it.
const FEW: usize = 4;

/// The wait for several replies. They fit the pipe.
const SOME_TIME: Duration = Duration::from_micros(300);

/// A range of a process's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedFile<'a> {
    /// The PID of the process.
    pub pid: u32,
    /// The name of the file under `/proc/PID`.
    pub file: &'a str,
    /// The offset of the first byte.
    pub offset: u64,
    /// The limit in bytes.
    pub most: u64,
}

/// Pages of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedPages<'a> {
    /// The PID of the process.
    pub pid: u32,
    /// The pages' addresses.
    pub addresses: &'a [u64],
}

/// A request to the child.
#[derive(Debug, Clone, Copy)]
struct ChildRequest<'a> {
    want: WantedFile<'a>,
    form: RequestForm,
    /// The addresses of the wanted pages, or the PIDs to compare with.
    addresses: &'a [u64],
}

impl<'a> ChildRequest<'a> {
    fn of_file(want: WantedFile<'a>, form: RequestForm) -> Self {
        Self { want, form, addresses: &[] }
    }

    /// Returns the requests for the pages of a process.
    fn of_pages(pages: &WantedPages<'a>) -> impl Iterator<Item = Self> + use<'a> {
        let pid = pages.pid;
        pages.addresses.chunks(ADDRESSES).map(move |addresses| {
            let want = WantedFile { pid, file: "mem", offset: 0, most: addresses.len() as u64 };
            Self { want, form: RequestForm::Pages, addresses }
        })
    }

    /// Returns the requests for the zero-mapped bytes of a process. `edges` has the starts and ends of ranges by turns.
    fn of_zero_mapped(pid: u32, edges: &'a [u64]) -> impl Iterator<Item = Self> {
        edges.chunks(ADDRESSES).map(move |addresses| {
            let want = WantedFile { pid, file: "pagemap", offset: 0, most: addresses.len() as u64 };
            Self { want, form: RequestForm::ZeroMapped, addresses }
        })
    }

    /// Returns the requests for a comparison of memory maps.
    fn of_same_memory(pid: u32, others: &'a [u64]) -> impl Iterator<Item = Self> {
        others.chunks(ADDRESSES).map(move |addresses| {
            let want = WantedFile { pid, file: "memory map", offset: pid.into(), most: addresses.len() as u64 };
            Self { want, form: RequestForm::SameMemory, addresses }
        })
    }

    /// Returns its encoded length in bytes.
    fn length(&self) -> usize {
        REQUEST + size_of_val(self.addresses)
    }

    /// Appends its encoding; `None` if the path is too long.
    fn write(&self, bytes: &mut Vec<u8>) -> Option<()> {
        let WantedFile { pid, file, offset, most } = self.want;
        let path = match self.form {
            RequestForm::Pages | RequestForm::ZeroMapped | RequestForm::SameMemory => pid.to_string(),
            _ => format!("{pid}/{file}"),
        };
        bytes.extend_from_slice(&child::request(&path, offset, most, self.form)?);
        bytes.extend(self.addresses.iter().flat_map(|address| address.to_ne_bytes()));
        Some(())
    }
}

/// Time limits of reading.
#[derive(Debug, Clone, Copy)]
pub struct ReadPatience {
    /// The longest wait for one file, without the time that the child waits for a CPU.
    pub stall: Duration,
    /// The deadline of the whole call.
    pub until: Instant,
    /// Unanswered processes after which no more files are read.
    pub stuck: usize,
    /// Unanswered processes of one accountable uid after which no more files of its processes are read.
    pub stuck_of_one: usize,
    /// Extra CPU time for the kernel's walk of a process's page tables, per resident GiB.
    pub walk: Duration,
}

impl ReadPatience {
    /// Creates limits of `stall` for each file and `all` for the whole call, and none for silent processes.
    pub fn new(stall: Duration, all: Duration) -> Self {
        Self {
            stall,
            until: Instant::now() + all,
            stuck: usize::MAX,
            stuck_of_one: usize::MAX,
            walk: walk::OF_A_GIB,
        }
    }
}

/// A reason for a missing reply.
#[derive(Debug)]
enum ReadFault {
    /// The process blocks the child.
    Stuck,
    /// The deadline has passed, and the process is not to blame.
    Late,
    /// The child has ended.
    Ended,
}

/// A reading child, with a buffer of its replies.
#[derive(Debug, Default)]
pub struct ProcessReader {
    child: Option<ReaderChild>,
    /// Bytes from the child. Those from `taken` on are unparsed.
    said: Vec<u8>,
    taken: usize,
}

impl ProcessReader {
    /// Reads small files, which hold one record each. The reply for a file is its bytes or an error, which may be
    /// [`UnansweredRead`]. `None` means that the deadline passed before its turn, that too many earlier reads of its
    /// user's memory still wait, or that too many other processes of its user did not answer.
    pub fn read_all(
        &mut self,
        wants: &[WantedFile<'_>],
        patience: ReadPatience,
    ) -> Vec<Option<io::Result<Vec<u8>>>> {
        let requests: Vec<ChildRequest<'_>> =
            wants.iter().map(|want| ChildRequest::of_file(*want, RequestForm::Record)).collect();
        self.answers(&requests, patience, &mut SilentAccounts::new(patience.stuck_of_one))
    }

    /// Asks for links of processes, or the files behind them, as [`read_all`](Self::read_all) does for files.
    fn ask_links(
        &mut self,
        wants: &[WantedFile<'_>],
        form: RequestForm,
        patience: ReadPatience,
    ) -> Vec<Option<io::Result<Vec<u8>>>> {
        let requests: Vec<ChildRequest<'_>> = wants.iter().map(|want| ChildRequest::of_file(*want, form)).collect();
        self.answers(&requests, patience, &mut SilentAccounts::new(patience.stuck_of_one))
    }

    /// Reads the present pages of processes, in the order of the requests. The reply for a process is its pages or an
    /// error, as for [`read_all`](Self::read_all); a page of `None` is not present.
    pub fn read_pages(
        &mut self,
        wants: &[WantedPages<'_>],
        patience: ReadPatience,
    ) -> Vec<Option<io::Result<Vec<Option<SampledPage>>>>> {
        self.read_pages_by_share(wants, patience, &mut SilentAccounts::new(patience.stuck_of_one))
    }

    /// Reads pages as [`read_pages`](Self::read_pages) does, with shares of the waits that several calls have together.
    pub(crate) fn read_pages_by_share(
        &mut self,
        wants: &[WantedPages<'_>],
        patience: ReadPatience,
        shares: &mut SilentAccounts,
    ) -> Vec<Option<io::Result<Vec<Option<SampledPage>>>>> {
        let requests: Vec<ChildRequest<'_>> = wants.iter().flat_map(ChildRequest::of_pages).collect();
        let mut answers = self.answers(&requests, patience, shares).into_iter();
        let pages = |want: &WantedPages<'_>| {
            let mut pages = Vec::with_capacity(want.addresses.len());
            // All requests of the process have an answer.
            let parts: Vec<_> = answers.by_ref().take(want.addresses.len().div_ceil(ADDRESSES)).collect();
            for part in parts {
                match part? {
                    Ok(bytes) => pages.extend(bytes.chunks_exact(ENTRY).map(SampledPage::from_bytes)),
                    Err(error) => return Some(Err(error)),
                }
            }
            Some(Ok(pages))
        };
        wants.iter().map(pages).collect()
    }

    /// Counts the bytes of a process that small pages map to the kernel's zero page. `edges` has the starts and ends of
    /// address ranges by turns.
    ///
    /// # Errors
    /// The process can't be read or does not answer, the deadline has passed, or the kernel lacks `PAGEMAP_SCAN`
    /// (`ENOTTY`, before Linux 6.7).
    pub fn count_zero_mapped(&mut self, pid: u32, edges: &[u64], patience: ReadPatience) -> io::Result<u64> {
        let requests: Vec<ChildRequest<'_>> = ChildRequest::of_zero_mapped(pid, edges).collect();
        let mut sum = 0_u64;
        let mut shares = SilentAccounts::new(patience.stuck_of_one);
        for answer in self.answers(&requests, patience, &mut shares) {
            let bytes = answer.ok_or(io::ErrorKind::TimedOut)??;
            let (counts, _) = bytes.as_chunks::<8>();
            sum = counts.iter().fold(sum, |sum, count| sum.saturating_add(u64::from_ne_bytes(*count)));
        }
        Ok(sum)
    }

    /// Returns for each of `others` if it has one memory map with process `pid`; false also if they may not be compared.
    ///
    /// # Errors
    /// One of them keeps the kernel waiting, or the deadline has passed.
    pub fn compare_memory(&mut self, pid: u32, others: &[u32], patience: ReadPatience) -> io::Result<Vec<bool>> {
        let others: Vec<u64> = others.iter().copied().map(u64::from).collect();
        let requests: Vec<ChildRequest<'_>> = ChildRequest::of_same_memory(pid, &others).collect();
        let mut are_same = Vec::with_capacity(others.len());
        let mut shares = SilentAccounts::new(patience.stuck_of_one);
        for answer in self.answers(&requests, patience, &mut shares) {
            are_same.extend(answer.ok_or(io::ErrorKind::TimedOut)??.into_iter().map(|byte| byte != 0));
        }
        Ok(are_same)
    }

    fn answers(
        &mut self,
        requests: &[ChildRequest<'_>],
        patience: ReadPatience,
        shares: &mut SilentAccounts,
    ) -> Vec<Option<io::Result<Vec<u8>>>> {
        let mut answers: Vec<Option<io::Result<Vec<u8>>>> = Vec::with_capacity(requests.len());
        graves::collect();
        let (mut endings, mut stuck) = (0, 0);
        let mut accounts = ReadAccounts::default();
        while let Some(rest) = requests.get(answers.len()..).filter(|rest| !rest.is_empty()) {
            if Instant::now() >= patience.until || stuck >= patience.stuck {
                break;
            }
            let done = answers.len();
            let mut bytes = 0;
            let fits = |request: &&ChildRequest<'_>| {
                bytes += request.length();
                bytes <= BYTES_UNDER_WAY
            };
            let count = rest.iter().take(UNDER_WAY).take_while(fits).count();
            let batch = rest.get(..count.max(1)).unwrap_or(rest);
            let mut may_begin = |want: &WantedFile<'_>| {
                let is_held_back = shares.is_held_back(want.pid, || accountable::uid_of_pid(want.pid));
                !is_held_back && accounts.admit(want)
            };
            let admitted = batch.iter().take_while(|request| may_begin(&request.want)).count();
            let (batch, refused) = batch.split_at_checked(admitted).unwrap_or_default();
            if batch.is_empty() && !refused.is_empty() {
                answers.push(None);
                continue;
            }
            match self.batch(batch, patience, &mut answers) {
                Ok(()) => {}
                Err(ReadFault::Stuck) => {
                    stuck += 1;
                    let silent = rest.get(answers.len() - done);
                    self.give_up(silent.and_then(|request| accounts.account_for(&request.want)));
                    // Its other files would hold the next child up.
                    let silent = silent.map(|request| request.want.pid);
                    if let Some(pid) = silent {
                        shares.count_silence(pid, || accountable::uid_of_pid(pid));
                    }
                    let is_its = |request: &&ChildRequest<'_>| Some(request.want.pid) == silent;
                    while let Some(ChildRequest { want, .. }) = requests.get(answers.len()).filter(is_its) {
                        answers.push(Some(Err(UnansweredRead::new(want.pid, want.file).into())));
                    }
                }
                Err(ReadFault::Late) => {
                    self.give_up(
                        rest.get(answers.len() - done).and_then(|request| accounts.account_for(&request.want)),
                    );
                    break;
                }
                Err(ReadFault::Ended) if endings == 0 => endings = 1,
                Err(ReadFault::Ended) => break,
            }
        }
        answers.resize_with(requests.len(), || None);
        answers
    }

    /// Reads a file of any length and passes its pieces to `take`, until that breaks off.
    ///
    /// # Errors
    /// The file can't be read, or does not answer: see [`UnansweredRead::from_child`].
    pub fn each_piece(
        &mut self,
        want: WantedFile<'_>,
        patience: ReadPatience,
        mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> io::Result<()> {
        graves::collect();
        let mut accounts = ReadAccounts::default();
        if !accounts.admit(&want) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut has_begun = false;
        for _ in 0..2 {
            let outcome = self.send_requests(&[ChildRequest::of_file(want, RequestForm::Stream)]).and_then(|()| {
                self.answer(&want, 0, patience, &mut |piece| {
                    has_begun = true;
                    take(piece)
                })
            });
            match outcome {
                Ok(ControlFlow::Continue(outcome)) => return outcome,
                // The rest of the answer is not wanted.
                Ok(ControlFlow::Break(())) => {
                    self.give_up(accounts.account_for(&want));
                    return Ok(());
                }
                Err(ReadFault::Late) if !has_begun => {
                    self.give_up(accounts.account_for(&want));
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(ReadFault::Stuck | ReadFault::Late) => {
                    self.give_up(accounts.account_for(&want));
                    return Err(UnansweredRead::new(want.pid, want.file).into());
                }
                // Something has killed the child: another is asked.
                Err(ReadFault::Ended) if !has_begun => {}
                Err(ReadFault::Ended) => break,
            }
        }
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn batch(
        &mut self,
        requests: &[ChildRequest<'_>],
        patience: ReadPatience,
        answers: &mut Vec<Option<io::Result<Vec<u8>>>>,
    ) -> Result<(), ReadFault> {
        self.send_requests(requests)?;
        for (request, more) in requests.iter().zip((0..requests.len()).rev()) {
            let mut bytes = Vec::new();
            let outcome = self.answer(&request.want, more, patience, &mut |piece| {
                bytes.extend_from_slice(piece);
                ControlFlow::Continue(())
            })?;
            if let ControlFlow::Continue(outcome) = outcome {
                answers.push(Some(outcome.map(|()| bytes)));
            }
        }
        Ok(())
    }

    /// Sends requests to the child, after starting it if there is none.
    fn send_requests(&mut self, requests: &[ChildRequest<'_>]) -> Result<(), ReadFault> {
        if self.child.is_none() {
            self.child = child::start_child()
                .inspect_err(|why| tracing::warn!("can't start the child that reads: {why}"))
                .ok();
            (self.taken, self.said) = (0, Vec::new());
        }
        let Some(child) = &self.child else { return Err(ReadFault::Late) };
        let mut bytes = Vec::with_capacity(requests.len() * REQUEST);
        for request in requests {
            request.write(&mut bytes).ok_or(ReadFault::Late)?;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match send(&child.requests, rest, SendFlags::NOSIGNAL) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.give_up(None);
                    return Err(ReadFault::Ended);
                }
            }
        }
        Ok(())
    }

    /// Receives one reply, with `more` to follow. If `take` breaks off, the rest stays unread.
    fn answer(
        &mut self,
        want: &WantedFile<'_>,
        more: usize,
        patience: ReadPatience,
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<(), io::Result<()>>, ReadFault> {
        loop {
            let rest = self.said.get(self.taken..).unwrap_or_default();
            let Some(head) = rest.first_chunk::<HEAD>() else {
                self.hear(want, more, patience)?;
                continue;
            };
            let length = i32::from_ne_bytes(*head);
            if length <= 0 {
                self.taken += HEAD;
                let outcome = if length == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-length)) };
                return Ok(ControlFlow::Continue(outcome));
            }
            let end = HEAD + length.unsigned_abs() as usize;
            let Some(piece) = rest.get(HEAD..end) else {
                self.hear(want, more, patience)?;
                continue;
            };
            let flow = take(piece);
            self.taken += end;
            if flow.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// Waits until the child sends more. After this reply `more` are to follow.
    fn hear(&mut self, want: &WantedFile<'_>, more: usize, patience: ReadPatience) -> Result<(), ReadFault> {
        let Some(child) = &self.child else { return Err(ReadFault::Ended) };
        self.said.drain(..self.taken);
        self.taken = 0;
        self.said.reserve(HEARD);
        let mut began = Instant::now();
        let mut before: Option<ChildState> = None;
        let mut limit = None;
        if more >= FEW {
            std::thread::sleep(SOME_TIME);
        }
        let outcome = loop {
            match rustix::io::read(&child.answers, spare_capacity(&mut self.said)) {
                Ok(0) => break Err(ReadFault::Ended),
                Ok(_) => break Ok(()),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => break Err(ReadFault::Ended),
            }
            let now = Instant::now();
            if now >= patience.until {
                break Err(ReadFault::Late);
            }
            if now >= began + patience.stall {
                let state = ChildState::from_child(child);
                // It works for the kernel: so much that it counts as no answer.
                let allowed = || state.cpu + patience.stall / 2 + walk::allowance(want, patience.walk);
                let works = state.cpu >= *limit.get_or_insert_with(allowed);
                if state.is_waiting || before.is_some_and(|before| before.sleeps_on(state)) || works {
                    break Err(ReadFault::Stuck);
                }
                // It works, or has no CPU to work on.
                before = Some(state);
                began = now;
            }
            let wait = patience.until.min(began + patience.stall).saturating_duration_since(now);
            let wait = Timespec::try_from(wait).unwrap_or_default();
            // A signal, or the time: both are looked at above.
            let _ = poll(&mut [PollFd::new(&child.answers, PollFlags::IN)], Some(&wait));
        };
        if matches!(outcome, Err(ReadFault::Ended)) {
            self.give_up(None);
        }
        outcome
    }

    /// Kills the child and drops its pending requests. `account` is set for a child that reads memory.
    fn give_up(&mut self, account: Option<Account>) {
        if let Some(child) = self.child.take() {
            graves::kill_child(child, account);
        }
        (self.taken, self.said) = (0, Vec::new());
    }
}

impl Drop for ProcessReader {
    fn drop(&mut self) {
        let Some(pid) = self.child.as_ref().map(ReaderChild::pid) else { return };
        self.give_up(None);
        // A killed child ends within a millisecond. One that can't end is left to the next reader, or to the init process.
        for _ in 0..100 {
            if !graves::has(pid) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
            graves::collect();
        }
    }
}

/// CPU time of the children that have ended, in nanoseconds.
static ENDED_NS: AtomicU64 = AtomicU64::new(0);

/// Returns the CPU time of the children that read for this process, of those that have ended too.
pub fn cpu() -> Duration {
    let ended = Duration::from_nanos(ENDED_NS.load(Ordering::Relaxed));
    pids().into_iter().map(cpu_of).sum::<Duration>().saturating_add(ended)
}

/// Keeps the CPU time of a child that has ended.
fn charge_ended(used: Duration) {
    ENDED_NS.fetch_add(u64::try_from(used.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

fn cpu_of(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let used = text.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    Duration::from_nanos(used)
}

/// The scheduling state of a child.
#[derive(Debug, Clone, Copy)]
struct ChildState {
    /// True if it waits for the kernel, uninterruptibly.
    is_waiting: bool,
    /// True if it sleeps. It may have been frozen together with this process a moment ago.
    is_asleep: bool,
    /// The CPU time that it has used.
    cpu: Duration,
}

impl ChildState {
    /// Reads the state from files that take no lock of the child's memory map.
    fn from_child(child: &ReaderChild) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap_or_default();
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
        Self { is_waiting: state == Some('D'), is_asleep: state == Some('S'), cpu: cpu_of(child.pid()) }
    }

    /// Returns true if it has slept from this state to `now`. It has a request to answer, so it waits for a page that a
    /// user's file system has yet to deliver.
    fn sleeps_on(self, now: Self) -> bool {
        self.is_asleep && now.is_asleep && self.cpu == now.cpu
    }
}

#[cfg(test)]
mod tests;
