//! Ends of passes, as far as samples show them, and whether ksmd stands at one.

use std::time::Duration;

use super::KsmdState;
use crate::sample::BoundaryPause;

/// From the decision to stop ksmd until it has stopped.
const REACTION: Duration = Duration::from_millis(25);

/// ksmd at one sample, as far as the next sample is compared with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct KsmdGlimpse {
    /// The interval within which ksmd was sampled.
    at: (Duration, Duration),
    pub(super) full_scans: u64,
    /// Pages that ksmd had passed since boot.
    pub(super) passed: u64,
    sleep: Duration,
    rests: bool,
}

impl KsmdGlimpse {
    pub(super) fn from_ksmd(now: &KsmdState) -> Self {
        let at = (now.at, now.at.saturating_add(now.took));
        Self {
            at,
            full_scans: now.full_scans,
            passed: now.passed.unwrap_or(0),
            sleep: now.sleep,
            rests: now.rest == BoundaryPause::Resting,
        }
    }

    /// Returns true if ksmd, which has ended a pass since `before`, still sleeps there and has visited no page of the
    /// next.
    ///
    /// One that rests does. Any other sleeps after the last batch of a pass as after any. A setting that was written
    /// meanwhile may have woken it, so the sleep has to be as long as at the sample before.
    pub(super) fn is_at_end(&self, before: &Self) -> bool {
        let sleeps = self.at.1.saturating_sub(before.at.0).saturating_add(REACTION) < self.sleep;
        self.rests || sleeps && self.sleep == before.sleep
    }
}

/// The end of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PassEnd {
    visited: u64,
    /// Upper bound of the pages that ksmd had passed at the end: as of the sample that shows it.
    pub(super) passed: u64,
    /// Lower bound of the same: as of the sample before.
    pub(super) passed_at_least: u64,
    /// True if ksmd still slept where it had stopped.
    is_exact: bool,
    zero_pages: u64,
}

impl PassEnd {
    /// The end that the sample `now` shows. `before`: pages that ksmd had passed at the sample before.
    pub(super) fn from_ksmd(now: &KsmdState, is_exact: bool, before: u64) -> Self {
        let passed = now.passed.unwrap_or(0);
        let passed_at_least = if is_exact { passed } else { before };
        Self { visited: now.visited.unwrap_or(0), passed, passed_at_least, is_exact, zero_pages: now.zero_pages }
    }

    /// Pages that the pass which began here leaves to the next when all but `left` have been passed: first visits and
    /// pages that were found changed.
    ///
    /// `left_pages = in_no_tree - newly_merged_zero_pages - left`
    pub(super) fn leaves(&self, left: u64, now: &KsmdState) -> u64 {
        let zero_pages = now.zero_pages.saturating_sub(self.zero_pages);
        now.in_no_tree.unwrap_or(u64::MAX).saturating_sub(zero_pages).saturating_sub(left)
    }

    /// The pages that the pass leaves to the next and that may merge: the others change all the time. The passed part
    /// of these is taken to be that of all pages.
    pub(super) fn leaves_stable(&self, left: u64, now: &KsmdState) -> u64 {
        let passed_part = now.tracked.saturating_sub(left) as f64 / now.tracked.max(1) as f64;
        self.leaves(left, now).saturating_sub((now.changing as f64 * passed_part) as u64)
    }

    /// The place where ksmd stands, if that is between two passes.
    pub(super) fn boundary(&self, full_scans: u64) -> Option<ScanBoundary> {
        self.is_exact.then_some(ScanBoundary { full_scans, visited: self.visited })
    }
}

/// A place between two passes where ksmd stopped.
///
/// The kernel puts new processes behind ksmd's cursor (`__ksm_enter` in `mm/ksm.c`). So only from such a place does the
/// next pass visit them all, and old memory before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScanBoundary {
    full_scans: u64,
    visited: u64,
}

impl ScanBoundary {
    /// Returns true if ksmd stands between two passes: it never started, or is still where it was stopped.
    pub(super) fn holds(boundary: Option<Self>, now: &KsmdState) -> bool {
        let has_begun = now.full_scans > 0 || now.tracked > 0;
        !has_begun || boundary.is_some_and(|at| Some(at.visited) == now.visited && at.full_scans == now.full_scans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{PassHistory, PolicyLimits};
    use crate::sample::Sample;

    #[test]
    fn of_pages_that_change_all_the_time_those_ahead_are_not_taken_off_twice() {
        let now = KsmdState::from_sample(&Sample::default(), &PassHistory::default(), &PolicyLimits::default());
        let now = KsmdState { tracked: 10_000, in_no_tree: Some(5_600), changing: 1000, ..now };
        let end = PassEnd::from_ksmd(&now, true, 0);
        assert_eq!((end.leaves(5000, &now), end.leaves_stable(5000, &now)), (600, 100));
        assert_eq!((end.leaves(0, &now), end.leaves_stable(0, &now)), (5600, 4600));
        let gone = KsmdState { tracked: 0, ..now };
        assert_eq!(end.leaves_stable(0, &gone), 5600, "none is tracked");
    }
}
