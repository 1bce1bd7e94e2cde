//! One pass over a process: reads each huge page, splits those with enough zeros, and counts the freed pages.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::FoldError;
use super::look::{CountUntil, ZeroCounter};
use super::split::{collapse, split};
use super::tally::{FoldTally, LeftBytes};
use super::target::FoldTarget;
use crate::memory::error::UnreadableProcess;
use crate::memory::page_ranges::{PageKinds, PageQuery};
use crate::own_use::thread_cpu;

/// Huge pages in a thread's unit of work.
const CHUNK: usize = 16;

/// Huge pages that one call splits. The kernel holds the process's `mmap_lock` for reading meanwhile. A call of the
/// program that changes its mappings waits for that many splits, of some 0.3 ms each.
const BATCH: usize = 4;

/// Consecutive failures to collapse small pages after which the pass ends: the kernel has no free huge page then.
pub(super) const MOST_FAILURES: u32 = 16;

/// The least zero part of small pages for them to be put together, in thousandths.
const LEAST_ZERO_TO_COLLAPSE: u32 = 125;

/// Settings of a pass.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldSettings {
    /// The least part of a huge page that must be zero for it to be split, in thousandths.
    pub least_zero_permille: u32,
    /// Threads that read and split.
    pub threads: usize,
    /// True if small pages, an eighth of them zero or more, are put together into huge pages, to be split. It costs some 2 ms of CPU
    /// for each.
    pub collapses: bool,
    /// True if nothing is split: all zeros are counted instead.
    pub is_dry_run: bool,
    /// CPU time after which a pass ends early; `None` for no limit.
    pub cpu_limit: Option<Duration>,
}

impl Default for FoldSettings {
    fn default() -> Self {
        Self { least_zero_permille: 125, threads: 1, collapses: false, is_dry_run: false, cpu_limit: None }
    }
}

impl FoldSettings {
    /// Returns the least zero pages for which a huge page of `pages` pages is split.
    pub(super) fn enough(&self, pages: usize) -> usize {
        part_of(pages, self.least_zero_permille.clamp(1, 1000))
    }

    /// The zero pages from which on so many small pages are put together, to be split. No fewer than for a split alone, which costs a
    /// seventh.
    fn enough_to_collapse(&self, pages: usize) -> usize {
        self.enough(pages).max(part_of(pages, LEAST_ZERO_TO_COLLAPSE))
    }
}

/// So many thousandths of a number of pages, rounded up.
fn part_of(pages: usize, permille: u32) -> usize {
    (pages * permille as usize).div_ceil(1000)
}

impl FoldTarget {
    /// Makes one pass: splits the huge pages with enough zeros. The kernel frees these zeros.
    ///
    /// # Errors
    /// The process can't be read or has ended, or this user may not split its huge pages.
    pub fn fold(&self, settings: &FoldSettings) -> Result<FoldTally, FoldError> {
        let begin = thread_cpu();
        let memory = self.find_anonymous()?;
        let chunks = cut(&memory.huge, (self.huge_size * CHUNK) as u64);
        let small = memory.small.iter().map(|range| range.end - range.start).sum();
        let left = LeftBytes { small, ..LeftBytes::default() };
        let mut tally = FoldTally { left, ..FoldTally::default() };
        tally.add_cpu(thread_cpu().saturating_sub(begin));
        let shared = SharedPass {
            target: self,
            settings,
            chunks: &chunks,
            next: AtomicUsize::new(0),
            outcome: Mutex::new(Ok(tally)),
        };
        let threads = settings.threads.clamp(1, chunks.len().max(1));
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| shared.work());
            }
            shared.work();
        });
        if settings.collapses && !settings.is_dry_run {
            shared.fold_small(&memory.small);
        }
        let mut tally = shared.outcome.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        tally.left.small = tally.left.small.saturating_sub(tally.collapsed_bytes);
        Ok(tally)
    }
}

/// The state of a pass that its threads share.
struct SharedPass<'a> {
    target: &'a FoldTarget,
    settings: &'a FoldSettings,
    chunks: &'a [Range<u64>],
    next: AtomicUsize,
    /// The tally so far, or the first error, which ends the pass.
    outcome: Mutex<Result<FoldTally, FoldError>>,
}

