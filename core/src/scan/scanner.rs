//! Carries out jobs: from a scan and ksmd's state to the settings that carry the scan on.

use std::time::Duration;

use super::duty::{self, Duty};
use super::pass_end::Boundary;
use super::share::share;
use super::{Coverage, Ksmd, Scan, ScanJob};
use crate::knobs::{Knob, Knobs};

/// How often ksmd is looked at while a pass is about to end.
const CLOSE: Duration = Duration::from_millis(20);

/// The last batch of a pass has to take so much longer for ksmd to be woken for it, and is looked at so soon after that. So it
/// is seen that ksmd has not ended the pass before it could be told how long to sleep then.
const WOKEN: Duration = Duration::from_millis(6);

/// Starts scans, and remembers between them where ksmd stands and how its CPU share is held.
#[derive(Debug, Clone, Default)]
pub struct Scanner {
    duty: Duty,
    boundary: Option<Boundary>,
    last_batch: Option<LastBatch>,
}

/// The last batch of a pass.
#[derive(Debug, Clone, Copy)]
struct LastBatch {
    full_scans: u64,
    /// Pages that ksmd will have passed since boot when the pass ends, at most. Where a process ends that was visited in this pass,
    /// more pages are left than seemed.
    passed: u64,
    /// When ksmd was told, and whether it had not slept between batches until then. It sleeps once before the last batch.
    told: (Duration, bool),
    /// Whether it has been woken.
    is_woken: bool,
}

/// The settings that carry a scan on, and when they are to be looked at again.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The settings of ksmd.
    pub knobs: Knobs,
    /// When to look again.
    pub check_after: Duration,
    /// The share of a CPU that ksmd has, 0 to 1.
    pub share: f64,
    /// Whether every page is visited at present.
    pub visits_all: bool,
}

impl Scanner {
    /// Starts a scan.
    pub fn start(&mut self, job: ScanJob, now: &Ksmd) -> Scan {
        self.duty.reset();
        Scan::begin(job, self.is_between_passes(now), now)
    }

    /// Notes that a scan has ended and ksmd is stopped where it stands.
    pub fn finish(&mut self, scan: &Scan) {
        self.duty.reset();
        self.boundary = scan.boundary();
    }

    /// Notes that a scan is given up and ksmd is stopped.
    pub fn give_up(&mut self) {
        self.duty.reset();
    }

    /// Whether ksmd stands between two passes.
    pub fn is_between_passes(&self, now: &Ksmd) -> bool {
        Boundary::holds(self.boundary, now)
    }

    /// The last batch, if the pass ends within it. If it has not, ksmd goes on as before: small batches with long sleeps would
    /// take minutes.
    fn last_batch(&mut self, left: u64, now: &Ksmd) -> Option<&mut LastBatch> {
        let passed = now.passed.unwrap_or(0);
        let batch = self.last_batch.filter(|batch| batch.full_scans == now.full_scans);
        let first = || LastBatch {
            full_scans: now.full_scans,
            passed: passed.saturating_add(duty::last_batch_pages(left)),
            told: (now.at, now.sleep.is_zero()),
            is_woken: false,
        };
        Some(self.last_batch.insert(batch.unwrap_or_else(first))).filter(|batch| passed < batch.passed)
    }

    /// The settings for the last `left` visits of a pass, and when to look again. `None` if the pass should have ended.
    fn approach(&mut self, left: u64, scan: &Scan, now: &Ksmd) -> Option<(Knobs, Duration)> {
        let takes = scan.takes_at_least(left, now);
        let batch = self.last_batch(left, now)?;
        let (told_at, has_to_sleep) = batch.told;
        // By now it has ended the batch that it was in, and sleeps. Any other sleep wakes it (`sleep_millisecs_store` in mm/ksm.c).
        let is_to_wake =
            !batch.is_woken && has_to_sleep && now.at >= told_at.saturating_add(WOKEN) && takes >= WOKEN * 2;
        batch.is_woken |= is_to_wake;
        let is_woken = batch.is_woken;
        let knobs = self.duty.last_batch(left, now.min_sleep_milliseconds, is_woken);
        Some((knobs, if is_to_wake { WOKEN } else { CLOSE }))
    }

    /// The settings that carry `scan` on.
    pub fn settings(&mut self, scan: &Scan, now: &Ksmd) -> Settings {
        let share = share(scan.job.busy_share, now);
        let approach = scan.approach(share, now).and_then(|left| self.approach(left, scan, now));
        let (knobs, soon) = match approach {
            Some((knobs, soon)) => (knobs, Some(soon)),
            None => (self.duty.knobs(share, now), None),
        };
        let skips = scan.job.coverage == Coverage::NewThenAll && scan.may_skip(now);
        let visits_all = scan.job.coverage.is_clean() && !skips;
        let check_after = match soon {
            _ if skips => scan.skipping(share, now),
            // That every page is visited from here on is known only by a sample that shows the setting.
            _ if visits_all && scan.skips(now) => CLOSE,
            Some(soon) => soon,
            None => scan.check_after(share, now),
        };
        let knobs =
            knobs.with(Knob::AdvisorMode, 0).with(Knob::SmartScan, u64::from(!visits_all)).with(Knob::Run, 1);
        Settings { knobs, check_after, share, visits_all }
    }
}
