//! Folding: the choice of processes that give their zero pages back, its schedule, and its account.
//!
//! A huge page that holds zero subpages is split from outside, and the kernel maps its zero page in their place (Linux
//! 6.12). [`FoldPolicy`] decides from samples of huge pages, and [`FoldLedger`] keeps the account by the kernel's own
//! figures.

mod belief;
mod ledger;
mod policy;
#[cfg(test)]
mod tests;

pub use ledger::{FoldEntry, FoldLedger, ZeroReading};
pub use policy::{FoldCandidate, FoldNote, FoldPolicy, FoldStep, FoldTerms};

use serde::{Deserialize, Serialize};

/// The figures of one process, and a random sample of its huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FoldLook {
    /// Memory that maps the kernel's zero page.
    pub zero_mapped_bytes: u64,
    /// The part of it that KSM counts for the process.
    pub ksm_zero_bytes: u64,
    /// All huge pages of the process.
    pub huge_bytes: u64,
    /// Bytes in a huge page.
    pub huge_page_bytes: u64,
    /// Huge pages that were read.
    pub sampled_pages: u64,
    /// Those of them with enough zeros to be split.
    pub foldable_pages: u64,
    /// Zeros in these.
    pub zero_bytes: u64,
}

impl FoldLook {
    /// The part of it that the account goes by.
    pub fn zero_reading(&self) -> ZeroReading {
        let Self { zero_mapped_bytes, ksm_zero_bytes, huge_bytes, .. } = *self;
        ZeroReading { zero_mapped_bytes, ksm_zero_bytes, huge_bytes, ..ZeroReading::default() }
    }
}

/// The result of one pass over a process.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FoldPass {
    /// Huge pages that were read.
    pub looked_bytes: u64,
    /// Memory that came free.
    pub freed_bytes: u64,
    /// Huge pages that were split.
    pub split_pages: u64,
    /// CPU time of the pass, in seconds.
    pub cpu_seconds: f64,
}
