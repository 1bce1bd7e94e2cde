//! The account of the CPU time that reading for sketches takes.

use std::time::Duration;

/// The part of a CPU that reading may take on average.
const PART: f64 = 0.001;

/// CPU-seconds that may be unpaid: an hour's worth, so that a host that fills, or a daemon that starts on a full host,
/// is read at once.
const ALLOWANCE: f64 = 3600.0 * PART;

/// The CPU time that was spent, and the part of it that is not paid off.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SketchAccount {
    unpaid: f64,
    spent: f64,
    at: Duration,
}

impl SketchAccount {
    /// Pays off what the time since has earned.
    pub fn follow(&mut self, at: Duration) {
        let seconds = at.saturating_sub(std::mem::replace(&mut self.at, at)).as_secs_f64();
        self.unpaid = (self.unpaid - seconds * PART).max(0.0);
    }

    /// Charges CPU time that was spent.
    pub fn charge(&mut self, cpu_seconds: f64) {
        self.unpaid += cpu_seconds.max(0.0);
        self.spent += cpu_seconds.max(0.0);
    }

    /// Returns true if more may be read.
    pub fn allows(&self) -> bool {
        self.unpaid < ALLOWANCE
    }

    /// Returns true if everything is paid off.
    pub fn is_paid_off(&self) -> bool {
        self.unpaid <= 0.0
    }

    /// CPU-seconds that were spent so far.
    pub fn spent(&self) -> f64 {
        self.spent
    }
}
