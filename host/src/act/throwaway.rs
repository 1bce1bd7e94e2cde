//! A forked child that does one write and exits.
//!
//! Writing `2` to `run` marks the writer as the origin of the memory that is about to be needed: the kernel kills it
//! first when memory runs out (`set_current_oom_origin` in `run_store`, `mm/ksm.c`). So a forked child writes, and
//! nothing of value dies. No program is executed. The child is killed when its parent ends (`PR_SET_PDEATHSIG`): a
//! write that came after a restore would undo it. It keeps none of the parent's descriptors: neither a lock nor a
//! socket.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::forked;

/// The running child.
#[derive(Debug)]
pub(super) struct WriterChild {
    pid: Pid,
    report: File,
}

/// The outcome of the child.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChildEnding {
    /// The write succeeded.
    Written,
    /// Opening or writing failed with this `errno`.
    Refused(i32),
    /// The child was killed before it could report.
    Killed,
}

impl WriterChild {
    /// Starts a child that writes `text` to the file at `path`.
    pub(super) fn write(path: &Path, text: &[u8]) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let (report, say) = io::pipe()?;
        let (report, say) = (OwnedFd::from(report), OwnedFd::from(say));
        let pid = fork_writer(&path, text, say)?;
        Ok(Self { pid, report: File::from(report) })
    }

    /// Waits until the child has ended or `patience` is over; `None` if it still runs.
    pub(super) fn wait(&mut self, patience: Duration) -> io::Result<Option<ChildEnding>> {
        let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.report, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut errno = [0; size_of::<i32>()];
        let ending = match self.report.read_exact(&mut errno).map(|()| i32::from_ne_bytes(errno)) {
            Ok(0) => ChildEnding::Written,
            Ok(errno) => ChildEnding::Refused(errno),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => ChildEnding::Killed,
            Err(error) => return Err(error),
        };
        // It has said its word or is dead, so this does not block. A program that ignores SIGCHLD has no child
        // left to collect, which is as well.
        match waitpid(Some(self.pid), WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::CHILD) => Ok(Some(ending)),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills the child. The kernel gives up unmerging at the next page.
    pub(super) fn kill(&self) -> io::Result<()> {
        // Not collected yet, so the PID is still this child's.
        Ok(kill_process(self.pid, Signal::KILL)?)
    }
}

/// Forks a child that writes `text` to `path`, reports its `errno` (0: success) on the descriptor `say` and exits.
///
/// Any signal that ended it would stop the kernel half way, so only SIGKILL does.
#[allow(unsafe_code, reason = "fork has no safe wrapper")]
fn fork_writer(path: &CString, text: &[u8], say: OwnedFd) -> io::Result<Pid> {
    let (path, text, length) = (path.as_ptr(), text.as_ptr(), text.len());
    let parent = std::process::id().cast_signed();
    // SAFETY: the pointers outlive the calls, which are async-signal-safe (signal-safety(7): open, write, getppid, and
    // prctl, a plain system call; __errno_location reads the thread's own storage).
    unsafe {
        forked::fork([say], |[say]| {
            // The kernel sends it when the thread that forked ends: that one waits for the child.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != parent {
                return;
            }
            let file = libc::open(path, libc::O_WRONLY | libc::O_TRUNC | libc::O_CLOEXEC);
            let failed = file < 0 || libc::write(file, text.cast(), length) < 0;
            let errno: i32 = if failed { *libc::__errno_location() } else { 0 };
            libc::write(say.as_raw_fd(), (&raw const errno).cast(), size_of::<i32>());
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn it_writes_and_ends() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("run");
        std::fs::write(&path, "100").unwrap();
        assert_eq!(WriterChild::write(&path, b"2\n").unwrap().wait(LONG).unwrap(), Some(ChildEnding::Written));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "2\n");
    }

    #[test]
    fn a_refusal_arrives_with_its_errno() {
        let gone = WriterChild::write(Path::new("/nowhere/at/all"), b"2").unwrap().wait(LONG).unwrap();
        assert_eq!(gone, Some(ChildEnding::Refused(libc::ENOENT)));
        let full = WriterChild::write(Path::new("/dev/full"), b"2").unwrap().wait(LONG).unwrap();
        assert_eq!(full, Some(ChildEnding::Refused(libc::ENOSPC)));
    }

    #[test]
    fn one_that_hangs_is_killed_and_said_to_be() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("fifo");
        // Opening a FIFO for writing waits for a reader that never comes.
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let mut child = WriterChild::write(&path, b"2").unwrap();
        assert_eq!(child.wait(Duration::from_millis(1)).unwrap(), None);
        child.kill().unwrap();
        assert_eq!(child.wait(LONG).unwrap(), Some(ChildEnding::Killed));
    }

    #[test]
    fn it_is_killed_when_the_thread_that_waits_for_it_ends() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let begin = move || {
            let mut child = WriterChild::write(&path, b"2").unwrap();
            // It waits for a reader, the last thing that it does.
            let call = format!("/proc/{}/syscall", child.pid.as_raw_nonzero());
            let opens = format!("{} ", libc::SYS_openat);
            while !std::fs::read_to_string(&call).unwrap().starts_with(&opens) {
                assert_eq!(child.wait(Duration::from_millis(1)).unwrap(), None);
            }
            child
        };
        let mut child = std::thread::spawn(begin).join().unwrap();
        assert_eq!(child.wait(LONG).unwrap(), Some(ChildEnding::Killed));
    }

    #[test]
    fn it_keeps_neither_a_lock_nor_a_socket_of_its_parent() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut child = WriterChild::write(&path, b"2").unwrap();
        let descriptors = format!("/proc/{}/fd", child.pid.as_raw_nonzero());
        // It has closed them when it waits for a reader of the FIFO, which is the last thing that it does.
        while std::fs::read_dir(&descriptors).unwrap().count() != 1 {
            assert_eq!(child.wait(Duration::from_millis(1)).unwrap(), None);
        }
        drop(there);
        assert_eq!(Read::read(&mut &here, &mut [0]).unwrap(), 0, "the peer has the end of the connection");
        child.kill().unwrap();
        assert_eq!(child.wait(LONG).unwrap(), Some(ChildEnding::Killed));
    }

    #[test]
    fn no_child_is_left_behind() {
        let mut child = WriterChild::write(Path::new("/dev/null"), b"2").unwrap();
        let pid = child.pid;
        child.wait(LONG).unwrap();
        assert_eq!(waitpid(Some(pid), WaitOptions::NOHANG).unwrap_err(), rustix::io::Errno::CHILD);
    }
}
