//! The end of a start: memory has not exceeded its peak for a while.

use std::time::Duration;

/// Growth of one part in so many counts as none.
const STILL: u64 = 100;

/// The peak must be as old as the job's age divided by this, so that a pause in a long start does not count as its end.
/// Zeros that a program writes over in its first step are written over by then.
const PART_OF_AGE: u32 = 4;

/// Before folding it is half of that: zeros are to be freed before ksmd visits them, which is at the end of a start.
const PART_OF_AGE_TO_FOLD: u32 = 2 * PART_OF_AGE;

/// Bounds of that time, before folding half of the shortest.
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(10);

/// The longest start: a job that never stops growing has equal pages too.
const PATIENCE: Duration = Duration::from_secs(120);

/// The most memory that a job or a process has held, and its age when that was last exceeded.
///
/// A solver frees its arrays and allocates them again in each iteration. Such memory swings for ever, and does not grow.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryPeak {
    bytes: u64,
    age: Duration,
}

impl MemoryPeak {
    /// Records the resident bytes at an age. Returns true if they have grown.
    pub fn record_rss(&mut self, age: Duration, rss_bytes: u64) -> bool {
        let has_grown = rss_bytes.saturating_sub(self.bytes) > self.bytes / STILL;
        if has_grown {
            *self = Self { bytes: rss_bytes, age };
        }
        has_grown
    }

    /// Lowers the peak by memory that was freed from outside: what is written to again is growth.
    pub fn subtract_freed(&mut self, freed_bytes: u64) {
        self.bytes = self.bytes.saturating_sub(freed_bytes);
    }

    /// Returns true if memory has not grown for a quarter of the age, half a second at least and ten at most.
    pub fn is_still(self, age: Duration) -> bool {
        age.saturating_sub(self.age) >= (age / PART_OF_AGE).clamp(SHORTEST, LONGEST)
    }

    /// Returns true if its zeros may be folded: it has not grown for an eighth of the age, or has grown for two minutes.
    pub fn may_be_folded(self, age: Duration) -> bool {
        let still = (age / PART_OF_AGE_TO_FOLD).clamp(SHORTEST / 2, LONGEST);
        age.saturating_sub(self.age) >= still || age >= PATIENCE
    }

    /// Returns true if the start is over: memory is still, or has grown for two minutes.
    pub fn has_settled(self, age: Duration) -> bool {
        self.is_still(age) || age >= PATIENCE
    }
}

/// Finds the end of one job's start.
#[derive(Debug, Clone, Copy, Default)]
pub struct StartDetector {
    peak: MemoryPeak,
    is_over: bool,
}

impl StartDetector {
    /// Records the RSS at a job's age. Returns `true` once: when the start ends.
    pub fn record_rss(&mut self, age: Duration, rss_bytes: u64) -> bool {
        self.peak.record_rss(age, rss_bytes);
        let was_over = self.is_over;
        // A job without memory has not begun.
        self.is_over |= self.peak.has_settled(age) && (self.peak.bytes > 0 || age >= PATIENCE);
        self.is_over && !was_over
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
    fn memory_that_swings_below_its_peak_has_stopped_growing() {
        let swinging = |ms: u64| ms.min(3000) * 100 + if ms >= 3000 && ms % 1000 < 500 { 300_000 } else { 0 };
        assert!((3000..6000).contains(&over(swinging).unwrap()), "{:?}", over(swinging));
        assert_eq!(
            over(|ms| if ms < 4000 { 0 } else { 1 << 20 }),
            Some(5400),
            "what waits for its input holds nothing"
        );
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
