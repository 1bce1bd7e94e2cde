//! The worth of huge pages: the CPU time that programs lose once theirs are split.
//!
//! In small pages the processor finds fewer addresses in its TLB and walks page tables for the others. The loss depends on the
//! memory that a program uses and on how it reads. The points are those of a program that reads at random and does nothing
//! else; others lose less. So a cost is the most that splits take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The sizes of the memory that is used at random, in bytes: about what a TLB of the second level covers by small pages, and 8
/// and 32 times that.
pub const WORKING_SETS: [u64; 3] = [8 << 20, 64 << 20, 256 << 20];

/// The parts of its CPU time that a program loses which reads its memory at random, once that is in small pages: for each of
/// [`WORKING_SETS`], 0 to 1 and not falling.
///
/// The last is the loss of all that use more. The default is `lost_cpus` of `ksmith sim calibrate` on an AMD EPYC
/// (docs/measurements/2026-11-huge-pages.md).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "[f64; 3]", into = "[f64; 3]")]
pub struct SplitLosses([f64; 3]);

impl Default for SplitLosses {
    fn default() -> Self {
        Self([0.03, 0.06, 0.25])
    }
}

/// The error of losses that can't be.
#[derive(Debug, thiserror::Error)]
#[error("must be three numbers from 0 to 1, of which none is less than the one before")]
pub struct SplitLossError;

impl TryFrom<[f64; 3]> for SplitLosses {
    type Error = SplitLossError;

    fn try_from(parts: [f64; 3]) -> Result<Self, SplitLossError> {
        let are_parts = parts.iter().all(|part| (0.0..=1.0).contains(part));
        if are_parts && parts.is_sorted() { Ok(Self(parts)) } else { Err(SplitLossError) }
    }
}

impl From<SplitLosses> for [f64; 3] {
    fn from(losses: SplitLosses) -> Self {
        losses.0
    }
}

impl SplitLosses {
    /// Creates losses from measured ones, in thousandths. Noise that makes one negative, or less than the one before, is left
    /// out.
    pub fn from_measured(parts: [f64; 3]) -> Self {
        let mut most = 0.0_f64;
        Self(parts.map(|part| {
            most = most.max((part * 1000.0).round() / 1000.0).min(1.0);
            most
        }))
    }

    /// Returns the part of its CPU time that a program loses by so many bytes in small pages instead of huge ones, 0 to 1.
    ///
    /// Between two points it is linear in the logarithm of the bytes, and beyond them that of the nearest.
    pub fn lost_part(&self, split_bytes: u64) -> f64 {
        let bytes = split_bytes as f64;
        let points = WORKING_SETS.map(|bytes| bytes as f64).into_iter().zip(self.0);
        let between = points.clone().zip(points.skip(1)).find_map(|((below, less), (above, more))| {
            let is_here = (below..above).contains(&bytes);
            is_here.then(|| less + (more - less) * (bytes / below).log2() / (above / below).log2())
        });
        let [first, _, last] = self.0;
        between.unwrap_or(if split_bytes < WORKING_SETS[0] { first } else { last })
    }

    /// Returns the CPU-seconds a second that a program loses at most which uses so many CPUs, and has `split_bytes` of the
    /// `whole_bytes` that were in huge pages in small ones. Its accesses are taken to be spread over all of them.
    pub fn split_cost(&self, cpus: f64, split_bytes: u64, whole_bytes: u64) -> f64 {
        let split_part = split_bytes as f64 / whole_bytes.max(split_bytes).max(1) as f64;
        cpus.max(0.0) * self.lost_part(split_bytes) * split_part
    }
}

/// Memory in huge pages that merging has split, and its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SplitMemory {
    /// Bytes that were in huge pages, and are in small ones or freed.
    pub bytes: u64,
    /// The CPU time that programs lose by it in a second, at most.
    pub cost: Duration,
}

impl SplitMemory {
    /// Computes the cost of `bytes` beside `huge_bytes` that are still in huge pages, for a program that uses so many CPUs, by
    /// this host's losses.
    pub fn new(bytes: u64, huge_bytes: u64, cpus: f64, losses: &SplitLosses) -> Self {
        let seconds = losses.split_cost(cpus, bytes, bytes.saturating_add(huge_bytes));
        Self { bytes, cost: Duration::try_from_secs_f64(seconds).unwrap_or_default() }
    }

    /// Returns the sum of two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), cost: self.cost.saturating_add(other.cost) }
    }

    /// Returns the cost in CPU-seconds a second.
    pub fn cost_cpus(self) -> f64 {
        self.cost.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_loss_is_measured_at_three_points_and_interpolated_between() {
        let losses = SplitLosses::default();
        let lost = [0, 1, 8, 64, 256, 100_000].map(|mib| losses.lost_part(mib * MIB));
        assert_eq!(lost, [0.03, 0.03, 0.03, 0.06, 0.25, 0.25]);
        assert!((losses.lost_part(128 * MIB) - (0.06 + 0.25) / 2.0).abs() < 1e-12, "half way in the logarithm");
        assert!((losses.lost_part(16 * MIB) - 0.04).abs() < 1e-12);
    }

    #[test]
    fn losses_that_can_not_be_are_refused_and_noise_in_measured_ones_is_left_out() {
        for bad in [[0.1, 0.05, 0.2], [-0.1, 0.0, 0.2], [0.1, 0.2, 1.1], [f64::NAN; 3]] {
            assert!(SplitLosses::try_from(bad).is_err(), "{bad:?}");
        }
        let measured = SplitLosses::from_measured([-0.02, 0.12345, 0.1]);
        assert_eq!(<[f64; 3]>::from(measured), [0.0, 0.123, 0.123]);
        assert_eq!(SplitLosses::try_from([0.0, 0.123, 0.123]).unwrap(), measured);
        assert_eq!(measured.split_cost(2.0, 512 * MIB, 1024 * MIB), 0.123, "by this host's losses");
        let of = |losses| SplitMemory::new(512 * MIB, 0, 2.0, &losses).cost.as_millis();
        assert_eq!((of(measured), of(SplitLosses::default())), (246, 500));
    }

    #[test]
    fn an_idle_program_loses_nothing_and_a_busy_one_by_what_is_split() {
        let losses = SplitLosses::default();
        assert_eq!(losses.split_cost(0.0, 512 * MIB, 512 * MIB), 0.0);
        assert_eq!(losses.split_cost(2.0, 512 * MIB, 512 * MIB), 0.5);
        assert_eq!(losses.split_cost(2.0, 256 * MIB, 1024 * MIB), 0.125);
        assert_eq!(losses.split_cost(2.0, 0, 1024 * MIB), 0.0);
        assert_eq!(SplitMemory::new(512 * MIB, 0, 2.0, &losses).cost, Duration::from_millis(500));
        assert_eq!(SplitMemory::new(1, 0, f64::NAN, &losses).cost, Duration::ZERO);
    }

    proptest! {
        #[test]
        fn more_that_is_split_never_costs_less_and_never_more_than_what_is_used(
            cpus in 0.0..1e4_f64,
            whole: u64,
            one: u64,
            other: u64,
            measured in prop::array::uniform3(-1.0..2.0_f64),
        ) {
            let losses = SplitLosses::from_measured(measured);
            prop_assert!(SplitLosses::try_from(<[f64; 3]>::from(losses)).is_ok());
            let [less, more] = if one < other { [one, other] } else { [other, one] };
            let [low, high] = [less, more].map(|split| losses.split_cost(cpus, split.min(whole), whole));
            prop_assert!(0.0 <= low && low <= high && high <= cpus);
        }
    }
}
