//! What a simulated guest wants over time, and how honest it is.

use std::time::Duration;

/// From a moment on a guest wants this.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// Since the start of the simulation.
    pub from: Duration,
    /// Memory of its programs, reached by growing.
    pub anonymous_bytes: u64,
    /// How fast its programs grow, per second.
    pub growth_bytes_per_second: u64,
    /// The part of its files that it reads over and over.
    pub hot_bytes: u64,
    /// How fast it reads over the hot part, per second.
    pub rereads_bytes_per_second: u64,
    /// How fast it reads files once and never again, per second.
    pub reads_bytes_per_second: u64,
}

impl Phase {
    /// A guest that runs so much and does nothing.
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

    /// The same from this second on.
    #[must_use]
    pub fn at(self, second: u64) -> Self {
        Self { from: Duration::from_secs(second), ..self }
    }

    /// Its programs grow no faster than this.
    #[must_use]
    pub fn growing(self, bytes_per_second: u64) -> Self {
        Self { growth_bytes_per_second: bytes_per_second, ..self }
    }

    /// It reads so much over and over, all of it within `every`.
    #[must_use]
    pub fn with_hot(self, bytes: u64, every: Duration) -> Self {
        let rate = bytes as f64 / every.as_secs_f64().max(1.0);
        Self { hot_bytes: bytes, rereads_bytes_per_second: rate as u64, ..self }
    }

    /// It reads new files at this rate, and fills its page cache with them.
    #[must_use]
    pub fn reading(self, bytes_per_second: u64) -> Self {
        Self { reads_bytes_per_second: bytes_per_second, ..self }
    }
}

/// How it answers its hypervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// It says what is so, and does as it is asked.
    #[default]
    Honest,
    /// It says that it suffers and has nothing to spare, whatever it has.
    CriesHunger,
    /// It says that all is available.
    ClaimsPlenty,
    /// It does nothing when its balloon is moved.
    IgnoresBalloon,
    /// It gives no answer from this moment on.
    HangsFrom(Duration),
}
