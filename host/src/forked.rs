//! Forks children that run no program of their own.
//!
//! Such a child has the descriptors that it is given, and none of this process's locks and sockets. All signals but
//! SIGKILL are blocked in it: Ctrl-C at the terminal reaches it too, and this process's handlers must not run twice.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::Pid;

/// Descriptors below this one are free for the child's own numbers.
const ABOVE: RawFd = 10;

/// Descriptors that are closed one by one, where the kernel can't close a range (before Linux 5.9). The limit of a
/// process may be a thousand million.
const MOST_CLOSED: RawFd = 1 << 16;

/// Forks a child that does `work` and ends with status 0. The child has `ends` as its descriptors from 0 on, and no
/// others. In the parent they are closed.
///
/// # Errors
/// The kernel has no process or no descriptor left.
///
/// # Safety
/// Other threads may have held any lock at the fork. So `work` calls only async-signal-safe functions and plain system
/// calls, allocates nothing, takes no lock and does not panic.
#[allow(unsafe_code, reason = "fork has no safe wrapper")]
pub(crate) unsafe fn fork<const N: usize>(
    ends: [OwnedFd; N],
    work: impl FnOnce([BorrowedFd<'_>; N]),
) -> io::Result<Pid> {
    // Above the child's own numbers, so that none is overwritten before it is copied.
    let mut above = Vec::with_capacity(N);
    for end in ends {
        above.push(fcntl_dupfd_cloexec(end, ABOVE)?);
    }
    let most = most_descriptors();
    // SAFETY: both sets are initialised by the calls that take them before anything reads them. Between fork and _exit
    // the child calls only async-signal-safe functions and plain system calls, and `work`, of which the caller promises
    // the same. So it does not matter what other threads held at the fork. It never returns. Its descriptors are open.
    let pid = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let pid = libc::fork();
        if pid == 0 {
            let mut numbers = [0; N];
            for ((own, number), end) in (0..).zip(&mut numbers).zip(&above) {
                *number = own;
                if libc::dup2(end.as_raw_fd(), own) < 0 {
                    libc::_exit(1);
                }
            }
            close_from(N as RawFd, most);
            work(numbers.map(|number| BorrowedFd::borrow_raw(number)));
            libc::_exit(0);
        }
        let failed = if pid < 0 { Some(io::Error::last_os_error()) } else { None };
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        failed.map_or(Ok(pid), Err)
    }?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork gave no pid"))
}

/// Returns one more than the highest descriptor that is closed one by one.
fn most_descriptors() -> RawFd {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|limit| RawFd::try_from(limit).ok()).unwrap_or(RawFd::MAX).min(MOST_CLOSED)
}

/// Closes every descriptor from `first` on.
///
/// # Safety
/// The caller is a forked child, and no value that it uses owns such a descriptor.
#[allow(unsafe_code, reason = "the descriptors belong to no value of the child")]
unsafe fn close_from(first: RawFd, most: RawFd) {
    // SAFETY: plain numbers, and descriptors that nothing uses, as the caller promises.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) != 0 {
            close_each(first, most);
        }
    }
}

/// Closes every descriptor from `first` to before `most`, each by a call of its own.
///
/// # Safety
/// As [`close_from`].
#[allow(unsafe_code, reason = "as close_from")]
unsafe fn close_each(first: RawFd, most: RawFd) {
    for descriptor in first..most {
        // SAFETY: as above.
        unsafe { libc::close(descriptor) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    /// Returns the descriptors below 4096 that are open in a child after `close`, as the child itself reports them.
    #[allow(unsafe_code, reason = "the tested function is unsafe")]
    fn open_in_child(close: unsafe fn(RawFd, RawFd)) -> Vec<u8> {
        let (read, write) = io::pipe().unwrap();
        // SAFETY: the child calls fcntl, dup2, close, write and close_range only.
        let pid = unsafe {
            fork([OwnedFd::from(write)], |[say]| {
                libc::dup2(0, 700);
                close(1, most_descriptors());
                for number in 0..4096 {
                    let is_open = [u8::from(libc::fcntl(number, libc::F_GETFD) >= 0)];
                    libc::write(say.as_raw_fd(), is_open.as_ptr().cast(), 1);
                }
            })
        };
        let mut bytes = Vec::new();
        File::from(OwnedFd::from(read)).read_to_end(&mut bytes).unwrap();
        waitpid(Some(pid.unwrap()), WaitOptions::empty()).unwrap();
        bytes
    }

    #[test]
    fn a_child_has_its_ends_and_no_other_descriptor_on_old_kernels_too() {
        let _other = File::open("/dev/null").unwrap();
        for close in [close_from, close_each] {
            let open = open_in_child(close);
            assert_eq!(open.len(), 4096);
            assert_eq!((open[0], open.iter().map(|is_open| u64::from(*is_open)).sum::<u64>()), (1, 1));
        }
    }
}
