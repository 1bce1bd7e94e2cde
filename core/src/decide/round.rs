//! One round of scanning: where it began, when everything has been looked at often enough, what it brought.

use std::time::Duration;

use super::{History, View};
use crate::sample::Sample;
use crate::units::Bytes;

/// A round of scanning in progress.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// When it began.
    pub began: Duration,
    cpu_ns: u64,
    saved_bytes: u64,
    visited: u64,
    passes: u64,
    /// Pages that a pass visits, as far as known when it began.
    pages: u64,
    /// Ends when `full_scans` passes this, or is at this with `then_visited` pages of the next pass done.
    full_scans: u64,
    then_visited: u64,
}

/// What a round brought and cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Bytes newly saved; negative when more diverged.
    pub saved_bytes: i64,
    /// ksmd's CPU, in seconds.
    pub cpu_seconds: f64,
    /// Pages visited. 0 before Linux 6.6.
    pub visited: u64,
}

impl Outcome {
    /// Bytes newly saved per second of ksmd's CPU.
    pub fn yield_per_cpu_second(&self) -> f64 {
        self.saved_bytes as f64 / self.cpu_seconds.max(1e-6)
    }

    /// The sentence for a round in progress.
    pub fn so_far(&self) -> String {
        format!("saved {} so far in {:.2} CPU-s", Bytes::from(self.saved_bytes), self.cpu_seconds)
    }
}

impl Round {
    /// Begins a round in which every page is to be visited `passes` times. `grown_pages` is the memory that was
    /// not there at the last one.
    ///
    /// A pass that is half done makes the counting harder: `full_scans` counts its end, but only its second half
    /// will have been looked at. So the round goes on into a further pass, to where it began. New processes are
    /// put right behind ksmd's cursor (`__ksm_enter` in `mm/ksm.c`), hence before that place.
    pub fn begin(passes: u64, grown_pages: u64, view: &View<'_>) -> Self {
        let ksm = &view.now.ksm;
        let (passes, then_visited) = match view.history.visited_in_pass(view.now) {
            Some(0) => (passes, 0),
            Some(done) => (passes, done.saturating_add(grown_pages)),
            // Nobody knows where ksmd stands.
            None => (passes + 1, 0),
        };
        Self {
            began: view.now.at,
            passes,
            cpu_ns: view.now.ksmd_cpu_ns.get().unwrap_or(0),
            saved_bytes: saved(view.now),
            visited: ksm.pages_scanned.get().unwrap_or(0),
            pages: ksm.tracked_pages().saturating_add(grown_pages),
            full_scans: ksm.full_scans.get().unwrap_or(0).saturating_add(passes),
            then_visited,
        }
    }

    /// Begins the counting anew, for `passes` visits of every page, as when memory grew meanwhile; cost and gain
    /// run on.
    pub fn extend(&mut self, passes: u64, grown_pages: u64, view: &View<'_>) {
        let anew = Self::begin(passes, grown_pages, view);
        self.passes = passes;
        self.pages = anew.pages;
        self.full_scans = anew.full_scans;
        self.then_visited = anew.then_visited;
    }

    /// Whether everything has been looked at.
    pub fn is_done(&self, view: &View<'_>) -> bool {
        let full_scans = view.now.ksm.full_scans.get().unwrap_or(0);
        full_scans > self.full_scans
            || full_scans == self.full_scans
                && view.history.visited_in_pass(view.now).unwrap_or(0) >= self.then_visited
    }

    /// Whether `full_scans` was reset (`run` = 2 does that): the end would be far away.
    pub fn is_lost(&self, view: &View<'_>) -> bool {
        view.now.ksm.full_scans.get().unwrap_or(0).saturating_add(self.passes + 1) < self.full_scans
    }

    /// What it brought so far.
    pub fn outcome(&self, now: &Sample) -> Outcome {
        let cpu_ns = now.ksmd_cpu_ns.get().unwrap_or(0).saturating_sub(self.cpu_ns);
        let gained = i128::from(saved(now)) - i128::from(self.saved_bytes);
        Outcome {
            saved_bytes: i64::try_from(gained).unwrap_or(i64::MAX),
            cpu_seconds: cpu_ns as f64 / 1e9,
            visited: now.ksm.pages_scanned.get().unwrap_or(0).saturating_sub(self.visited),
        }
    }

    /// When to look next: at the foreseen end of the pass, so that ksmd does not run on into another one, but
    /// often enough to hold the CPU budget. `share` is the part of a CPU that ksmd was given.
    pub fn check_after(&self, share: f64, view: &View<'_>) -> Duration {
        const SOONEST: Duration = Duration::from_millis(20);
        const LATEST: Duration = Duration::from_millis(250);
        let Some(done) = view.history.visited_in_pass(view.now) else { return LATEST };
        let left = self.pages.saturating_sub(done) as f64 * view.history.ns_per_page() / share.max(0.01);
        Duration::from_nanos(left as u64).clamp(SOONEST, LATEST)
    }
}

/// CPU-seconds that a clean pass would cost now. Pages that are merged already are only looked at in passing.
pub fn clean_pass_seconds(sample: &Sample, history: &History) -> f64 {
    let ksm = &sample.ksm;
    let pages = ksm.pages_unshared.get().unwrap_or(0).saturating_add(ksm.pages_volatile.get().unwrap_or(0));
    pages as f64 * history.ns_per_page() / 1e9
}

fn saved(sample: &Sample) -> u64 {
    sample.ksm.saved_pages().saturating_mul(sample.page_size)
}
