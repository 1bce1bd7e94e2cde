//! Figures of a guest that the outcome of a mode lacks.

use std::collections::BTreeMap;

use ksmith_core::kernel::IneligibleReason;
use ksmith_core::sketch::{GuestOutcome, MergeVerdict, VerdictInput};

/// Figures of one guest besides its outcome, in pages.
#[derive(Debug, Clone, Default)]
pub(super) struct GuestScanSums {
    pub changing: u64,
    pub looked_twice: bool,
    pub merged: u64,
    /// Pages that are merged with the kernel's zero page already.
    pub merged_zero: u64,
    pub leaving: u64,
    /// Bytes in huge pages.
    pub huge_bytes: u64,
    pub is_mergeable: bool,
    pub ineligible: BTreeMap<IneligibleReason, u64>,
}

impl GuestScanSums {
    /// Adds the figures of another guest.
    pub fn add(&mut self, other: &Self) {
        self.changing += other.changing;
        self.merged += other.merged;
        self.merged_zero += other.merged_zero;
        self.leaving += other.leaving;
        self.huge_bytes += other.huge_bytes;
        self.is_mergeable |= other.is_mergeable;
        for (&reason, bytes) in &other.ineligible {
            *self.ineligible.entry(reason).or_default() += bytes;
        }
    }

    /// Weighs the outcome of the guest with these figures.
    pub fn weigh(&self, outcome: &GuestOutcome, page_size: u64) -> MergeVerdict {
        let input = VerdictInput {
            pages: outcome.pages + self.changing,
            changing: self.changing,
            saved: outcome.saved,
            merged: self.merged,
            leaving: self.leaving,
            page_size,
            is_mergeable: self.is_mergeable,
        };
        MergeVerdict::weigh(&input)
    }
}
