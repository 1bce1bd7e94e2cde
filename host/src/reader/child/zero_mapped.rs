//! Counting the zero-mapped bytes of another process.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::pagemap_scan::{PageKinds, PageQuery, PagemapRegion, REGIONS, scan_pagemap};

/// Address space of one call. A few pieces keep the parent informed that the child goes on.
const STRIDE: u64 = 4 << 30;

/// The open page map of a process.
pub(super) struct ZeroMappedCounter {
    pagemap: OwnedFd,
    regions: [PagemapRegion; REGIONS],
}

impl ZeroMappedCounter {
    /// Opens the page map of the process with this directory under `/proc`.
    pub(super) fn open(proc: BorrowedFd<'_>, directory: &CStr) -> Result<Self, Errno> {
        const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
        let directory = openat(proc, directory, READ | OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let pagemap = openat(&directory, c"pagemap", READ, Mode::empty())?;
        Ok(Self { pagemap, regions: [PagemapRegion::default(); REGIONS] })
    }

    /// Counts the bytes of `start..end` that small pages map to the kernel's zero page, and calls `tell` with the count
    /// of each piece. Returns false if that does.
    pub(super) fn count(&mut self, start: u64, end: u64, mut tell: impl FnMut(u64) -> bool) -> Result<bool, Errno> {
        let query = PageQuery { all_of: PageKinds::ZERO_MAPPED, none_of: PageKinds::HUGE, ..PageQuery::default() };
        let mut at = start;
        while at < end {
            let piece_end = end.min(at.saturating_add(STRIDE));
            let (found, walk_end) = scan_pagemap(self.pagemap.as_fd(), at..piece_end, query, &mut self.regions)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            let regions = self.regions.get(..found).unwrap_or_default();
            let bytes = regions.iter().fold(0, |sum: u64, region| sum + (region.end - region.start));
            if !tell(bytes) {
                return Ok(false);
            }
            if walk_end <= at {
                break;
            }
            at = walk_end;
        }
        Ok(true)
    }
}
