//! The allowance of each user in a shared resource: a token bucket, which fills at a steady rate up to its capacity.

use std::collections::BTreeMap;
use std::time::Duration;

/// A token bucket for each user. It is full at first.
#[derive(Debug, Clone)]
pub struct UserAllowance {
    capacity: f64,
    per_second: f64,
    /// The tokens left, and their time. A full bucket needs no entry.
    left: BTreeMap<u32, (Duration, f64)>,
}

impl UserAllowance {
    /// Creates buckets of `capacity` that fill in `period`.
    pub fn new(capacity: f64, period: Duration) -> Self {
        Self { capacity, per_second: capacity / period.as_secs_f64().max(f64::MIN_POSITIVE), left: BTreeMap::new() }
    }

    /// Returns the tokens that `user` has left at this time. A negative number is a debt: a cost was known only
    /// afterwards.
    pub fn left(&self, user: u32, now: Duration) -> f64 {
        let filled = |&(then, left): &(Duration, f64)| {
            (left + now.saturating_sub(then).as_secs_f64() * self.per_second).min(self.capacity)
        };
        self.left.get(&user).map_or(self.capacity, filled)
    }

    /// Takes `cost` from a user's tokens, even if there are fewer.
    pub fn charge(&mut self, user: u32, now: Duration, cost: f64) {
        let left = self.left(user, now) - cost.max(0.0);
        self.left.insert(user, (now, left));
        let full: Vec<u32> =
            self.left.keys().copied().filter(|&user| self.left(user, now) >= self.capacity).collect();
        for user in full {
            self.left.remove(&user);
        }
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
        let missing = (amount - self.left(user, now)).max(0.0);
        (amount <= self.capacity).then(|| Duration::try_from_secs_f64(missing / self.per_second).ok()).flatten()
    }

    /// Changes capacity and period. A user with more tokens than the new capacity has as many as that.
    pub fn configure(&mut self, capacity: f64, period: Duration) {
        let left = std::mem::take(&mut self.left);
        *self = Self { left, ..Self::new(capacity, period) };
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
        assert!(rate.left.len() <= 1);
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
