//! A limit for each user in any period: a sliding window.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A sliding window for each user: no period of the given length has more than so many.
#[derive(Debug, Clone)]
pub struct UserWindow {
    most: u64,
    period: Duration,
    /// Times and counts, the oldest first.
    taken: BTreeMap<u32, VecDeque<(Duration, u64)>>,
}

impl UserWindow {
    /// Allows `most` in any `period`.
    pub fn new(most: u64, period: Duration) -> Self {
        Self { most, period, taken: BTreeMap::new() }
    }

    /// Checks that the user may have `count` now.
    ///
    /// # Errors
    /// It may not: the time until it may, or `None` if it never may.
    pub fn check(&self, user: u32, now: Duration, count: u64) -> Result<(), Option<Duration>> {
        if count > self.most {
            return Err(None);
        }
        let taken = || self.taken.get(&user).into_iter().flatten();
        let recent = || taken().filter(|(then, _)| now.saturating_sub(*then) < self.period);
        let mut sum: u64 = recent().map(|(_, count)| count).sum();
        if sum + count <= self.most {
            return Ok(());
        }
        // Until enough of the oldest has left the window.
        let leaves = recent().find(|(_, old)| {
            sum -= old;
            sum + count <= self.most
        });
        Err(leaves.map(|(then, _)| (*then + self.period).saturating_sub(now)))
    }

    /// Takes `count` if the user may have as many now.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn take_count(&mut self, user: u32, now: Duration, count: u64) -> Result<(), Option<Duration>> {
        self.forget(now);
        self.check(user, now, count)?;
        self.taken.entry(user).or_default().push_back((now, count));
        Ok(())
    }

    /// Returns the user's newest `count`, which was not used.
    pub fn give_back(&mut self, user: u32, count: u64) {
        let Some(taken) = self.taken.get_mut(&user) else { return };
        let mut left = count;
        while let Some((_, newest)) = taken.back_mut().filter(|_| left > 0) {
            let part = left.min(*newest);
            (*newest, left) = (*newest - part, left - part);
            if *newest == 0 {
                taken.pop_back();
            }
        }
    }

    /// Changes the limit.
    pub fn configure(&mut self, most: u64) {
        self.most = most;
    }

    fn forget(&mut self, now: Duration) {
        let period = self.period;
        self.taken.retain(|_, taken| {
            while taken.front().is_some_and(|(then, _)| now.saturating_sub(*then) >= period) {
                taken.pop_front();
            }
            !taken.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_user_waits_for_its_oldest_to_leave_the_window() {
        let mut passes = UserWindow::new(4, HOUR);
        let at = Duration::from_secs;
        assert_eq!(passes.take_count(7, at(0), 3), Ok(()));
        assert_eq!(passes.take_count(7, at(600), 2), Err(Some(at(3000))));
        assert_eq!(passes.take_count(8, at(600), 4), Ok(()), "users have windows of their own");
        assert_eq!(passes.take_count(7, at(700), 5), Err(None), "more than any hour has");
        assert_eq!(passes.take_count(7, at(3600), 2), Ok(()));
        passes.give_back(7, 1);
        assert_eq!(passes.take_count(7, at(3700), 3), Ok(()));
        assert_eq!(passes.take_count(7, at(3700), 1), Err(Some(at(3500))));
    }

    proptest! {
        #[test]
        fn no_hour_has_more_than_allowed(wishes in prop::collection::vec((0_u64..1500, 1_u64..6), 0..60)) {
            let mut passes = UserWindow::new(8, HOUR);
            let (mut now, mut granted) = (Duration::ZERO, Vec::new());
            for (wait, wish) in wishes {
                now += Duration::from_secs(wait);
                match passes.take_count(1, now, wish) {
                    Ok(()) => granted.push((now, wish)),
                    Err(wait) => {
                        let wait = wait.unwrap();
                        prop_assert!(passes.clone().take_count(1, now + wait, wish).is_ok(), "it was told to come then");
                    }
                }
                let hour = granted.iter().filter(|(then, _)| now - *then < HOUR);
                prop_assert!(hour.map(|(_, count)| count).sum::<u64>() <= 8);
            }
        }
    }
}
