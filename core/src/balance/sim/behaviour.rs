//! The demand of a simulated guest over time.

use std::time::Duration;

/// The demand of a guest from a moment on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DemandPhase {
    /// The time from which it holds, since the start of the simulation.
    pub from: Duration,
    /// The memory of its programs, reached by growing.
    pub anonymous_bytes: u64,
    /// The rate at which its programs grow, per second.
    pub growth_bytes_per_second: u64,
    /// The part of its files that it reads again and again.
    pub hot_bytes: u64,
    /// The rate at which it reads the hot part, per second.
    pub rereads_bytes_per_second: u64,
    /// The rate at which it reads files once, per second.
    pub reads_bytes_per_second: u64,
}

impl DemandPhase {
    /// Creates the phase of a guest with idle programs of this size.
    pub fn idle(anonymous_bytes: u64) -> Self {
        Self {
            from: Duration::ZERO,
            anonymous_bytes,
            growth_bytes_per_second: 1 << 30,
            hot_bytes: 0,
            rereads_bytes_per_second: 0,
            reads_bytes_per_second: 0,
        }
    }

    /// Sets the second from which it holds.
    #[must_use]
    pub fn at(self, second: u64) -> Self {
        Self { from: Duration::from_secs(second), ..self }
    }

    /// Limits the rate at which its programs grow.
    #[must_use]
    pub fn growing(self, bytes_per_second: u64) -> Self {
        Self { growth_bytes_per_second: bytes_per_second, ..self }
    }

    /// Adds hot files, all of which are read within `every`.
    #[must_use]
    pub fn with_hot(self, bytes: u64, every: Duration) -> Self {
        let rate = bytes as f64 / every.as_secs_f64().max(1.0);
        Self { hot_bytes: bytes, rereads_bytes_per_second: rate as u64, ..self }
    }

    /// Adds files that are read once, at this rate; they fill the page cache.
    #[must_use]
    pub fn reading(self, bytes_per_second: u64) -> Self {
        Self { reads_bytes_per_second: bytes_per_second, ..self }
    }
}
