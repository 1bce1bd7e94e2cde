//! A token bucket: a budget that fills at a steady rate up to its capacity.

use std::time::Duration;

/// A token bucket. It is full at first, and may be overdrawn, since many a cost is known only afterwards.
///
/// Time arrives as an argument, from any fixed start. It counts from the first [`Self::refill`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenBucket {
    capacity: f64,
    per_second: f64,
    tokens: f64,
    /// The time of the last refill.
    at: Option<Duration>,
}

impl TokenBucket {
    /// Creates a full bucket. One of capacity 0 has no tokens in advance, and so only spaces what is charged.
    pub fn new(capacity: f64, per_second: f64) -> Self {
        Self { capacity, per_second, tokens: capacity, at: None }
    }

    /// Adds the tokens that came in until `now`. A time before that of the last refill adds none.
    pub fn refill(&mut self, now: Duration) {
        let then = self.at.unwrap_or(now);
        self.tokens = (self.tokens + self.per_second * now.saturating_sub(then).as_secs_f64()).min(self.capacity);
        self.at = Some(then.max(now));
    }

    /// Returns the tokens at the last refill less what was charged since. Negative: overdrawn.
    pub fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Returns the tokens in a full bucket.
    pub fn capacity(&self) -> f64 {
        self.capacity
    }

    /// Returns the tokens that come in in a second.
    pub fn per_second(&self) -> f64 {
        self.per_second
    }

    /// Returns true if no more tokens fit in.
    pub fn is_full(&self) -> bool {
        self.tokens >= self.capacity
    }

    /// Takes `cost` from the tokens, even if there are fewer. A negative cost counts as none.
    pub fn charge(&mut self, cost: f64) {
        self.tokens -= cost.max(0.0);
    }

    /// Returns the time until there are `amount` tokens; `None` if that is never. Zero: there are.
    pub fn time_until(&self, amount: f64) -> Option<Duration> {
        let missing = amount - self.tokens;
        if missing <= 0.0 {
            return Some(Duration::ZERO);
        }
        (amount <= self.capacity).then(|| Duration::try_from_secs_f64(missing / self.per_second).ok()).flatten()
    }

    /// Changes capacity and rate. The tokens stay, as far as they fit in.
    pub fn configure(&mut self, capacity: f64, per_second: f64) {
        *self = Self { capacity, per_second, tokens: self.tokens.min(capacity), at: self.at };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn tokens_come_in_with_time_up_to_the_capacity() {
        let mut bucket = TokenBucket::new(60.0, 2.0);
        bucket.refill(at(1000));
        assert!(bucket.is_full());
        bucket.charge(90.0);
        assert_eq!((bucket.tokens(), bucket.is_full()), (-30.0, false));
        assert_eq!(bucket.time_until(-30.0), Some(Duration::ZERO));
        assert_eq!(bucket.time_until(60.0), Some(at(45)));
        bucket.refill(at(1015));
        assert_eq!((bucket.tokens(), bucket.time_until(1.0)), (0.0, Some(Duration::from_millis(500))));
        bucket.refill(at(2000));
        assert_eq!((bucket.tokens(), bucket.is_full()), (60.0, true));
    }

    #[test]
    fn more_than_fits_in_never_comes() {
        let mut bucket = TokenBucket::new(60.0, 2.0);
        assert_eq!(bucket.time_until(61.0), None);
        bucket.configure(60.0, 0.0);
        bucket.charge(1.0);
        assert_eq!(bucket.time_until(60.0), None);
    }

    #[test]
    fn a_clock_that_goes_back_adds_nothing_twice() {
        let mut bucket = TokenBucket::new(60.0, 1.0);
        bucket.refill(at(100));
        bucket.charge(60.0);
        for now in [90, 100, 90, 110] {
            bucket.refill(at(now));
        }
        assert_eq!(bucket.tokens(), 10.0);
    }

    #[test]
    fn tokens_stay_as_far_as_they_fit_into_another_capacity() {
        let mut bucket = TokenBucket::new(60.0, 1.0);
        bucket.refill(at(0));
        bucket.charge(20.0);
        bucket.configure(100.0, 2.0);
        assert_eq!((bucket.tokens(), bucket.capacity()), (40.0, 100.0));
        bucket.configure(30.0, 2.0);
        assert_eq!(bucket.tokens(), 30.0);
        bucket.charge(70.0);
        bucket.configure(10.0, 2.0);
        bucket.refill(at(10));
        assert_eq!(bucket.tokens(), -20.0, "a debt stays, and the new rate is in force");
    }

    proptest! {
        #[test]
        fn what_is_taken_while_there_are_tokens_never_exceeds_the_capacity_and_what_came_in(
            capacity in 0.0_f64..100.0,
            per_second in 0.0_f64..10.0,
            wishes in prop::collection::vec((0_u64..1000, 0.0_f64..200.0), 0..100),
        ) {
            let mut bucket = TokenBucket::new(capacity, per_second);
            bucket.refill(at(0));
            let (mut now, mut taken) = (0, 0.0);
            for (wait, wish) in wishes {
                now += wait;
                bucket.refill(at(now));
                if bucket.tokens() >= wish {
                    bucket.charge(wish);
                    taken += wish;
                }
                prop_assert!(bucket.tokens() <= capacity);
                prop_assert!(taken <= capacity + per_second * now as f64 + 1e-6);
            }
        }

        #[test]
        fn the_tokens_are_there_after_the_time_until_them_and_not_before(
            cost in 0.1_f64..1000.0,
            part in 0.0_f64..1.0,
        ) {
            let mut bucket = TokenBucket::new(60.0, 2.0);
            bucket.refill(at(0));
            bucket.charge(cost);
            let amount = bucket.tokens() + part * (60.0 - bucket.tokens());
            let wait = bucket.time_until(amount).unwrap();
            let mut before = bucket;
            before.refill(wait.mul_f64(0.9));
            bucket.refill(wait);
            prop_assert!(bucket.tokens() >= amount - 1e-6);
            prop_assert!(before.tokens() <= amount);
        }
    }
}
