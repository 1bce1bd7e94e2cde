//! The reading child: a fork without exec, killed if a file does not answer.
//!
//! It ends with the thread that forked it (`PR_SET_PDEATHSIG`), which is one of its own and lasts as long as the process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};

use crate::forked;

mod file_status;
mod forker;
mod namespace;
mod page;
mod same_memory;
mod serve;
mod zero_mapped;

pub use self::file_status::FileStatus;
pub(super) use self::forker::start_child;
pub use self::namespace::NamespaceOwner;
pub use self::page::SampledPage;
pub(super) use self::page::{ADDRESSES, ENTRY};

/// Bytes of a request: the offset, the limit, the form, and the NUL-terminated path under `/proc`. A request for pages
/// is followed by their addresses, one for zero-mapped bytes by ranges, and one for a comparison by PIDs.
pub(super) const REQUEST: usize = 64;

/// Bytes in front of the path.
const FIXED: usize = 17;

/// The longest path of a request, its NUL included.
const LONGEST_PATH: usize = REQUEST - FIXED;

/// The form in which a path is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RequestForm {
    /// A file, to its end or to the limit.
    Stream,
    /// A file, with one read.
    Record,
    /// The target of a link.
    Link,
    /// The status of a file behind a link: a [`FileStatus`].
    Status,
    /// The owner of the process's user namespace: a [`NamespaceOwner`], or nothing in the namespace of this process.
    Namespace,
    /// Pages of the process with this directory: `most` of them.
    Pages,
    /// Zero-mapped bytes of the process with this directory. `most` addresses follow: the starts and ends of ranges.
    ZeroMapped,
    /// A comparison of the memory map of process `offset` with those of others. Their `most` PIDs follow.
    SameMemory,
}

/// Bytes in front of a piece of a reply: its length; 0 at the end of the reply; `-errno` on an error.
pub(super) const HEAD: usize = 4;

/// Encodes a request for the child; `None` if the path is too long.
pub(super) fn request(path: &str, offset: u64, most: u64, form: RequestForm) -> Option<[u8; REQUEST]> {
    let mut bytes = [0; REQUEST];
    bytes[..8].copy_from_slice(&offset.to_ne_bytes());
    bytes[8..16].copy_from_slice(&most.to_ne_bytes());
    bytes[16] = form as u8;
    (path.len() < LONGEST_PATH).then(|| {
        bytes[FIXED..FIXED + path.len()].copy_from_slice(path.as_bytes());
        bytes
    })
}

/// The PIDs of all living children.
static CHILDREN: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn children() -> MutexGuard<'static, Vec<u32>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the PIDs of all children that read for this process.
pub fn pids() -> Vec<u32> {
    children().clone()
}

/// The parent's handle of the running child.
#[derive(Debug)]
pub(super) struct ReaderChild {
    pid: Pid,
    process: OwnedFd,
    /// The parent's end of the socket for requests. Closing it ends the child.
    pub(super) requests: OwnedFd,
    /// The pipe with the replies. Reading it does not wait.
    pub(super) answers: OwnedFd,
}

impl ReaderChild {
    /// Forks the child. It ends with this thread.
    fn start() -> io::Result<Self> {
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

    /// Returns the child's PID.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Kills the child. This ends a wait for a memory map's lock at once. A read of a page that a file system has yet
    /// to deliver may last until that answers.
    pub(super) fn kill(&self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Returns true if the child has ended, and reaps it. It does not wait.
    pub(super) fn has_ended(&self) -> bool {
        // A zombie still tells what it used.
        let used = super::cpu_of(self.pid());
        match waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(None) => false,
            Ok(Some(_)) => {
                super::charge_ended(used);
                true
            }
            // Collected already, by code that waits for any child.
            Err(error) => error != Errno::INTR,
        }
    }
}

impl Drop for ReaderChild {
    fn drop(&mut self) {
        let pid = self.pid();
        children().retain(|other| *other != pid);
    }
}

/// Forks a child that serves requests from the first descriptor on the second. The third is `/proc`.
#[allow(unsafe_code, reason = "fork has no safe wrapper")]
fn fork(ends: [OwnedFd; 3]) -> io::Result<Pid> {
    let parent = getpid().as_raw_nonzero().get();
    // The child can't allocate. What it does not use of this is in no memory.
    let mut room = vec![0; serve::ROOM + rustix::param::page_size()];
    let (buffer, page) = room.split_at_mut(serve::ROOM);
    // SAFETY: the child calls prctl and getppid, and `serve` makes plain system calls on memory that is there.
    unsafe {
        forked::fork(ends, |[requests, answers, proc]| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() == parent {
                libc::prctl(libc::PR_SET_NAME, c"ksmith-reader".as_ptr());
                serve::requests([requests, answers, proc], buffer, page);
            }
        })
    }
}
