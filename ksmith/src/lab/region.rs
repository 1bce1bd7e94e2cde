//! Anonymous memory that is offered to KSM, as a slice.

#![allow(unsafe_code, reason = "a mapping is made, viewed and unmapped: four system calls and two slices")]

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A private anonymous mapping of whole pages, marked `MADV_MERGEABLE`. Unmapped on drop.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing about it is tied to a thread.
unsafe impl Send for Region {}

impl Region {
    /// Maps `length` bytes (a multiple of the page size, not 0) and offers them to KSM where the kernel has it.
    ///
    /// # Errors
    /// No memory, or a kernel that refuses the mapping. A kernel without KSM is no error: see `mergeable`.
    pub fn new(length: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choosing overlaps nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        let region = Self { start, length };
        // SAFETY: the range is exactly our own mapping; merging does not change what is read from it.
        match unsafe { rustix::mm::madvise(start.as_ptr().cast(), length, Advice::LinuxMergeable) } {
            // EINVAL is the answer of a kernel without KSM.
            Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(region),
            Err(error) => Err(error.into()),
        }
    }

    /// The memory.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `length` bytes long, readable, initialised (zero) and ours until drop.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// The memory, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `&mut self` keeps every other view away.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: start and length are those of our own mapping, and no view of it outlives `self`.
        // Nothing can be done about a failure, and nothing depends on it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zero_and_holds_what_is_written() {
        let mut region = Region::new(8192).unwrap();
        assert!(region.bytes().iter().all(|&byte| byte == 0));
        region.bytes_mut()[8191] = 7;
        assert_eq!(region.bytes()[8191], 7);
    }
}
