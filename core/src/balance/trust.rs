//! Which guests do what they are asked. One that does not is left alone for a while, longer each time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::units::Span;

/// So many resizes in a row may come to nothing before a guest is left alone.
const PATIENCE: u32 = 3;

/// For how long at first, and at most.
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(3600);

/// What is known of each guest's behaviour.
#[derive(Debug, Clone, Default)]
pub struct Trust(BTreeMap<String, Record>);

#[derive(Debug, Clone)]
struct Record {
    failures: u32,
    why: String,
    until: Option<Duration>,
    pause: Duration,
}

impl Trust {
    /// Notes that a guest was to go from one amount to another and what it had afterwards.
    pub fn resized(&mut self, key: &str, [from, to, got]: [u64; 3], now: Duration) {
        let moved = if to < from { from.saturating_sub(got) } else { got.saturating_sub(from) };
        if moved > 0 {
            self.0.remove(key);
        } else {
            self.failed(key, "it does not follow when memory is taken or given".to_owned(), now);
        }
    }

    /// Notes that a guest could not be resized.
    pub fn failed(&mut self, key: &str, why: String, now: Duration) {
        let new = Record { failures: 0, why: String::new(), until: None, pause: FIRST };
        let record = self.0.entry(key.to_owned()).or_insert(new);
        record.failures += 1;
        record.why = why;
        if record.failures >= PATIENCE {
            record.until = Some(now + record.pause);
            record.pause = (record.pause * 2).min(LONGEST);
            // The next failure after that is enough.
            record.failures = PATIENCE - 1;
        }
    }

    /// Why a guest is left alone now, if it is.
    pub fn trouble(&self, key: &str, now: Duration) -> Option<String> {
        let record = self.0.get(key)?;
        let left = record.until?.checked_sub(now).filter(|left| !left.is_zero())?;
        Some(format!("{}; asked again in {}", record.why, Span(left)))
    }

    /// Forgets guests that are not there any more.
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
    fn who_ignores_its_balloon_is_left_alone_longer_each_time() {
        let mut trust = Trust::default();
        for second in 0..3 {
            assert_eq!(trust.trouble("a", at(second)), None);
            trust.resized("a", [100, 90, 100], at(second));
        }
        assert_eq!(
            trust.trouble("a", at(2)).unwrap(),
            "it does not follow when memory is taken or given; asked again in 30 s"
        );
        assert_eq!(trust.trouble("a", at(32)), None);
        trust.resized("a", [100, 90, 105], at(32));
        assert!(trust.trouble("a", at(91)).is_some() && trust.trouble("a", at(92)).is_none());
    }

    #[test]
    fn following_a_little_restores_trust() {
        let mut trust = Trust::default();
        (0..2).for_each(|second| trust.failed("a", "it hangs".to_owned(), at(second)));
        trust.resized("a", [100, 90, 99], at(2));
        trust.failed("a", "it hangs".to_owned(), at(3));
        assert_eq!(trust.trouble("a", at(3)), None);
        trust.keep(|_| false);
        assert!(trust.0.is_empty());
    }
}
