//! Rate limits of connections and requests.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ksmith_core::job::UserAllowance;

use crate::socket::connections_for_delay;

/// Connections of an accountable user, and lines, that may come at once. As many may come again after [`PERIOD`]. There
/// is no limit of all users together, by which some could keep `ksmith serve` from asking.
const OF_A_USER: f64 = 64.0;

const PERIOD: Duration = Duration::from_secs(4);

const ROOT: u32 = 0;

/// The token buckets of all users. Root has no limit.
#[derive(Debug)]
pub(super) struct ViewRate {
    started: Instant,
    buckets: Mutex<UserAllowance>,
}

impl ViewRate {
    /// Creates full buckets.
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), buckets: Mutex::new(UserAllowance::new(OF_A_USER, PERIOD)) }
    }

    /// Counts a connection or a line.
    ///
    /// # Errors
    /// There were too many; says what to do.
    pub(super) fn count(&self, user: u32) -> Result<(), String> {
        let now = self.started.elapsed();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if user == ROOT || buckets.take_tokens(user, now, 1.0) {
            return Ok(());
        }
        Err(format!("user {user} sends too many requests; wait {} s", PERIOD.as_secs()))
    }

    /// Counts more connections for a look at a user's process that held up the accept loop.
    pub(super) fn charge_delay(&self, user: u32, delay: Duration) {
        let cost = connections_for_delay(delay, OF_A_USER / PERIOD.as_secs_f64());
        if user != ROOT && cost > 0.0 {
            let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            buckets.charge(user, self.started.elapsed(), cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_asks_without_end_nor_keeps_another_from_asking() {
        let may = |rate: &ViewRate, user: u32| (0..100_000).take_while(|_| rate.count(user).is_ok()).count();
        let rate = ViewRate::new();
        for user in 1..=100 {
            let alone = may(&rate, user);
            assert!((64..1000).contains(&alone), "user {user}: {alone}");
        }
        assert_eq!(may(&rate, ROOT), 100_000);
    }

    #[test]
    fn a_user_that_keeps_the_accept_loop_waiting_may_connect_less() {
        let rate = ViewRate::new();
        for user in [ROOT, 1] {
            // A read of each of these processes stalls.
            (0..16).for_each(|_| rate.charge_delay(user, Duration::from_millis(50)));
        }
        assert!(rate.count(1).is_err() && rate.count(2).is_ok() && rate.count(ROOT).is_ok());
        // One look that a busy host makes long costs a user little.
        rate.charge_delay(3, Duration::from_secs(5));
        assert!(rate.count(3).is_ok());
    }
}
