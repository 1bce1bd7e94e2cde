//! Folds windows chunk by chunk. On x86-64 a chunk is as large as a huge page.

use super::FoldCounts;
use super::discards::DiscardBatch;
use super::pagemap::{CHUNK_PAGES, PageState, PagemapFile};
use super::windows::FoldWindow;
use super::zero;
use crate::marks;
use crate::sys::Errno;

/// Maximum number of runs of zero pages in a chunk: every second page.
const MOST_RUNS: usize = CHUNK_PAGES / 2;

/// The zero pages of a chunk.
#[derive(Debug)]
struct ChunkRuns {
    /// Start and end of each run.
    runs: [(usize, usize); MOST_RUNS],
    count: usize,
    exclusive_pages: usize,
    shared_pages: usize,
    zero_pages: usize,
    /// A page that is not zero.
    kept: Option<usize>,
}

impl ChunkRuns {
    const fn new() -> Self {
        let runs = [(0, 0); MOST_RUNS];
        Self { runs, count: 0, exclusive_pages: 0, shared_pages: 0, zero_pages: 0, kept: None }
    }

    fn all(&self) -> &[(usize, usize)] {
        self.runs.get(..self.count).unwrap_or_default()
    }

    /// Adds the next zero page.
    fn add_zero(&mut self, page: usize, page_bytes: usize) {
        self.zero_pages = self.zero_pages.saturating_add(1);
        let end = page.saturating_add(page_bytes);
        if let Some(run) = self.count.checked_sub(1).and_then(|last| self.runs.get_mut(last))
            && run.1 == page
        {
            run.1 = end;
        } else if let Some(run) = self.runs.get_mut(self.count) {
            *run = (page, end);
            self.count = self.count.saturating_add(1);
        }
    }
}

/// A thread's state while it folds windows.
#[derive(Debug)]
pub struct ChunkFolder<'a> {
    pagemap: &'a PagemapFile,
    folded: &'a mut FoldCounts,
    discards: DiscardBatch,
}

impl<'a> ChunkFolder<'a> {
    /// Creates a folder that adds to `folded`.
    pub const fn new(pagemap: &'a PagemapFile, folded: &'a mut FoldCounts) -> Self {
        Self { pagemap, folded, discards: DiscardBatch::new() }
    }

    /// Folds a window.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// The window is private anonymous memory that stays mapped until this returns, no thread writes to it, and no I/O
    /// into it is in progress.
    pub unsafe fn fold_window(&mut self, window: FoldWindow) -> Result<(), Errno> {
        let chunk_bytes = CHUNK_PAGES.saturating_mul(marks::page());
        let mut at = window.start;
        while at < window.end {
            let end = (at | chunk_bytes.wrapping_sub(1)).saturating_add(1).min(window.end);
            // SAFETY: a part of the window.
            unsafe { self.fold_chunk(at, end) }?;
            at = end;
        }
        // SAFETY: zero pages of the window.
        unsafe { self.discards.flush(self.folded) }
    }

    /// # Safety
    /// As [`Self::fold_window`].
    unsafe fn fold_chunk(&mut self, start: usize, end: usize) -> Result<(), Errno> {
        let page_bytes = marks::page();
        let mut found = ChunkRuns::new();
        self.pagemap.each_page(start, end, |page, state| match state {
            PageState::Absent => {}
            PageState::Shared => found.shared_pages = found.shared_pages.saturating_add(1),
            PageState::Exclusive => {
                found.exclusive_pages = found.exclusive_pages.saturating_add(1);
                let first = core::ptr::with_exposed_provenance(page);
                // SAFETY: a page of the window.
                if unsafe { zero::is_zero(first, page_bytes) } {
                    found.add_zero(page, page_bytes);
                } else {
                    found.kept = Some(page);
                }
            }
        })?;
        let bytes = |pages: usize| pages.saturating_mul(page_bytes) as u64;
        self.folded.looked = self.folded.looked.saturating_add(bytes(found.exclusive_pages));
        self.folded.shared = self.folded.shared.saturating_add(bytes(found.shared_pages));
        if found.count == 0 {
            return Ok(());
        }
        let remainder = found.kept.filter(|_| found.exclusive_pages == CHUNK_PAGES);
        let is_huge = remainder.and_then(|_| self.pagemap.is_huge(start, end));
        if is_huge == Some(true) && found.zero_pages < CHUNK_PAGES / 2 {
            self.folded.huge = self.folded.huge.saturating_add(bytes(found.zero_pages));
            return Ok(());
        }
        if !self.discards.has_space(found.count) {
            // SAFETY: zero pages of the window.
            unsafe { self.discards.flush(self.folded) }?;
        }
        found.all().iter().for_each(|(start, end)| self.discards.add(*start, *end));
        if let Some(page) = remainder.filter(|_| is_huge != Some(false)) {
            self.discards.add_split(page);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_hold_exactly_the_zero_pages(zero in proptest::collection::vec(any::<bool>(), CHUNK_PAGES)) {
            let mut runs = ChunkRuns::new();
            for (page, _) in zero.iter().enumerate().filter(|(_, is_zero)| **is_zero) {
                runs.add_zero(page * 4096, 4096);
            }
            let mut covered = vec![false; CHUNK_PAGES];
            for (start, end) in runs.all() {
                (start / 4096..end / 4096).for_each(|page| covered[page] = true);
            }
            prop_assert_eq!(runs.zero_pages, zero.iter().filter(|is_zero| **is_zero).count());
            prop_assert_eq!(covered, zero);
        }
    }
}
