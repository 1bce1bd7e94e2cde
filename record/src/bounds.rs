//! How much is kept.

use std::time::Duration;

/// How long each tier is kept, and how large the file may become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// The age of the oldest sample.
    pub samples: Duration,
    /// The age of the oldest row of a minute, of decisions and of events.
    pub minutes: Duration,
    /// The age of the oldest row of an hour, and of the guests that have ended.
    pub hours: Duration,
    /// The most bytes that the file uses. The oldest samples go first, then minutes, then hours.
    pub bytes: u64,
    /// The most bytes of the write-ahead log. Only a program that reads without an end makes it so large.
    pub log_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        const DAY: u64 = 86_400;
        Self {
            samples: Duration::from_secs(DAY),
            minutes: Duration::from_secs(31 * DAY),
            hours: Duration::from_secs(5 * 366 * DAY),
            bytes: 512 << 20,
            log_bytes: 64 << 20,
        }
    }
}
