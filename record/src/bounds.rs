//! Retention of the history.

use std::time::Duration;

/// Retention by age for each tier, and limits of the file's size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryBounds {
    /// Maximum age of samples.
    pub samples: Duration,
    /// Maximum age of minute rows, decisions and events.
    pub minutes: Duration,
    /// Maximum age of hour rows, and of guests that have ended.
    pub hours: Duration,
    /// Limit of bytes used in the file. The oldest samples are deleted first, then minutes, then hours.
    pub bytes: u64,
    /// Limit of bytes in the write-ahead log. It grows that large only if a reader's transaction never ends.
    pub log_bytes: u64,
}

impl Default for HistoryBounds {
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
