//! A limit on the decisions that are logged and recorded.
//!
//! Any user may have a process that may merge at one look and not at the next, and ksmd is parked and woken by turns.

use std::time::Duration;

use ksmith_core::token_bucket::TokenBucket;

/// Decisions that may come at once. Policies make some in an hour, and in a burst of guests some dozens.
const AT_ONCE: f64 = 120.0;

/// Decisions in a second over a long time: 8,640 in a day, some 2 MiB.
const PER_SECOND: f64 = 0.1;

/// A token bucket of decisions. Time is that of samples.
#[derive(Debug)]
pub(crate) struct DecisionRate {
    bucket: TokenBucket,
    left_out: u64,
}

impl Default for DecisionRate {
    fn default() -> Self {
        Self { bucket: TokenBucket::new(AT_ONCE, PER_SECOND), left_out: 0 }
    }
}

impl DecisionRate {
    /// Returns the number of decisions that were left out before this one; `None` if this one is to be left out too.
    pub(crate) fn admit(&mut self, now: Duration) -> Option<u64> {
        self.bucket.refill(now);
        if self.bucket.tokens() < 1.0 {
            self.left_out += 1;
            return None;
        }
        self.bucket.charge(1.0);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_without_end_are_left_out_and_counted() {
        let mut rate = DecisionRate::default();
        let mut at = |second| rate.admit(Duration::from_secs(second));
        assert_eq!((0..1000).filter(|_| at(0).is_some()).count(), AT_ONCE as usize);
        assert_eq!([at(10), at(10), at(20)], [Some(880), None, Some(1)]);
        assert!((20..86_420).filter(|second| at(*second).is_some()).count() < 8_700);
    }
}
