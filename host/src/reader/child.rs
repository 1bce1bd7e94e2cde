//! The child that reads: forked, without a program of its own, and killed where a file does not answer.
//!
//! It ends with the thread that forked it.

mod page;
mod serve;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};

pub use self::page::SampledPage;
use crate::forked;

/// Bytes of a request: offset, most, form, and the path under `/proc` with a NUL behind it.
pub(super) const REQUEST: usize = 64;

/// Bytes in front of the path.
const FIXED: usize = 17;

/// The longest path of a request, its NUL included.
pub(super) const LONGEST_PATH: usize = REQUEST - FIXED;

/// Bytes in front of a piece of an answer: its length; 0 at the end of the answer; `-errno` at an error.
pub(super) const HEAD: usize = 4;

/// The longest piece of an answer: the largest page of the architectures that have KSM.
pub(super) const PIECE: usize = 64 << 10;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A file of any length. Each piece is told as soon as it is read.
    Stream,
    /// A file that holds one record. Its answer may wait for those to the requests behind it.
    Record,
    /// A page of the process with this directory: the answer is its [`page::SampledPage`].
    Page,
}

/// Writes a request as the child takes it. `None` if the path is too long.
pub(super) fn request(path: &str, offset: u64, most: u64, form: Form) -> Option<[u8; REQUEST]> {
    let mut bytes = [0; REQUEST];
    bytes[..8].copy_from_slice(&offset.to_ne_bytes());
    bytes[8..16].copy_from_slice(&most.to_ne_bytes());
    bytes[16] = form as u8;
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
    /// The pipe for requests. Closing both ends ends the child.
    pub(super) requests: OwnedFd,
    /// The child's end of it. The parent keeps it open, so that no write raises SIGPIPE.
    _taken: OwnedFd,
    /// The pipe with the answers. Reading it does not wait.
    pub(super) answers: OwnedFd,
}

impl Child {
    /// Forks the child.
    pub(super) fn start() -> io::Result<Self> {
        // Not a socket: from Linux 6.17 on, until it was mended, one did not tell what is left of what was sent at once.
        let (taken, requests) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answers, said) = pipe_with(PipeFlags::CLOEXEC)?;
        let proc = openat(CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::ioctl_fionbio(&answers, true)?;
        let pid = fork([taken.try_clone()?, said, proc])?;
        // The child can't be collected by another thread before this: it has not ended.
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(error) => {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
                let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
                return Err(error.into());
            }
        };
        let child = Self { pid, process, requests, _taken: taken, answers };
        children().push(child.pid());
        Ok(child)
    }

    /// The child's PID.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Requests that the child has not begun to answer.
    pub(super) fn unread(&self) -> usize {
        let bytes = rustix::io::ioctl_fionread(&self.requests).unwrap_or(0);
        usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(REQUEST)
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
                serve::serve(requests, answers, proc);
            }
        })
    }
}
