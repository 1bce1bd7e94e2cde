//! The level of a process's memory: the most that it held in the last while, for how long it has not risen, and what it has
//! held all the time.

use std::time::Duration;

use super::constants::{KNOWN_PART, LEVEL_HALF};

/// The part of a process's age for which its memory must not have risen, as a divisor.
const SETTLING_PART: u32 = 4;

/// Bounds of that time. Programs load their input in steps.
const SETTLING: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];

/// The age from which on the memory of a process that never stops growing counts as settled.
const OLD: Duration = Duration::from_secs(120);

/// The most bytes that a process held within the last one to two times [`LEVEL_HALF`].
///
/// A solver frees its arrays and allocates them again in each iteration. Measured from its lowest moment, its memory
/// would grow in each.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLevel {
    /// The most bytes in the half of the window under way, and in the one before.
    halves: [u64; 2],
    began: Duration,
    first_seen: Duration,
    /// The bytes when it last rose by much, and the time.
    risen: (u64, Duration),
    held: HeldMemory,
}

/// The least bytes that a process held within the last one to two settling times.
#[derive(Debug, Clone, Copy)]
struct HeldMemory {
    /// The least bytes in the part of the window under way, and in the one before.
    parts: [u64; 2],
    began: Duration,
}

impl MemoryLevel {
    /// The level of a process that is first seen.
    pub fn new(bytes: u64, at: Duration) -> Self {
        let held = HeldMemory { parts: [bytes; 2], began: at };
        Self { halves: [bytes; 2], began: at, first_seen: at, risen: (bytes, at), held }
    }

    /// Records the bytes at the next sample.
    pub fn record(&mut self, bytes: u64, at: Duration) {
        if (self.risen.0 as f64) < bytes as f64 * KNOWN_PART {
            self.risen = (bytes, at);
        }
        self.held.record(bytes, self.settling_time(at), at);
        let since = at.saturating_sub(self.began);
        if since >= LEVEL_HALF * 2 {
            (self.halves, self.began) = ([bytes; 2], at);
        } else if since >= LEVEL_HALF {
            (self.halves, self.began) = ([bytes, self.halves[0]], at);
        } else {
            self.halves[0] = self.halves[0].max(bytes);
        }
    }

    /// The level in bytes.
    pub fn peak_bytes(self) -> u64 {
        self.halves[0].max(self.halves[1])
    }

    /// The bytes that the process has held all the time for a quarter of its age, and twice that at most. What a step of a
    /// solver allocates and frees before ksmd could visit it twice is not in it.
    pub fn held_bytes(self) -> u64 {
        self.held.parts[0].min(self.held.parts[1])
    }

    /// Returns true if the process has filled its memory: the level has not risen for a quarter of its age.
    pub fn has_settled(self, at: Duration) -> bool {
        at.saturating_sub(self.first_seen) >= OLD || self.settles_in(at).is_zero()
    }

    /// Returns the time until the process has filled its memory, if that does not rise.
    pub fn settles_in(self, at: Duration) -> Duration {
        self.settling_time(at).saturating_sub(at.saturating_sub(self.risen.1))
    }

    fn settling_time(self, at: Duration) -> Duration {
        let [least, most] = SETTLING;
        (at.saturating_sub(self.first_seen) / SETTLING_PART).clamp(least, most)
    }
}

impl HeldMemory {
    fn record(&mut self, bytes: u64, part: Duration, at: Duration) {
        if at.saturating_sub(self.began) >= part {
            (self.parts, self.began) = ([bytes, self.parts[0]], at);
        } else {
            self.parts[0] = self.parts[0].min(bytes);
        }
    }
}
