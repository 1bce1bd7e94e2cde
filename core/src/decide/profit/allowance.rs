//! The CPU time that ksmd may use where each moment of it delays a whole job.

use crate::scan::KsmdState;
use crate::token_bucket::TokenBucket;

/// CPU-seconds that ksmd may use in advance: two passes over a gigabyte.
const ADVANCE: f64 = 1.0;

/// A token bucket of ksmd's CPU-seconds. A scan begins when its expected cost has come in, or the bucket is full; it may overdraw
/// the bucket then, and the next one waits.
#[derive(Debug, Clone)]
pub struct DelayAllowance {
    bucket: TokenBucket,
    cpu_ns: Option<u64>,
}

impl DelayAllowance {
    /// An allowance of so many per cent of the time; of 100 it never ends.
    pub fn new(percent: f64) -> Self {
        let advance = if percent < 100.0 { ADVANCE } else { f64::INFINITY };
        Self { bucket: TokenBucket::new(advance, percent / 100.0), cpu_ns: None }
    }

    /// Records the next sample. Returns true if ksmd has used more than it may. Where its CPU time can't be read it is
    /// not limited.
    pub fn follow(&mut self, now: &KsmdState) -> bool {
        self.bucket.refill(now.at);
        if let Some((before, cpu_ns)) = self.cpu_ns.zip(now.cpu_ns) {
            self.bucket.charge(cpu_ns.saturating_sub(before) as f64 / 1e9);
        }
        self.cpu_ns = now.cpu_ns;
        self.bucket.tokens() < 0.0
    }

    /// Returns true if a scan of so many CPU-seconds may begin.
    pub fn affords(&self, cpu_seconds: f64) -> bool {
        self.bucket.is_full() || self.bucket.tokens() >= cpu_seconds
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::history::PassHistory;
    use crate::limits::PolicyLimits;
    use crate::sample::Sample;

    #[test]
    fn what_is_overdrawn_comes_in_again_with_time() {
        let none = KsmdState::from_sample(&Sample::default(), &PassHistory::default(), &PolicyLimits::default());
        let at = |second, cpu_ms: u64| KsmdState {
            at: Duration::from_secs(second),
            cpu_ns: Some(cpu_ms * 1_000_000),
            ..none
        };
        let mut allowance = DelayAllowance::new(2.0);
        let mut spent = |second, cpu_ms| allowance.follow(&at(second, cpu_ms));
        assert_eq!([spent(1, 5000), spent(2, 5900), spent(3, 6900)], [false, false, true]);
        assert_eq!([spent(40, 6900), spent(60, 6900)], [true, false]);
        let mut affords = |second, cpu_seconds| {
            allowance.follow(&at(second, 6900));
            allowance.affords(cpu_seconds)
        };
        assert!(!affords(60, 0.5) && affords(95, 0.5));
        assert!(!affords(96, 1.5), "the bucket is not full");
        assert!(affords(120, 1.5), "more does not fit in");
        let mut unlimited = DelayAllowance::new(100.0);
        unlimited.follow(&at(1, 0));
        assert!(!unlimited.follow(&at(2, 100_000)));
    }
}
