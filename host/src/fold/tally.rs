//! Figures of one pass of folding.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Figures of one pass over a process, or over several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FoldTally {
    /// Memory in huge pages that was read, in bytes.
    pub looked_bytes: u64,
    /// Huge pages with enough zeros, in bytes.
    pub foldable_bytes: u64,
    /// Zero pages found in them. A pass that splits stops counting in a huge page once there are enough, so this is a
    /// lower bound then.
    pub zero_bytes: u64,
    /// Freed zero pages, in bytes, by the page tables after the splits.
    pub freed_bytes: u64,
    /// Huge pages that were split, in bytes.
    pub split_bytes: u64,
    /// Small pages that were collapsed into huge ones before, in bytes.
    pub collapsed_bytes: u64,
    /// Memory left unchanged, by reason.
    pub left: LeftBytes,
    /// CPU time of the pass, in seconds.
    pub cpu_seconds: f64,
}

/// Memory that a pass left unchanged, in bytes, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftBytes {
    /// Huge pages with too few zeros.
    pub few_zeros: u64,
    /// Huge pages with enough zeros that are shared with a forked child.
    pub shared: u64,
    /// Huge pages with enough zeros that are locked by mlock(2).
    pub locked: u64,
    /// Huge pages with enough zeros that are pinned for I/O, or were in other use at that moment.
    pub pinned: u64,
    /// Anonymous memory in pages that are not huge.
    pub small: u64,
}

impl FoldTally {
    /// Adds another pass.
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.looked_bytes, other.looked_bytes),
            (&mut self.foldable_bytes, other.foldable_bytes),
            (&mut self.zero_bytes, other.zero_bytes),
            (&mut self.freed_bytes, other.freed_bytes),
            (&mut self.split_bytes, other.split_bytes),
            (&mut self.collapsed_bytes, other.collapsed_bytes),
        ] {
            *sum = sum.saturating_add(part);
        }
        self.left.add(&other.left);
        self.cpu_seconds += other.cpu_seconds;
    }

    /// Adds CPU time.
    pub(super) fn add_cpu(&mut self, cpu: Duration) {
        self.cpu_seconds += cpu.as_secs_f64();
    }
}

impl LeftBytes {
    /// Adds the memory that another pass left.
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.few_zeros, other.few_zeros),
            (&mut self.shared, other.shared),
            (&mut self.locked, other.locked),
            (&mut self.pinned, other.pinned),
            (&mut self.small, other.small),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}
