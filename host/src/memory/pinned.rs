//! `process_vm_readv`: twice as fast as `/proc/PID/mem`, but safe only where nothing can be un-merged.
//!
//! It pins the pages that it reads. Before a page is pinned, the kernel copies it if it is merged (`gup_must_unshare`
//! in `mm/internal.h`) or shared since a fork. So this is used only for pages that are mapped once (pagemap's bit 56),
//! and only while nothing is merged on the host and ksmd does not run. That is checked every few milliseconds.

#![allow(unsafe_code, reason = "one system call that rustix does not have")]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The two files that show if anything can be un-merged.
#[derive(Debug)]
pub struct PinningCheck {
    run: Option<File>,
    pages_shared: Option<File>,
    has_ksm: bool,
}

impl PinningCheck {
    /// Opens the two files. A kernel without KSM has none, and nothing to un-merge.
    pub fn new() -> Self {
        let open = |name: &str| File::open(format!("/sys/kernel/mm/ksm/{name}")).ok();
        Self {
            run: open("run"),
            pages_shared: open("pages_shared"),
            has_ksm: std::path::Path::new("/sys/kernel/mm/ksm").exists(),
        }
    }

    /// Returns one that is never certain, so nothing is ever pinned.
    pub fn never() -> Self {
        Self { run: None, pages_shared: None, has_ksm: true }
    }

    /// Returns true if nothing is merged and ksmd does not run. If unknown, returns false.
    pub fn is_certain(&self) -> bool {
        let number = |file: &Option<File>| {
            let mut text = [0; 24];
            let length = file.as_ref()?.read_at(&mut text, 0).ok()?;
            std::str::from_utf8(text.get(..length)?).ok()?.trim().parse::<u64>().ok()
        };
        !self.has_ksm || number(&self.run).is_some_and(|run| run != 1) && number(&self.pages_shared) == Some(0)
    }
}

impl Default for PinningCheck {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads from the memory of the process that has this PID. The caller checks afterwards that it is still the intended
/// process.
///
/// # Errors
/// As `process_vm_readv(2)`: nothing is mapped there, no such process, no permission.
pub fn read(pid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    // SAFETY: the kernel writes at most `iov_len` bytes to `local`, which is exactly `buffer`, borrowed mutably; the
    // remote address is never dereferenced here.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_and_what_is_not_mapped_is_an_error() {
        let bytes = *b"some bytes";
        let mut copy = [0; 10];
        assert_eq!(read(std::process::id(), bytes.as_ptr() as u64, &mut copy).unwrap(), 10);
        assert_eq!(copy, bytes);
        assert_eq!(read(std::process::id(), 8, &mut copy).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    }
}
