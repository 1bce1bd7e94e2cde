//! The allowance of each user in a shared resource.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::token_bucket::TokenBucket;

/// A token bucket for each user. It is full at first.
#[derive(Debug, Clone)]
pub struct UserAllowance {
    /// The bucket of a user without an entry.
    full: TokenBucket,
    buckets: BTreeMap<u32, TokenBucket>,
}

impl UserAllowance {
    /// Creates buckets of `capacity` that fill in `period`.
    pub fn new(capacity: f64, period: Duration) -> Self {
        let per_second = capacity / period.as_secs_f64().max(f64::MIN_POSITIVE);
        Self { full: TokenBucket::new(capacity, per_second), buckets: BTreeMap::new() }
    }

    /// Returns the tokens that `user` has left at this time. A negative number is a debt: a cost was known only
    /// afterwards.
    pub fn left(&self, user: u32, now: Duration) -> f64 {
        self.bucket(user, now).tokens()
    }

    fn bucket(&self, user: u32, now: Duration) -> TokenBucket {
        let mut bucket = self.buckets.get(&user).copied().unwrap_or(self.full);
        bucket.refill(now);
        bucket
    }

    /// Takes `cost` from a user's tokens, even if there are fewer.
    pub fn charge(&mut self, user: u32, now: Duration, cost: f64) {
        let mut charged = self.bucket(user, now);
        charged.charge(cost);
        self.buckets.insert(user, charged);
        self.buckets.retain(|_, bucket| {
            bucket.refill(now);
            !bucket.is_full()
        });
    }

    /// Takes `cost` if `user` has as many tokens, and returns true if it did.
    pub fn take_tokens(&mut self, user: u32, now: Duration, cost: f64) -> bool {
        let has = self.left(user, now) >= cost;
        if has {
            self.charge(user, now, cost);
        }
        has
    }

    /// Returns the time until `user` has `amount` tokens. `None`: never.
    pub fn wait(&self, user: u32, now: Duration, amount: f64) -> Option<Duration> {
        self.bucket(user, now).time_until(amount)
    }

    /// Changes capacity and period. A user with more tokens than the new capacity has as many as that.
    pub fn configure(&mut self, capacity: f64, period: Duration) {
        self.full = Self::new(capacity, period).full;
        self.buckets.values_mut().for_each(|bucket| bucket.configure(capacity, self.full.per_second()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn tokens_come_back_with_time() {
        let mut budget = UserAllowance::new(60.0, HOUR);
        let at = Duration::from_secs;
        assert_eq!(budget.left(7, at(0)), 60.0);
        budget.charge(7, at(0), 90.0);
        assert_eq!(budget.left(7, at(0)), -30.0);
        assert_eq!(budget.left(8, at(0)), 60.0, "users have buckets of their own");
        assert_eq!(budget.wait(7, at(0), 0.0), Some(at(1800)));
        assert!(!budget.take_tokens(7, at(1200), 1.0));
        assert!(budget.take_tokens(7, at(1860), 1.0));
        assert_eq!(budget.wait(7, at(0), 61.0), None);
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let mut rate = UserAllowance::new(10.0, Duration::from_secs(1));
        (0..1000).for_each(|user| rate.charge(user, Duration::from_secs(u64::from(user) * 2), 1.0));
        assert!(rate.buckets.len() <= 1);
    }

    proptest! {
        #[test]
        fn no_user_takes_more_than_the_capacity_and_what_filled_it(
            wishes in prop::collection::vec((0_u64..1000, 0.0_f64..30.0), 0..100)
        ) {
            let mut budget = UserAllowance::new(60.0, HOUR);
            let (mut now, mut taken) = (Duration::ZERO, 0.0);
            for (wait, wish) in wishes {
                now += Duration::from_secs(wait);
                if budget.take_tokens(1, now, wish) {
                    taken += wish;
                }
                prop_assert!(taken <= 60.0 + now.as_secs_f64() * 60.0 / 3600.0 + 1e-6);
            }
        }
    }
}
