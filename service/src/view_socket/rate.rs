//! Rate limits of connections and requests.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ksmith_core::job::UserAllowance;

/// Connections of a user, and lines, that may come at once. As many may come again after [`PERIOD`].
const OF_A_USER: f64 = 64.0;

/// The same of all users together: a user may have many more by a user namespace.
const OF_ALL: f64 = 256.0;

const PERIOD: Duration = Duration::from_secs(4);

const ROOT: u32 = 0;

/// The token buckets of all users. Root has no limit.
#[derive(Debug)]
pub(super) struct ViewRate {
    started: Instant,
    buckets: Mutex<RateBuckets>,
}

#[derive(Debug)]
struct RateBuckets {
    each: UserAllowance,
    /// One bucket, which counts as user 0's.
    all: UserAllowance,
}

impl ViewRate {
    /// Creates full buckets.
    pub(super) fn new() -> Self {
        let buckets =
            RateBuckets { each: UserAllowance::new(OF_A_USER, PERIOD), all: UserAllowance::new(OF_ALL, PERIOD) };
        Self { started: Instant::now(), buckets: Mutex::new(buckets) }
    }

    /// Counts a connection or a line.
    ///
    /// # Errors
    /// There were too many; says what to do.
    pub(super) fn count(&self, user: u32) -> Result<(), String> {
        let now = self.started.elapsed();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if user == ROOT || (buckets.each.take_tokens(user, now, 1.0) && buckets.all.take_tokens(0, now, 1.0)) {
            return Ok(());
        }
        Err(format!("user {user} asks too often; wait {} s", PERIOD.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_user_nor_all_users_together_ask_without_end() {
        let may = |rate: &ViewRate, user: u32| (0..100_000).take_while(|_| rate.count(user).is_ok()).count();
        let rate = ViewRate::new();
        let alone = may(&rate, 7);
        assert!((64..1000).contains(&alone), "{alone}");
        let rate = ViewRate::new();
        let together: usize = (1..=1000).map(|user| usize::from(rate.count(user).is_ok())).sum();
        assert!((256..1000).contains(&together), "{together}");
        assert_eq!(may(&rate, ROOT), 100_000);
    }
}
