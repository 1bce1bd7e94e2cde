//! The child that reads: forked, without a program of its own, and killed where a file does not answer.
//!
//! It ends with the thread that forked it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, pread, retry_on_intr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};

use crate::forked;

/// Bytes of a request: offset, most, whether it is one record, and the path under `/proc` with a NUL behind it.
pub(super) const REQUEST: usize = 64;

/// Bytes in front of the path.
const FIXED: usize = 17;

/// The longest path of a request, its NUL included.
pub(super) const LONGEST_PATH: usize = REQUEST - FIXED;

/// Bytes in front of a piece of an answer: its length; 0 at the end of the answer; `-errno` at an error.
pub(super) const HEAD: usize = 4;

/// The longest piece of an answer.
const PIECE: usize = 32 << 10;

/// Writes a request in its form for the child. `None` if the path is too long.
pub(super) fn request(path: &str, offset: u64, most: u64, is_one_record: bool) -> Option<[u8; REQUEST]> {
    let mut bytes = [0; REQUEST];
    bytes[..8].copy_from_slice(&offset.to_ne_bytes());
    bytes[8..16].copy_from_slice(&most.to_ne_bytes());
    bytes[16] = u8::from(is_one_record);
    (path.len() < LONGEST_PATH).then(|| {
        bytes[FIXED..FIXED + path.len()].copy_from_slice(path.as_bytes());
        bytes
    })
}

/// The children that there are, by PID.
static CHILDREN: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn children() -> MutexGuard<'static, Vec<u32>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The PIDs of all children that read for this process.
pub fn pids() -> Vec<u32> {
    children().clone()
}

/// The running child, as its parent has it.
#[derive(Debug)]
pub(super) struct Child {
    pid: Pid,
    process: OwnedFd,
    /// The parent's end of the socket for requests. Closing it ends the child.
    pub(super) requests: OwnedFd,
    /// The pipe with the answers. Reading it does not wait.
    pub(super) answers: OwnedFd,
}

impl Child {
    /// Forks the child.
    pub(super) fn start() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (requests, taken) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let (answers, said) = pipe_with(PipeFlags::CLOEXEC)?;
        let proc = openat(CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::ioctl_fionbio(&answers, true)?;
        let pid = fork([taken, said, proc])?;
        // The child can't be collected by another thread before this: it has not ended.
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(error) => {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
                let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
                return Err(error.into());
            }
        };
        let child = Self { pid, process, requests, answers };
        children().push(child.pid());
        Ok(child)
    }

    /// The child's PID.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Kills the child. A wait for a memory map's lock ends by that at once. A read of a page that a file system owes may
    /// go on until that answers.
    pub(super) fn kill(&self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Whether the child has ended, and is collected. It does not wait.
    pub(super) fn has_ended(&self) -> bool {
        match waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(status) => status.is_some(),
            // Collected already, by code that waits for any child.
            Err(error) => error != Errno::INTR,
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let pid = self.pid();
        children().retain(|other| *other != pid);
    }
}

/// Forks a child that answers requests from the first descriptor on the second. The third is `/proc`.
#[allow(unsafe_code, reason = "fork has no safe wrapper")]
fn fork(ends: [OwnedFd; 3]) -> io::Result<Pid> {
    let parent = getpid().as_raw_nonzero().get();
    // SAFETY: the child calls prctl and getppid, and `serve` makes plain system calls on memory of its stack.
    unsafe {
        forked::fork(ends, |[requests, answers, proc]| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() == parent {
                libc::prctl(libc::PR_SET_NAME, c"ksmith-reader".as_ptr());
                serve(requests, answers, proc);
            }
        })
    }
}

/// Answers requests until there are no more. Runs in the child: it must not allocate, lock or panic.
fn serve(requests: BorrowedFd<'_>, answers: BorrowedFd<'_>, proc: BorrowedFd<'_>) {
    let mut request = [0; REQUEST];
    let mut buffer = [0; HEAD + PIECE + HEAD];
    while take(requests, &mut request) && answer(answers, proc, &request, &mut buffer) {}
}

/// Reads a whole request.
fn take(requests: BorrowedFd<'_>, request: &mut [u8; REQUEST]) -> bool {
    let mut got = 0;
    while let Some(rest) = request.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match retry_on_intr(|| rustix::io::read(requests, &mut *rest)) {
            Ok(count) if count > 0 => got += count,
            _ => return false,
        }
    }
    true
}

/// Answers one request. Returns whether the parent still listens.
fn answer(
    answers: BorrowedFd<'_>,
    proc: BorrowedFd<'_>,
    request: &[u8; REQUEST],
    buffer: &mut [u8; HEAD + PIECE + HEAD],
) -> bool {
    let word =
        |at: usize| request.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_ne_bytes(*word));
    let (mut offset, mut left) = (word(0), word(8));
    let is_one_record = request.get(16) == Some(&1);
    let path = request.get(FIXED..).and_then(|path| CStr::from_bytes_until_nul(path).ok()).unwrap_or(c"");
    let file = match openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()) {
        Ok(file) => file,
        Err(error) => return say(answers, &(-error.raw_os_error()).to_ne_bytes()),
    };
    loop {
        let wanted = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let Some(piece) = buffer.get_mut(HEAD..HEAD + wanted) else { return false };
        let count = match retry_on_intr(|| pread(&file, &mut *piece, offset)) {
            Ok(count) => count,
            Err(error) => return say(answers, &(-error.raw_os_error()).to_ne_bytes()),
        };
        offset = offset.saturating_add(count as u64);
        left = left.saturating_sub(count as u64);
        let is_last = count == 0 || left == 0 || is_one_record && count < wanted;
        let mut length = 0;
        if count > 0 {
            length = HEAD + count;
            if let Some(head) = buffer.first_chunk_mut() {
                *head = (count as i32).to_ne_bytes();
            }
        }
        if is_last {
            if let Some(end) = buffer.get_mut(length..length + HEAD) {
                end.fill(0);
            }
            length += HEAD;
        }
        let Some(said) = buffer.get(..length) else { return false };
        if is_last {
            // Once the answer is there, no file of another process is open here.
            drop(file);
            return say(answers, said);
        }
        if !say(answers, said) {
            return false;
        }
    }
}

/// Writes all of it.
fn say(answers: BorrowedFd<'_>, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match retry_on_intr(|| rustix::io::write(answers, bytes)) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(_) => return false,
        }
    }
    true
}
