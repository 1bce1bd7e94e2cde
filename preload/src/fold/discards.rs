//! Ranges of zero pages that are to be discarded, many by one call: each call interrupts the processors on which other threads of
//! the process run.

use super::Folded;
use crate::marks;
use crate::sys::{self, Errno, MemoryAdvice, MemoryRange};

/// The most ranges of one call. The kernel takes 1024 (`UIO_MAXIOV`).
const MOST_RANGES: usize = 512;

/// The most huge pages that one call leaves in part.
const MOST_SPLITS: usize = 32;

/// The ranges of one call.
#[derive(Debug)]
pub struct Discards {
    ranges: [MemoryRange; MOST_RANGES],
    count: usize,
    /// Pages that remain of huge pages.
    splits: [usize; MOST_SPLITS],
    split_count: usize,
}

impl Discards {
    /// Makes an empty list.
    pub const fn new() -> Self {
        let range = MemoryRange { start: 0, length: 0 };
        Self { ranges: [range; MOST_RANGES], count: 0, splits: [0; MOST_SPLITS], split_count: 0 }
    }

    /// Returns true if so many more ranges, and a huge page, can be added.
    pub fn has_space(&self, ranges: usize) -> bool {
        MOST_RANGES.saturating_sub(self.count) >= ranges && self.split_count < MOST_SPLITS
    }

    /// Adds a range.
    pub fn add(&mut self, start: usize, end: usize) {
        if let Some(place) = self.ranges.get_mut(self.count) {
            *place = MemoryRange { start, length: end.saturating_sub(start) };
            self.count = self.count.saturating_add(1);
        }
    }

    /// Adds a huge page of which ranges are discarded, by a page that remains of it.
    pub fn add_split(&mut self, page: usize) {
        if let Some(place) = self.splits.get_mut(self.split_count) {
            *place = page;
            self.split_count = self.split_count.saturating_add(1);
        }
    }

    /// Discards the ranges, and empties the list.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// As [`sys::discard`], for each range.
    pub unsafe fn flush(&mut self, folded: &mut Folded) -> Result<(), Errno> {
        let ranges = self.ranges.get(..self.count).unwrap_or_default();
        // SAFETY: as promised by the caller.
        let mut done = unsafe { sys::discard_all(ranges) }.unwrap_or(0);
        folded.folded = folded.folded.saturating_add(done as u64);
        for range in ranges {
            if done >= range.length {
                done = done.saturating_sub(range.length);
                continue;
            }
            let bytes = range.length as u64;
            // The kernel does not discard many at once, or has stopped here.
            // SAFETY: as promised by the caller.
            match unsafe { sys::discard(range.start, range.length) } {
                Ok(()) => folded.folded = folded.folded.saturating_add(bytes),
                Err(libc::EINVAL) => folded.locked = folded.locked.saturating_add(bytes),
                Err(errno) => return Err(errno),
            }
        }
        // The memory of discarded parts is given back when the huge page is split: at once by this advice, else when the kernel
        // is short of memory (`madvise_cold_or_pageout_pte_range` of mm/madvise.c).
        for page in self.splits.get(..self.split_count).unwrap_or_default() {
            let _ = sys::madvise(*page, marks::page(), MemoryAdvice::Cold);
        }
        self.count = 0;
        self.split_count = 0;
        Ok(())
    }
}
