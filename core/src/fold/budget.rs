//! The CPU budget of folding: a token bucket.

use std::time::Duration;

/// A full bucket holds the share of this time.
const WINDOW: Duration = Duration::from_secs(300);

/// A token bucket of CPU time. It is full at first, and may be overdrawn: what an answer cost is known afterwards.
#[derive(Debug, Clone)]
pub(super) struct FoldBudget {
    /// CPU-seconds that come in per second.
    share: f64,
    /// CPU-seconds that may be used now. Negative: overdrawn.
    tokens: f64,
    /// The time of the last refill.
    at: Option<Duration>,
}

impl FoldBudget {
    pub fn new(share: f64) -> Self {
        let mut budget = Self { share, tokens: 0.0, at: None };
        budget.tokens = budget.capacity();
        budget
    }

    /// Replaces the share. The used CPU time stays used.
    pub fn configure(&mut self, share: f64) {
        let used = self.capacity() - self.tokens;
        self.share = share;
        self.tokens = (self.capacity() - used).min(self.capacity());
    }

    /// CPU-seconds in a full bucket.
    pub fn capacity(&self) -> f64 {
        self.share * WINDOW.as_secs_f64()
    }

    /// The part of one CPU that comes in.
    pub fn share(&self) -> f64 {
        self.share
    }

    pub fn refill(&mut self, at: Duration) {
        let passed = self.at.map_or(Duration::ZERO, |then| at.saturating_sub(then));
        self.at = Some(self.at.map_or(at, |then| then.max(at)));
        self.tokens = (self.tokens + self.share * passed.as_secs_f64()).min(self.capacity());
    }

    pub fn charge(&mut self, cpu: Duration) {
        self.tokens -= cpu.as_secs_f64();
    }

    pub fn tokens(&self) -> f64 {
        self.tokens
    }

    /// The time until there are so many CPU-seconds. Zero: there are.
    pub fn time_until(&self, tokens: f64) -> Duration {
        let missing = tokens.min(self.capacity()) - self.tokens;
        match missing > 0.0 {
            true => Duration::try_from_secs_f64(missing / self.share).unwrap_or(WINDOW),
            false => Duration::ZERO,
        }
    }
}
