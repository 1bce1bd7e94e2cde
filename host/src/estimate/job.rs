//! What the three modes get: memory to read, and how.

use std::time::Duration;

use ksmith_core::sketch::MergeRules;

use crate::memory::progress::{Meter, Progress};
use crate::memory::scan::Context;
use crate::memory::target::Target;

/// What the three modes share.
pub(super) struct Job<'a> {
    pub context: Context,
    pub targets: &'a [Target],
    pub guests: usize,
    pub rules: MergeRules,
    pub threads: usize,
    pub again: Option<Duration>,
    pub wants_pairs: bool,
    pub meter: Option<&'a dyn Meter>,
}

impl Job<'_> {
    /// Anonymous bytes of all targets.
    pub fn bytes(&self) -> u64 {
        self.targets.iter().map(|target| target.memory.anonymous_bytes).sum()
    }

    /// Tells the meter that one in `divisor` of all bytes is to be read.
    pub fn progress(&self, what: &'static str, divisor: u64) -> Progress<'_> {
        Progress::new(self.meter, self.bytes() / divisor.max(1), what)
    }
}
