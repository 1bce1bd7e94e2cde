//! Exponential back-off from guests that do not resize as requested.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::units::TimeSpan;

/// The number of failures in a row after which a guest is left alone.
const MOST_FAILURES: u32 = 3;

/// The first pause.
const FIRST: Duration = Duration::from_secs(30);
/// The longest pause: each is twice the one before.
const LONGEST: Duration = Duration::from_secs(3600);

/// The failures and the back-off of each guest, by key.
#[derive(Debug, Clone, Default)]
pub struct ResizeBackoff(BTreeMap<String, BackoffRecord>);

#[derive(Debug, Clone)]
struct BackoffRecord {
    failures: u32,
    why: String,
    until: Option<Duration>,
    pause: Duration,
}

impl ResizeBackoff {
    /// Records a resize: the amount before, the requested one, and the one after. Any step in the right direction
    /// clears the guest's record.
    pub fn record_resize(&mut self, key: &str, [from, to, got]: [u64; 3], now: Duration) {
        let moved = if to < from { from.saturating_sub(got) } else { got.saturating_sub(from) };
        if moved > 0 {
            self.0.remove(key);
        } else {
            self.record_failure(key, "it does not follow when memory is taken or given".to_owned(), now);
        }
    }

    /// Records that a guest could not be reached or resized.
    pub fn record_failure(&mut self, key: &str, why: String, now: Duration) {
        let new = BackoffRecord { failures: 0, why: String::new(), until: None, pause: FIRST };
        let record = self.0.entry(key.to_owned()).or_insert(new);
        record.failures += 1;
        record.why = why;
        if record.failures >= MOST_FAILURES {
            record.until = Some(now + record.pause);
            record.pause = (record.pause * 2).min(LONGEST);
            // After a pause one failure is enough for the next.
            record.failures = MOST_FAILURES - 1;
        }
    }

    /// Returns the reason why a guest is left alone now, if it is.
    pub fn trouble(&self, key: &str, now: Duration) -> Option<String> {
        let record = self.0.get(key)?;
        let left = record.until?.checked_sub(now).filter(|left| !left.is_zero())?;
        Some(format!("{}; asked again in {}", record.why, TimeSpan(left)))
    }

    /// Removes the guests that have ended.
    pub fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|key, _| is_there(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn a_guest_that_ignores_its_balloon_is_left_alone_longer_each_time() {
        let mut backoff = ResizeBackoff::default();
        for second in 0..3 {
            assert_eq!(backoff.trouble("a", at(second)), None);
            backoff.record_resize("a", [100, 90, 100], at(second));
        }
        assert_eq!(
            backoff.trouble("a", at(2)).unwrap(),
            "it does not follow when memory is taken or given; asked again in 30 s"
        );
        assert_eq!(backoff.trouble("a", at(32)), None);
        backoff.record_resize("a", [100, 90, 105], at(32));
        assert!(backoff.trouble("a", at(91)).is_some() && backoff.trouble("a", at(92)).is_none());
    }

    #[test]
    fn a_small_step_resets_the_failures() {
        let mut backoff = ResizeBackoff::default();
        (0..2).for_each(|second| backoff.record_failure("a", "it hangs".to_owned(), at(second)));
        backoff.record_resize("a", [100, 90, 99], at(2));
        backoff.record_failure("a", "it hangs".to_owned(), at(3));
        assert_eq!(backoff.trouble("a", at(3)), None);
        backoff.keep(|_| false);
        assert!(backoff.0.is_empty());
    }
}
