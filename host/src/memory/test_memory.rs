//! Anonymous memory for tests.

#![allow(unsafe_code, reason = "mmap has no safe wrapper")]

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// A private anonymous mapping, aligned to 2 MiB.
pub(crate) struct MappedMemory {
    start: *mut u8,
    length: usize,
    whole: (*mut u8, usize),
}

const ALIGNED: usize = 2 << 20;

impl MappedMemory {
    /// Maps `length` bytes.
    pub(crate) fn new(length: usize) -> Self {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let whole = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length + ALIGNED,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let whole = whole.unwrap().cast::<u8>();
        let start = whole.wrapping_add(whole.align_offset(ALIGNED));
        Self { start, length, whole: (whole, length + ALIGNED) }
    }

    pub(crate) fn address(&self) -> u64 {
        self.start.expose_provenance() as u64
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped, readable, and written to only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no borrow of it is left.
        let _ = unsafe { munmap(self.whole.0.cast(), self.whole.1) };
    }
}
