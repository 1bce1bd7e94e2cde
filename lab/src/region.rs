//! Anonymous memory as a slice, offered to KSM or of another kind.

#![allow(unsafe_code, reason = "a mapping is made, viewed and unmapped: a few system calls and slices")]

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::pipe::{IoSliceRaw, SpliceFlags};

/// The kind of memory of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionKind {
    /// Private memory that is offered to KSM.
    Mergeable,
    /// Private memory that is offered to KSM, in transparent huge pages where the kernel gives them.
    Huge,
    /// Private memory in transparent huge pages that is not offered to KSM.
    HugeUnmarked,
    /// Private memory that is not offered to KSM.
    Unmarked,
    /// Shared memory, which KSM refuses.
    Shared,
    /// Pages of hugetlbfs, which KSM refuses.
    Hugetlb,
}

/// Bytes in the largest huge page that fits into a region.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// An anonymous mapping of whole pages, which is unmapped on drop.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    length: usize,
    /// Start and length of the whole mapping; it begins before `start` where `start` was aligned.
    mapped: (NonNull<u8>, usize),
    /// Pipes that hold some of the pages.
    pipes: Vec<(OwnedFd, OwnedFd)>,
}

// SAFETY: the mapping belongs to this value alone; nothing about it is tied to a thread.
unsafe impl Send for Region {}

impl Region {
    /// Maps `length` bytes, a multiple of the page size and not 0. Offers them to KSM if the kind says so and
    /// the kernel has KSM.
    ///
    /// # Errors
    /// The kernel refuses the mapping, or has no huge pages set aside. A kernel without KSM is no error.
    pub fn of_kind(kind: RegionKind, length: usize) -> io::Result<Self> {
        let flags = match kind {
            RegionKind::Shared => MapFlags::SHARED,
            RegionKind::Hugetlb => MapFlags::PRIVATE | MapFlags::HUGETLB,
            _ => MapFlags::PRIVATE | MapFlags::NORESERVE,
        };
        let is_huge = matches!(kind, RegionKind::Huge | RegionKind::HugeUnmarked);
        let asked = if is_huge { length + HUGE_PAGE_BYTES } else { length };
        // SAFETY: a new mapping at an address of the kernel's choosing overlaps nothing.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), asked, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        let mapped = NonNull::new(mapped.cast::<u8>()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        let ahead = if is_huge { mapped.as_ptr().align_offset(HUGE_PAGE_BYTES) } else { 0 };
        // SAFETY: for huge pages the mapping is a huge page longer than asked, and `ahead` shorter than one.
        let start = unsafe { mapped.add(ahead) };
        let region = Self { start, length, mapped: (mapped, asked), pipes: Vec::new() };
        match kind {
            RegionKind::Mergeable => region.advise(Advice::LinuxMergeable)?,
            RegionKind::Huge => {
                region.advise(Advice::LinuxHugepage)?;
                region.advise(Advice::LinuxMergeable)?;
            }
            RegionKind::HugeUnmarked => region.advise(Advice::LinuxHugepage)?,
            RegionKind::Unmarked | RegionKind::Shared | RegionKind::Hugetlb => {}
        }
        Ok(region)
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: the range is our own mapping; neither advice changes what is read from it.
        match unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.length, advice) } {
            // EINVAL is the answer of a kernel without KSM or huge pages.
            Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps the first page of each huge page in a pipe, as I/O in flight does. The kernel can then neither merge the
    /// page nor split its huge page.
    ///
    /// # Errors
    /// The kernel refuses the pipes.
    pub fn hold(&mut self) -> io::Result<()> {
        for offset in (0..self.length).step_by(HUGE_PAGE_BYTES) {
            let (reader, writer) = rustix::pipe::pipe()?;
            // SAFETY: the page is ours, stays mapped as long as the pipe is kept, and is only read.
            unsafe {
                let page = self.start.add(offset).cast();
                let slice = IoSliceRaw::from_slice(std::slice::from_raw_parts(page.as_ptr(), 4096));
                rustix::pipe::vmsplice(&writer, &[slice], SpliceFlags::empty())?;
            }
            self.pipes.push((reader, writer));
        }
        Ok(())
    }

    /// Splits the huge pages of the region: one small page in each is called cold, and the kernel splits the huge page
    /// for that (`madvise_cold_or_pageout_pte_range`). A kernel that refuses leaves them whole.
    pub fn split_huge_pages(&self) {
        let page = rustix::param::page_size();
        for offset in (0..self.length).step_by(HUGE_PAGE_BYTES) {
            self.advise_at(offset + HUGE_PAGE_BYTES - page, page, libc::MADV_COLD);
        }
    }

    /// Puts huge pages together (`MADV_COLLAPSE`, Linux 6.1). Returns true if the kernel did so everywhere.
    pub fn collapse_huge_pages(&self) -> bool {
        (0..self.length)
            .step_by(HUGE_PAGE_BYTES)
            .all(|offset| self.advise_at(offset, HUGE_PAGE_BYTES, libc::MADV_COLLAPSE))
    }

    fn advise_at(&self, offset: usize, length: usize, advice: libc::c_int) -> bool {
        if offset + length > self.length {
            return false;
        }
        // SAFETY: the range is inside our own mapping, and the advice changes no byte of it.
        unsafe { libc::madvise(self.start.as_ptr().add(offset).cast(), length, advice) == 0 }
    }

    /// The memory of the region.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `length` bytes long, readable, initialised (zero) and ours until drop.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// The memory of the region, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `&mut self` keeps every other view away.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: start and length are those of our own mapping, and no view of it outlives `self`.
        // A failure is ignored: nothing depends on the unmapping.
        let _ = unsafe { rustix::mm::munmap(self.mapped.0.as_ptr().cast(), self.mapped.1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zero_and_holds_what_is_written() {
        let mut region = Region::of_kind(RegionKind::Mergeable, 8192).unwrap();
        assert!(region.bytes().iter().all(|&byte| byte == 0));
        region.bytes_mut()[8191] = 7;
        assert_eq!(region.bytes()[8191], 7);
    }
}
