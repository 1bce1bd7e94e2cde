//! Batches of zero-page ranges to discard. Each call interrupts the processors on which other threads of the process
//! run, so one call discards many ranges.

use super::FoldCounts;
use crate::marks;
use crate::sys::{self, Errno, MemoryAdvice, MemoryRange};

/// Limit of ranges in one call. The kernel's limit is 1024 (`UIO_MAXIOV`).
const MOST_RANGES: usize = 512;

/// Limit of huge pages that one call splits.
const MOST_SPLITS: usize = 32;

/// The batch of ranges for one call.
#[derive(Debug)]
pub struct DiscardBatch {
    ranges: [MemoryRange; MOST_RANGES],
    count: usize,
    /// A remaining page of each split huge page.
    splits: [usize; MOST_SPLITS],
    split_count: usize,
}

impl DiscardBatch {
    /// Creates an empty batch.
    pub const fn new() -> Self {
        let range = MemoryRange { start: 0, length: 0 };
        Self { ranges: [range; MOST_RANGES], count: 0, splits: [0; MOST_SPLITS], split_count: 0 }
    }

    /// Returns true if `ranges` more ranges and a huge page fit into the batch.
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

    /// Adds a partially discarded huge page, by one of its remaining pages.
    pub fn add_split(&mut self, page: usize) {
        if let Some(place) = self.splits.get_mut(self.split_count) {
            *place = page;
            self.split_count = self.split_count.saturating_add(1);
        }
    }

    /// Discards the ranges, and empties the batch.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// As [`sys::discard`], for each range.
    pub unsafe fn flush(&mut self, folded: &mut FoldCounts) -> Result<(), Errno> {
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
