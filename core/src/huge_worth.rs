//! The worth of huge pages: the CPU time that programs lose once theirs are split.
//!
//! In small pages the processor finds fewer addresses in its TLB and walks page tables for the others. The loss depends on the
//! memory that a program uses and on how it reads. The points are those of a program that reads at random and does nothing
//! else; others lose less. So a cost is the most that splits take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Working sets in MiB, and the part of its CPU time that a program loses which reads them at random: `lost_cpus` of `ksmith
/// sim calibrate` on an AMD EPYC (docs/measurements/2026-11-huge-pages.md).
const LOSSES: [(f64, f64); 3] = [(8.0, 0.03), (64.0, 0.06), (256.0, 0.25)];

/// Returns the part of its CPU time that a program loses by so many bytes in small pages instead of huge ones, 0 to 1.
///
/// Between two points it is linear in the logarithm of the bytes, and beyond them that of the nearest.
pub fn lost_part(split_bytes: u64) -> f64 {
    let mib = split_bytes as f64 / f64::from(1 << 20);
    let [first, .., last] = LOSSES;
    let between = LOSSES.windows(2).find_map(|pair| match pair {
        [(below, less), (above, more)] if (*below..*above).contains(&mib) => {
            Some(less + (more - less) * (mib / below).log2() / (above / below).log2())
        }
        _ => None,
    });
    between.unwrap_or(if mib < first.0 { first.1 } else { last.1 })
}

/// Returns the CPU-seconds a second that a program loses at most which uses so many CPUs, and has `split_bytes` of the
/// `whole_bytes` that were in huge pages in small ones. Its accesses are taken to be spread over all of them.
pub fn split_cost(cpus: f64, split_bytes: u64, whole_bytes: u64) -> f64 {
    let split_part = split_bytes as f64 / whole_bytes.max(split_bytes).max(1) as f64;
    cpus.max(0.0) * lost_part(split_bytes) * split_part
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
    /// Computes the cost of `bytes` beside `huge_bytes` that are still in huge pages, for a program that uses so many CPUs.
    pub fn new(bytes: u64, huge_bytes: u64, cpus: f64) -> Self {
        let seconds = split_cost(cpus, bytes, bytes.saturating_add(huge_bytes));
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
        let lost = [0, 1, 8, 64, 256, 100_000].map(|mib| lost_part(mib * MIB));
        assert_eq!(lost, [0.03, 0.03, 0.03, 0.06, 0.25, 0.25]);
        assert!((lost_part(128 * MIB) - (0.06 + 0.25) / 2.0).abs() < 1e-12, "half way in the logarithm");
        assert!((lost_part(16 * MIB) - 0.04).abs() < 1e-12);
    }

    #[test]
    fn an_idle_program_loses_nothing_and_a_busy_one_by_what_is_split() {
        assert_eq!(split_cost(0.0, 512 * MIB, 512 * MIB), 0.0);
        assert_eq!(split_cost(2.0, 512 * MIB, 512 * MIB), 0.5);
        assert_eq!(split_cost(2.0, 256 * MIB, 1024 * MIB), 0.125);
        assert_eq!(split_cost(2.0, 0, 1024 * MIB), 0.0);
        assert_eq!(SplitMemory::new(512 * MIB, 0, 2.0).cost, Duration::from_millis(500));
        assert_eq!(SplitMemory::new(1, 0, f64::NAN).cost, Duration::ZERO);
    }

    proptest! {
        #[test]
        fn more_that_is_split_never_costs_less_and_never_more_than_what_is_used(
            cpus in 0.0..1e4_f64, whole: u64, one: u64, other: u64,
        ) {
            let [less, more] = if one < other { [one, other] } else { [other, one] };
            let [low, high] = [less, more].map(|split| split_cost(cpus, split.min(whole), whole));
            prop_assert!(0.0 <= low && low <= high && high <= cpus);
        }
    }
}
