//! The input of the three modes: the memory to read, and the options.

use std::time::Duration;

use ksmith_core::sketch::MergeRules;

use crate::memory::progress::{ProgressMeter, ReadProgress};
use crate::memory::scan::ScanContext;
use crate::memory::target::ReadTarget;

/// The state shared by the three modes.
pub(super) struct EstimateJob<'a> {
    pub context: ScanContext,
    pub targets: &'a [ReadTarget],
    pub guests: usize,
    pub rules: MergeRules,
    pub threads: usize,
    pub again: Option<Duration>,
    pub wants_pairs: bool,
    /// True if what merging within NUMA nodes saves is estimated too.
    pub tells_nodes: bool,
    pub meter: Option<&'a dyn ProgressMeter>,
}

impl EstimateJob<'_> {
    /// Returns the anonymous bytes of all targets.
    pub fn bytes(&self) -> u64 {
        self.targets.iter().map(|target| target.memory.anonymous_bytes).sum()
    }

    /// Starts the meter for one in `divisor` of all bytes.
    pub fn progress(&self, what: &'static str, divisor: u64) -> ReadProgress<'_> {
        ReadProgress::new(self.meter, self.bytes() / divisor.max(1), what)
    }
}
