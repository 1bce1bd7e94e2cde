//! Carries out jobs: from a scan and ksmd's state to the settings that carry the scan on.

use std::time::Duration;

use super::duty::{self, DutyRegulator};
use super::pass_end::ScanBoundary;
use super::progress::CLOSE;
use super::share::share;
use super::{KsmdState, ScanCoverage, ScanJob, ScanProgress};
use crate::knobs::{Knob, KnobSettings};

/// Starts scans, and remembers between them where ksmd stands and how its CPU share is held.
#[derive(Debug, Clone, Default)]
pub struct KsmScanner {
    duty: DutyRegulator,
    boundary: Option<ScanBoundary>,
    last_batch: Option<LastBatch>,
}

/// The last batch of a pass.
#[derive(Debug, Clone, Copy)]
struct LastBatch {
    full_scans: u64,
    /// Pages that ksmd will have passed since boot when the pass ends, at most. Where a process ends that was visited
    /// in this pass, more pages are left than seemed.
    passed: u64,
}

/// The settings that carry a scan on, and when they are to be looked at again.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanSettings {
    /// The settings of ksmd.
    pub knobs: KnobSettings,
    /// The time to the next look.
    pub check_after: Duration,
    /// Passes that ksmd will have completed when it is to rest.
    pub rest_after: Option<u64>,
    /// The share of a CPU that ksmd has, 0 to 1.
    pub share: f64,
    /// True if every page is visited at present.
    pub visits_all: bool,
}

impl KsmScanner {
    /// Starts a scan.
    pub fn start(&mut self, job: ScanJob, now: &KsmdState) -> ScanProgress {
        self.duty.reset();
        ScanProgress::begin(job, self.is_between_passes(now), now)
    }

    /// Records that a scan has ended and ksmd is stopped where it stands.
    pub fn finish(&mut self, scan: &ScanProgress) {
        self.duty.reset();
        self.boundary = scan.boundary();
    }

    /// Records that a scan is given up and ksmd is stopped.
    pub fn give_up(&mut self) {
        self.duty.reset();
    }

    /// Returns true if ksmd stands between two passes.
    pub fn is_between_passes(&self, now: &KsmdState) -> bool {
        ScanBoundary::holds(self.boundary, now)
    }

    /// Returns true if the pass ends within its last batch. If it has not, ksmd goes on as before: small batches with
    /// long sleeps would take minutes.
    fn ends_with(&mut self, left: u64, now: &KsmdState) -> bool {
        let passed = now.passed.unwrap_or(0);
        let batch = self.last_batch.filter(|batch| batch.full_scans == now.full_scans);
        let most = passed.saturating_add(duty::last_batch_pages(left));
        let batch = batch.unwrap_or(LastBatch { full_scans: now.full_scans, passed: most });
        self.last_batch = Some(batch);
        passed < batch.passed
    }

    /// The settings that carry `scan` on.
    pub fn settings(&mut self, scan: &ScanProgress, now: &KsmdState) -> ScanSettings {
        let share = share(scan.job.busy_share, now);
        let approach = scan.approach(share, now).filter(|left| self.ends_with(*left, now));
        let knobs = match approach {
            Some(left) => self.duty.last_batch(left, now.min_sleep_milliseconds),
            None => self.duty.knobs(share, now),
        };
        let skips = scan.job.coverage == ScanCoverage::NewThenAll && scan.may_skip(now);
        let visits_all = scan.job.coverage.is_clean() && !skips;
        let check_after = match approach {
            _ if skips => scan.skipping(share, now),
            // That every page is visited from here on is known only by a sample that shows the setting.
            _ if visits_all && scan.skips(now) => CLOSE,
            // Two looks have to see the sleep after the last batch.
            Some(_) => CLOSE,
            None => scan.check_after(share, now),
        };
        let knobs =
            knobs.with(Knob::AdvisorMode, 0).with(Knob::SmartScan, u64::from(!visits_all)).with(Knob::Run, 1);
        ScanSettings { knobs, check_after, rest_after: scan.rest_after(now), share, visits_all }
    }
}
