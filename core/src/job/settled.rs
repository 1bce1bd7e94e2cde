//! The end of a job's start: its memory has stopped growing.

use std::collections::VecDeque;
use std::time::Duration;

/// The growth within the window, as part of the whole, that counts as none.
const STILL: f64 = 0.01;

/// The window is the job's age divided by this, so that a pause in a long start does not count as its end.
const PART_OF_AGE: u32 = 4;

/// The shortest window.
const SHORTEST: Duration = Duration::from_millis(500);

/// The longest window.
const LONGEST: Duration = Duration::from_secs(10);

/// The longest start: a job that never stops growing has equal pages too.
const PATIENCE: Duration = Duration::from_secs(120);

/// Finds the end of one job's start.
#[derive(Debug, Clone, Default)]
pub struct StartDetector {
    seen: VecDeque<(Duration, u64)>,
    is_over: bool,
}

impl StartDetector {
    /// Records the RSS at a job's age. Returns `true` once: when the start ends.
    pub fn record_rss(&mut self, age: Duration, rss_bytes: u64) -> bool {
        if self.is_over {
            return false;
        }
        self.seen.push_back((age, rss_bytes));
        let window = (age / PART_OF_AGE).clamp(SHORTEST, LONGEST);
        let begin = age.saturating_sub(window);
        // The last look before the window stays: growth is measured from there.
        while self.seen.get(1).is_some_and(|(at, _)| *at <= begin) {
            self.seen.pop_front();
        }
        let Some(&(at, before)) = self.seen.front() else { return false };
        let is_covered = at <= begin && age >= SHORTEST;
        let grown = rss_bytes.abs_diff(before) as f64;
        self.is_over = age >= PATIENCE || is_covered && rss_bytes > 0 && grown <= rss_bytes as f64 * STILL;
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The age in milliseconds at which the start is over, for memory as a function of age, looked at each 100 ms.
    fn over(memory: impl Fn(u64) -> u64) -> Option<u64> {
        let mut settled = StartDetector::default();
        (0..200_000).step_by(100).find(|&ms| settled.record_rss(Duration::from_millis(ms), memory(ms)))
    }

    #[test]
    fn a_start_is_over_when_growth_ends() {
        assert_eq!(over(|_| 1 << 20), Some(500));
        let ramp = over(|ms| (ms.min(8000)) << 10).unwrap();
        assert!((8000..12_000).contains(&ramp), "{ramp}");
    }

    #[test]
    fn a_short_pause_in_a_long_start_is_not_its_end() {
        let memory = |ms: u64| if (10_000..11_000).contains(&ms) { 10_000 << 10 } else { ms.min(20_000) << 10 };
        assert!(over(memory).unwrap() >= 20_000);
    }

    #[test]
    fn a_job_that_never_stops_growing_counts_as_started_after_two_minutes() {
        assert_eq!(over(|ms| ms << 10), Some(120_000));
    }

    #[test]
    fn it_is_over_once() {
        let mut settled = StartDetector::default();
        let ends = (0..100).filter(|i| settled.record_rss(Duration::from_secs(*i), 1 << 30)).count();
        assert_eq!(ends, 1);
    }
}
