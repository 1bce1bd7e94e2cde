//! A child that does one write and ends.
//!
//! Writing `2` to `run` marks the writer as the origin of the memory that is about to be needed: the kernel
//! kills it first when memory runs out (`set_current_oom_origin` in `run_store`, `mm/ksm.c`). So a forked
//! child writes, and nothing of value dies. No program is executed. The child may outlive its parent by minutes, so it
//! keeps none of the parent's descriptors: neither a lock nor a socket.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// The running child.
#[derive(Debug)]
pub(super) struct Child {
    pid: Pid,
    report: File,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The write succeeded.
    Written,
    /// Opening or writing failed with this `errno`.
    Refused(i32),
    /// It was killed before it could say.
    Killed,
}

impl Child {
    /// Starts a child that writes `text` to the file at `path`.
    pub(super) fn write(path: &Path, text: &[u8]) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let (report, say) = io::pipe()?;
        let (report, say) = (OwnedFd::from(report), OwnedFd::from(say));
        let pid = fork_writer(&path, text, say.as_raw_fd())?;
        // Ours must be closed for the pipe to end with the child.
        drop(say);
        Ok(Self { pid, report: File::from(report) })
    }

    /// Waits until the child has ended or `patience` is over. `None`: it is still at it.
    pub(super) fn wait(&mut self, patience: Duration) -> io::Result<Option<Ending>> {
        let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.report, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut errno = [0; size_of::<i32>()];
        let ending = match self.report.read_exact(&mut errno).map(|()| i32::from_ne_bytes(errno)) {
            Ok(0) => Ending::Written,
            Ok(errno) => Ending::Refused(errno),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ending::Killed,
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

/// Forks a child that writes `text` to `path`, says its `errno` (0: done) on the descriptor `say` and ends.
///
/// Every signal but SIGKILL stays blocked in the child: Ctrl-C at the terminal reaches it too, and would stop
/// the kernel half way; and the parent's handlers must not run a second time.
#[allow(unsafe_code, reason = "fork has no safe wrapper")]
fn fork_writer(path: &CString, text: &[u8], say: i32) -> io::Result<Pid> {
    let (path, text, length) = (path.as_ptr(), text.as_ptr(), text.len());
    let most = most_descriptors();
    // SAFETY: both sets are initialised by the calls that take them before anything reads them, and the
    // pointers outlive the calls. Between fork and _exit the child calls only async-signal-safe functions
    // (signal-safety(7): open, write, close, _exit; syscall takes plain numbers; __errno_location reads the thread's own
    // storage), allocates nothing and takes no lock, so it does not matter what other threads held at the fork. It never returns.
    let pid = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let pid = libc::fork();
        if pid == 0 {
            close_all_but(say, most);
            let file = libc::open(path, libc::O_WRONLY | libc::O_TRUNC | libc::O_CLOEXEC);
            let failed = file < 0 || libc::write(file, text.cast(), length) < 0;
            let errno: i32 = if failed { *libc::__errno_location() } else { 0 };
            libc::write(say, (&raw const errno).cast(), size_of::<i32>());
            libc::_exit(0);
        }
        let failed = if pid < 0 { Some(io::Error::last_os_error()) } else { None };
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        failed.map_or(Ok(pid), Err)
    }?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork gave no pid"))
}

/// One more than the highest descriptor, where the kernel can't close a range at once (before Linux 5.9). Bounded, since the
/// limit may be a thousand million.
fn most_descriptors() -> i32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|limit| i32::try_from(limit).ok()).unwrap_or(i32::MAX).min(1 << 16)
}

/// Closes every descriptor but one.
#[allow(unsafe_code, reason = "the descriptors belong to no value of this process any more")]
fn close_all_but(kept: i32, most: i32) {
    let range = |first: i32, last: u32| {
        // SAFETY: plain numbers. The caller is a forked child that uses no descriptor but the one that is kept.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) == 0 }
    };
    let is_below_closed = kept == 0 || range(0, (kept - 1).cast_unsigned());
    if !is_below_closed || !range(kept + 1, u32::MAX) {
        for descriptor in (0..most).filter(|descriptor| *descriptor != kept) {
            // SAFETY: as above.
            unsafe { libc::close(descriptor) };
        }
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
        assert_eq!(Child::write(&path, b"2\n").unwrap().wait(LONG).unwrap(), Some(Ending::Written));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "2\n");
    }

    #[test]
    fn a_refusal_arrives_with_its_errno() {
        let gone = Child::write(Path::new("/nowhere/at/all"), b"2").unwrap().wait(LONG).unwrap();
        assert_eq!(gone, Some(Ending::Refused(libc::ENOENT)));
        let full = Child::write(Path::new("/dev/full"), b"2").unwrap().wait(LONG).unwrap();
        assert_eq!(full, Some(Ending::Refused(libc::ENOSPC)));
    }

    #[test]
    fn one_that_hangs_is_killed_and_said_to_be() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("fifo");
        // Opening a FIFO for writing waits for a reader that never comes.
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let mut child = Child::write(&path, b"2").unwrap();
        assert_eq!(child.wait(Duration::from_millis(1)).unwrap(), None);
        child.kill().unwrap();
        assert_eq!(child.wait(LONG).unwrap(), Some(Ending::Killed));
    }

    #[test]
    fn it_keeps_neither_a_lock_nor_a_socket_of_its_parent() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut child = Child::write(&path, b"2").unwrap();
        let descriptors = format!("/proc/{}/fd", child.pid.as_raw_nonzero());
        // It has closed them when it waits for a reader of the FIFO, which is the last thing that it does.
        while std::fs::read_dir(&descriptors).unwrap().count() != 1 {
            assert_eq!(child.wait(Duration::from_millis(1)).unwrap(), None);
        }
        drop(there);
        assert_eq!(Read::read(&mut &here, &mut [0]).unwrap(), 0, "the peer has the end of the connection");
        child.kill().unwrap();
        assert_eq!(child.wait(LONG).unwrap(), Some(Ending::Killed));
    }

    #[test]
    fn no_child_is_left_behind() {
        let mut child = Child::write(Path::new("/dev/null"), b"2").unwrap();
        let pid = child.pid;
        child.wait(LONG).unwrap();
        assert_eq!(waitpid(Some(pid), WaitOptions::NOHANG).unwrap_err(), rustix::io::Errno::CHILD);
    }
}
