//! The start of the counting of passes, and the last progress of ksmd.

use std::time::Duration;

use super::KsmdState;

/// Pages by which the tracked pages must have grown for ksmd to have reached new memory.
const REACHED: u64 = 64;

/// A ksmd that sleeps, and has made no progress for so long over its sleep, has nothing to scan.
const STALLED: Duration = Duration::from_secs(5);

/// CPU time that counts as progress. Waking up alone takes some microseconds.
const WORK_NS: u64 = 1_000_000;

/// The start of the counting of passes: the start of a scan, or the last growth of memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct PassCount {
    /// True if ksmd stood between two passes.
    pub(super) is_aligned: bool,
    pub(super) full_scans: u64,
    visited: u64,
    zero_pages: u64,
    tracked_of_living: u64,
    /// Pages that the first pass visits, as far as known when it began.
    pages: u64,
    /// True if enough new memory is expected for the tracked pages to grow.
    pub(super) expects_new: bool,
}

impl PassCount {
    pub(super) fn begin(is_aligned: bool, new_pages: u64, now: &KsmdState) -> Self {
        Self {
            is_aligned,
            full_scans: now.full_scans,
            visited: now.visited.unwrap_or(0),
            zero_pages: now.zero_pages,
            tracked_of_living: now.tracked_of_living,
            pages: now.tracked.saturating_add(new_pages),
            expects_new: new_pages > 2 * REACHED,
        }
    }

    /// Adds so many pages that are ahead.
    pub(super) fn expect(&mut self, new_pages: u64) {
        self.pages = self.pages.saturating_add(new_pages);
        self.expects_new |= new_pages > 2 * REACHED;
    }

    /// Returns true if the pass of this number began with the count or later.
    pub(super) fn counts(&self, pass: u64) -> bool {
        pass >= self.full_scans.saturating_add(u64::from(!self.is_aligned))
    }

    /// Passes that have ended since.
    pub(super) fn ends(&self, now: &KsmdState) -> u64 {
        now.full_scans.saturating_sub(self.full_scans)
    }

    /// Returns true if ksmd has reached memory that it did not track.
    pub(super) fn has_reached_new(&self, now: &KsmdState) -> bool {
        now.tracked_of_living > self.tracked_of_living.saturating_add(REACHED)
    }

    /// Visits until every page has been visited `passes` times. `None` before Linux 6.6.
    pub(super) fn visits_left(&self, passes: u64, now: &KsmdState) -> Option<u64> {
        let done = now.visited?.saturating_sub(self.visited);
        // In the first pass most new pages are not tracked yet. Pages that merged with the zero page were visited and are
        // tracked no more.
        let zero = now.zero_pages.saturating_sub(self.zero_pages);
        let pages = if now.full_scans == self.full_scans { self.pages } else { now.tracked.saturating_add(zero) };
        Some(passes.saturating_mul(pages).saturating_sub(done))
    }
}

/// The state of ksmd when it last made progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct KsmdProgress {
    at: Duration,
    figures: (u64, u64, u64),
}

impl KsmdProgress {
    pub(super) fn from_ksmd(now: &KsmdState) -> Self {
        // Before Linux 6.6, which counts no visits, CPU time stands for them.
        let worked = now.visited.unwrap_or(now.cpu_ns.unwrap_or(0) / WORK_NS);
        Self { at: now.at, figures: (now.full_scans, worked, now.tracked) }
    }

    /// Records progress. Returns true if there was none for too long.
    pub(super) fn is_stalled(&mut self, now: &KsmdState) -> bool {
        let here = Self::from_ksmd(now);
        // At the start of a pass it waits for workers that empty the lists of pages (`lru_add_drain_all`), on busy CPUs for long.
        if here.figures != self.figures || now.is_in_batch {
            *self = here;
        }
        now.at.saturating_sub(self.at) > STALLED.saturating_add(now.sleep * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::PassHistory;
    use crate::limits::PolicyLimits;
    use crate::sample::Sample;

    /// The second at which a ksmd without progress counts as one that has nothing to scan.
    fn stalled_at(is_in_batch: bool) -> Option<u64> {
        let at = |second| {
            let at = Duration::from_secs(second);
            let sample = Sample { at, is_ksmd_in_batch: is_in_batch && second < 40, ..Sample::default() };
            KsmdState::from_sample(&sample, &PassHistory::default(), &PolicyLimits::default())
        };
        let mut progress = KsmdProgress::from_ksmd(&at(0));
        (0..100).find(|second| progress.is_stalled(&at(*second)))
    }

    #[test]
    fn a_ksmd_that_has_yet_to_end_its_batch_has_not_come_to_the_end_of_its_work() {
        assert_eq!(stalled_at(false), Some(6));
        assert_eq!(stalled_at(true), Some(45));
    }
}
