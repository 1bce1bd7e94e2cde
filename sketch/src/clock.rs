//! The time: of a clock that never steps, and of the day.

use std::time::{Duration, Instant, SystemTime};

/// The two clocks: one that never steps, and the time of the day in milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Time since any fixed moment.
    pub at: Duration,
    /// Milliseconds since 1970.
    pub day_clock: i64,
}

/// The clock that never steps and the time of the day.
#[derive(Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time on both clocks.
    #[allow(clippy::disallowed_methods, reason = "files of several hosts are compared by the time of the day")]
    pub fn now(&self) -> Now {
        let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { at: self.0.elapsed(), day_clock: i64::try_from(day.as_millis()).unwrap_or(i64::MAX) }
    }
}
