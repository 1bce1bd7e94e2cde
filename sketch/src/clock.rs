//! The time of a monotonic clock and of the wall clock.

use std::time::{Duration, Instant, SystemTime};

/// A time on both clocks.
#[derive(Debug, Clone, Copy)]
pub struct ClockTime {
    /// Monotonic time since the clock was started.
    pub at: Duration,
    /// Wall-clock time in milliseconds since 1970.
    pub day_clock: i64,
}

/// A monotonic clock, combined with the wall clock.
#[derive(Debug)]
pub struct SketchClock(Instant);

impl SketchClock {
    /// Starts a clock.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time on both clocks.
    #[allow(clippy::disallowed_methods, reason = "files of several hosts are compared by the time of the day")]
    pub fn now(&self) -> ClockTime {
        let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        ClockTime { at: self.0.elapsed(), day_clock: i64::try_from(day.as_millis()).unwrap_or(i64::MAX) }
    }
}