impl SharedPass<'_> {
    /// Folds chunk after chunk, until none is left or the pass is over.
    fn work(&self) {
        let pages = self.target.huge_size / self.target.page_size;
        let enough = self.settings.enough(pages);
        let mut counter = ZeroCounter::new(self.target.page_size, self.target.huge_size, enough);
        loop {
            let begin = thread_cpu();
            let Some(chunk) = self.chunks.get(self.next.fetch_add(1, Relaxed)) else { return };
            let mut tally = FoldTally::default();
            let done = self.fold_chunk(chunk, &mut counter, &mut tally);
            tally.add_cpu(thread_cpu().saturating_sub(begin));
            if !self.is_to_go_on(&tally, done) {
                return;
            }
        }
    }

    /// Folds small pages: a whole huge page's worth of them with enough zeros is collapsed first. Memory that a program
    /// has mapped piece by piece is in small pages where two pieces meet.
    fn fold_small(&self, small: &[Range<u64>]) {
        let FoldTarget { page_size, huge_size, .. } = self.target;
        let size = *huge_size as u64;
        let enough = self.settings.enough_to_collapse(huge_size / page_size);
        let mut counter = ZeroCounter::new(*page_size, *huge_size, enough);
        let mut failures = 0;
        let whole = |range: &Range<u64>| {
            let first = range.start.next_multiple_of(size);
            (first..range.end.saturating_sub(size - 1)).step_by(*huge_size)
        };
        for start in small.iter().flat_map(whole) {
            let begin = thread_cpu();
            let mut tally = FoldTally::default();
            let done = self.fold_small_range(start, &mut counter, &mut tally);
            tally.add_cpu(thread_cpu().saturating_sub(begin));
            failures = if let Ok(false) = done { failures + 1 } else { 0 };
            if !self.is_to_go_on(&tally, done.map(drop)) || failures == MOST_FAILURES {
                return;
            }
        }
    }

    /// Folds a huge page's worth of small pages. Returns false if the kernel could not collapse them.
    fn fold_small_range(
        &self,
        start: u64,
        counter: &mut ZeroCounter,
        tally: &mut FoldTally,
    ) -> Result<bool, FoldError> {
        let FoldTarget { memory, process, pidfd, huge_size, .. } = self.target;
        let size = *huge_size as u64;
        if !self.target.are_exclusive(start, size).map_err(UnreadableProcess::from_io)?
            || counter.count(&memory.mem, process.pid, start, CountUntil::Enough)?.is_none()
        {
            return Ok(true);
        }
        if !collapse(pidfd, start, *huge_size)? {
            return Ok(false);
        }
        tally.collapsed_bytes += size;
        tally.foldable_bytes += size;
        self.split_batch(&[start], tally).map(|()| true)
    }

    /// Adds the outcome of a chunk. Returns true if the pass goes on.
    fn is_to_go_on(&self, tally: &FoldTally, done: Result<(), FoldError>) -> bool {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(sum) = &mut *outcome else { return false };
        sum.add(tally);
        let is_within = self.settings.cpu_limit.is_none_or(|limit| sum.cpu_seconds < limit.as_secs_f64());
        let has_failed = done.is_err();
        if let Err(why) = done {
            *outcome = Err(why);
        }
        is_within && !has_failed
    }

    /// Reads the huge pages of a chunk, and splits those with enough zeros.
    fn fold_chunk(
        &self,
        chunk: &Range<u64>,
        counter: &mut ZeroCounter,
        tally: &mut FoldTally,
    ) -> Result<(), FoldError> {
        let FoldTarget { memory, process, page_size, huge_size, .. } = self.target;
        let until = if self.settings.is_dry_run { CountUntil::End } else { CountUntil::Enough };
        let size = *huge_size as u64;
        let mut batch = Vec::with_capacity(BATCH);
        for huge_page in chunk.clone().step_by(*huge_size) {
            tally.looked_bytes += size;
            match counter.count(&memory.mem, process.pid, huge_page, until)? {
                None => tally.left.few_zeros += size,
                Some(zeros) => {
                    tally.foldable_bytes += size;
                    tally.zero_bytes += (zeros * page_size) as u64;
                    batch.push(huge_page);
                }
            }
            let is_last = huge_page + size >= chunk.end;
            if !self.settings.is_dry_run && (batch.len() == BATCH || is_last) {
                self.split_batch(&batch, tally)?;
                batch.clear();
            }
        }
        Ok(())
    }

    /// Splits huge pages, and counts the freed pages and those left by reason.
    fn split_batch(&self, huge_pages: &[u64], tally: &mut FoldTally) -> Result<(), FoldError> {
        let Some((first, last)) = huge_pages.first().zip(huge_pages.last()) else { return Ok(()) };
        let target = self.target;
        let size = target.huge_size as u64;
        let mut refused = Vec::new();
        split(&target.pidfd, huge_pages, target.page_size, |huge_page| refused.push(huge_page))?;
        let mut whole = Vec::new();
        let query = PageQuery { any_of: PageKinds::HUGE.and(PageKinds::ZERO_MAPPED), ..PageQuery::default() };
        target.each_range(*first..last + size, query, |range, kinds| {
            if kinds.contains(PageKinds::HUGE) {
                whole.extend(range.step_by(target.huge_size).filter(|page| huge_pages.contains(page)));
            } else if huge_pages.binary_search(&(range.start / size * size)).is_ok() {
                tally.freed_bytes += range.end - range.start;
            }
        })?;
        tally.split_bytes += size * (huge_pages.len() - whole.len()) as u64;
        for huge_page in whole {
            let is_exclusive = target.is_exclusive(huge_page).map_err(UnreadableProcess::from_io)?;
            *match () {
                () if refused.contains(&huge_page) => &mut tally.left.locked,
                () if is_exclusive => &mut tally.left.pinned,
                () => &mut tally.left.shared,
            } += size;
        }
        Ok(())
    }
}

/// Cuts ranges into pieces of at most `most` bytes.
fn cut(ranges: &[Range<u64>], most: u64) -> Vec<Range<u64>> {
    let cut_one = |range: &Range<u64>| {
        let end = range.end;
        range.clone().step_by(most as usize).map(move |start| start..(start + most).min(end))
    };
    ranges.iter().flat_map(cut_one).collect()
}
