//! Splitting huge pages of another process by `process_madvise(MADV_COLD)` on one small page of each, and collapsing
//! small pages.

#![allow(unsafe_code, reason = "one system call that rustix does not have")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::FoldError;
use crate::memory::error::UnreadableProcess;

/// Asks the kernel to split each of these huge pages, given by their addresses. Calls `refused` for those that it does
/// not even try, since their mapping is locked, of another kind, or gone. One that is shared or pinned stays whole
/// without an error.
///
/// The advice is for the first small page of each huge page. It changes only when the page is reclaimed, not its
/// content.
///
/// # Errors
/// The process has ended, or this user may not advise on it. Huge pages before the failing one were split.
pub(super) fn split(
    process: impl AsFd,
    huge_pages: &[u64],
    page_size: usize,
    mut refused: impl FnMut(u64),
) -> Result<(), FoldError> {
    let mut vector: Vec<libc::iovec> = Vec::with_capacity(huge_pages.len());
    for address in huge_pages {
        vector.push(libc::iovec { iov_base: *address as *mut libc::c_void, iov_len: page_size });
    }
    let mut rest = vector.as_slice();
    let mut addresses = huge_pages;
    while !rest.is_empty() {
        let advised = match advise(&process, rest, libc::MADV_COLD) {
            Ok(bytes) => bytes / page_size,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => continue,
                Some(libc::ESRCH) => return Err(UnreadableProcess::Exited.into()),
                Some(libc::EPERM | libc::EACCES) => return Err(FoldError::Denied),
                Some(libc::ENOSYS) => return Err(FoldError::NoCall("process_madvise (Linux 5.10 has)")),
                _ => 0,
            },
        };
        // The kernel stops at the first range that it refuses.
        let done = advised.min(rest.len());
        if let Some(address) = addresses.get(done) {
            refused(*address);
        }
        let next = (done + 1).min(rest.len());
        (rest, addresses) = (&rest[next..], &addresses[next..]);
    }
    Ok(())
}

/// Collapses the small pages of this range into one huge page (`MADV_COLLAPSE`, Linux 6.1). Returns false if the kernel
/// refuses: the mapping refuses huge pages, a page is in use, or there is no free huge page.
///
/// # Errors
/// The process has ended, or this user may not advise on it.
pub(super) fn collapse(process: impl AsFd, start: u64, bytes: usize) -> Result<bool, FoldError> {
    let range = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: bytes };
    match advise(&process, &[range], libc::MADV_COLLAPSE) {
        Ok(advised) => Ok(advised == bytes),
        Err(error) => match error.raw_os_error() {
            Some(libc::ESRCH) => Err(UnreadableProcess::Exited.into()),
            Some(libc::EPERM | libc::EACCES) => Err(FoldError::Denied),
            _ => Ok(false),
        },
    }
}

/// Advises on ranges of another process. Returns the number of bytes advised on.
fn advise(process: impl AsFd, ranges: &[libc::iovec], advice: libc::c_int) -> io::Result<usize> {
    let process = process.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and the kernel reads `ranges.len()` ranges of a borrowed slice. Their addresses are another
    // process's and are not dereferenced here. Neither advice changes a content there.
    let advised =
        unsafe { libc::syscall(libc::SYS_process_madvise, process, ranges.as_ptr(), ranges.len(), advice, 0) };
    usize::try_from(advised).map_err(|_| io::Error::last_os_error())
}
