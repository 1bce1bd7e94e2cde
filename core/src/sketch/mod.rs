//! Estimates of what merging would save, from fingerprints of pages.
//!
//! A *fingerprint* is a 64-bit hash of a page under a salt of the run; equal fingerprints count as equal pages. For `N`
//! pages the expected number of false pairs is `N² / 2⁶⁵`: 0.002 for a terabyte of 4 KiB pages. Pages of zeros have no
//! fingerprint and are counted apart, as KSM may treat them apart.
//!
//! Three ways to the same [`SavingsOutcome`]: [`exact`] holds every fingerprint, [`ContentSketch`] a bounded set of contents
//! with all their copies, and [`ProbeSample`] a few pages picked by position, which can only bound the answer.
//! `docs/internals/estimate.md` derives the formulas and names their sources.

mod bounds;
pub mod exact;
mod group;
mod interval;
mod mix;
mod outcome;
mod pairs;
#[cfg(test)]
mod populations;
mod positions;
mod probes;
mod rules;
mod threshold;
mod verdict;

pub use bounds::SurplusBounds;
pub use interval::{ConfidenceInterval, proportion};
pub use mix::mix;
pub use outcome::{GuestOutcome, SavingsOutcome, SecondReading};
pub use pairs::PairMatrix;
pub use positions::SamplePositions;
pub use probes::{PageProbe, ProbeSample};
pub use rules::MergeRules;
pub use threshold::{ContentSketch, JoinError};
pub use verdict::{MergeAdvice, MergeVerdict, VerdictInput};

/// The value that stands for a page of zeros in a list of fingerprints: [`fingerprint`] never gives it.
pub const ZERO: u64 = 0;

/// The value that stands for a page that takes no part, because it changes or is gone.
pub const SKIPPED: u64 = 1;

/// Turns a hash into a fingerprint: the two reserved values are mapped to others.
#[inline]
pub fn fingerprint(hash: u64) -> u64 {
    if hash <= SKIPPED { hash + 2 } else { hash }
}
