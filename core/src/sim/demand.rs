//! The memory that a guest's programs do not hold all the time, as the guest's own kernel manages it.

use std::time::Duration;

/// The memory of a guest that comes and goes: page cache, and programs at work now and then. It comes on top of the
/// guest's [`GuestPlan`](super::GuestPlan), which the guest can't do without.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestDemand {
    /// The memory that the guest was started with, in bytes.
    pub whole_bytes: u64,
    /// Files that it reads again and again, in bytes: its own.
    pub hot_bytes: u64,
    /// The time in which it reads all of them once.
    pub hot_every: Duration,
    /// Files that it reads once, in bytes: those of its image, which equal those of other guests of the image.
    pub image_files_bytes: u64,
    /// The label of the image's files: see [`equal_content`](super::equal_content).
    pub image_files: u16,
    /// Files that it reads once, in bytes: its own.
    pub own_files_bytes: u64,
    /// The time in which it reads all of those, from its start on.
    pub files_over: Duration,
    /// The memory of programs that run now and then, in bytes.
    pub bursting_bytes: u64,
    /// The time from one run of these programs to the next.
    pub burst_every: Duration,
    /// The duration of one run.
    pub burst_for: Duration,
    /// The time in which they take all of it.
    pub burst_within: Duration,
    /// The start of their first run, from the guest's start on.
    pub burst_from: Duration,
}

impl GuestDemand {
    /// All memory that comes and goes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.hot_bytes + self.image_files_bytes + self.own_files_bytes + self.bursting_bytes
    }
}
