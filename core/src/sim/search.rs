//! The cost of a search of the trees beyond that of a visit where it was measured.
//!
//! `ksmith sim calibrate` measures a visit beside an empty stable tree and an unstable tree that grows to 65,536 pages.
//! It measures a merge while the stable tree grows to as many frames. A search of a larger tree goes deeper, and comes
//! to nodes and pages that no cache holds.

use super::config::SimCosts;
use super::content::{NONE, ZERO_SLOT};
use super::memory::{MergeableMemory, VisitOutcome};

/// Contents of the stable tree that caches hold: a search of so many costs little.
const CACHED: u64 = 4096;

/// A logarithm to base 2 in sixteenths.
const SIXTEENTHS: i64 = 16;

/// The mean of [`log2`] in the unstable tree that was measured: about `log2 65536 - 1 / ln 2`.
const USUAL_UNSTABLE: i64 = 232;

/// The mean depth below the cached contents in the stable tree that was measured: that of `log2(1 + n / 4096)`, in
/// sixteenths.
const USUAL_STABLE: i64 = 45;

/// The depth below the cached contents of a stable tree of 65,536 contents, beside which joining it is measured, in
/// sixteenths.
const FULL_STABLE: i64 = 65;

/// A visit costs a quarter of what was measured at least, however small the trees are.
const LEAST_PART: u64 = 4;

/// `log2(number)` in sixteenths, linear between two powers of two. 0 for 0.
fn log2(number: u64) -> i64 {
    let Some(whole) = number.checked_ilog2() else { return 0 };
    let rest = (number << (63 - whole)) >> 59 & 15;
    i64::from(whole) * SIXTEENTHS + rest.cast_signed()
}

/// The sizes of the trees before a visit, in pages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TreeSizes {
    /// Contents in the stable tree.
    stable: u64,
    /// Pages in the unstable tree of this pass.
    unstable: u64,
    /// Full frames of empty pages that a search of them passes.
    full_empty: u64,
}

impl TreeSizes {
    /// The trees as they are, kept in runs of `run_pages` pages.
    pub fn from_memory(memory: &mut MergeableMemory, run_pages: u32, max_page_sharing: u32) -> Self {
        let pages = u64::from(run_pages);
        let full_empty = memory.stable.full_empty(&memory.contents, max_page_sharing) * pages;
        let has_empty = u64::from(memory.contents.get(ZERO_SLOT).stable != NONE);
        // All empty pages have one content, however long a run is.
        let stable = memory.stable.contents().saturating_sub(has_empty) * pages + has_empty;
        Self { stable, unstable: memory.in_unstable * pages, full_empty }
    }

    /// The cost of a visit to a page with the content of `slot`.
    pub fn cost(&self, visit: VisitOutcome, slot: u32, costs: &SimCosts) -> u64 {
        if !costs.depend_on_trees() {
            return match visit {
                VisitOutcome::Checksum { has_searched: false } | VisitOutcome::Blocked => costs.checksum,
                VisitOutcome::Checksum { has_searched: true } | VisitOutcome::Unshared => costs.unshared,
                VisitOutcome::Zero => costs.zero,
                VisitOutcome::Merge => costs.join,
                VisitOutcome::Pair => costs.merge,
            };
        }
        let stable = costs.stable_level.cast_signed() * (log2(CACHED + self.stable) - log2(CACHED));
        let unstable = costs.unstable_level.cast_signed() * (log2(1 + self.unstable) - USUAL_UNSTABLE);
        let usual = costs.stable_level.cast_signed() * USUAL_STABLE;
        let (base, more) = match visit {
            VisitOutcome::Checksum { has_searched: false } | VisitOutcome::Blocked => return costs.checksum,
            VisitOutcome::Zero => return costs.zero,
            VisitOutcome::Checksum { has_searched: true } => (costs.unshared, stable),
            VisitOutcome::Unshared => (costs.unshared, stable + unstable),
            VisitOutcome::Merge => (costs.join, stable - costs.stable_level.cast_signed() * FULL_STABLE),
            // The frame is searched for once, and put in its place after that.
            VisitOutcome::Pair => (costs.merge, 2 * (stable - usual)),
        };
        let tree = base.saturating_add_signed(more / SIXTEENTHS).max(base / LEAST_PART);
        tree + costs.chain * self.passed(slot)
    }

    /// Full frames that a search for the content of `slot` passes on its way.
    ///
    /// The empty page is the least of all contents. Of `n` contents it is on the way to 2 in `n + 1`.
    fn passed(&self, slot: u32) -> u64 {
        if slot == ZERO_SLOT || self.stable <= 1 {
            return self.full_empty;
        }
        2 * self.full_empty / (self.stable + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: SimCosts = SimCosts {
        checksum: 1000,
        unshared: 4000,
        merge: 8000,
        join: 6000,
        zero: 1500,
        merged: 200,
        skip: 100,
        walk: 5,
        free: 50,
        batch: 0,
        pass: 0,
        write: 0,
        stable_level: 1000,
        unstable_level: 500,
        chain: 40,
        split: 0,
        freed: 0,
        collapse: 0,
    };

    fn trees(stable: u64, unstable: u64, full_empty: u64) -> TreeSizes {
        TreeSizes { stable, unstable, full_empty }
    }

    #[test]
    fn logarithms_are_in_sixteenths() {
        for (number, expected) in
            [(0, 0), (1, 0), (2, 16), (3, 24), (4, 32), (65_536, 256), (u64::MAX, 63 * 16 + 15)]
        {
            assert_eq!(log2(number), expected, "{number}");
        }
    }

    #[test]
    fn the_mean_cost_of_the_measured_passes_is_what_was_measured() {
        let mean = |cost: &dyn Fn(u64) -> u64| (0..65_536).map(|done| cost(done) as f64).sum::<f64>() / 65_536.0;
        let unshared = mean(&|done| trees(0, done, 0).cost(VisitOutcome::Unshared, 7, &COSTS));
        assert!((unshared - 4000.0).abs() < 40.0, "{unshared}");
        let pair = mean(&|done| trees(done, 0, 0).cost(VisitOutcome::Pair, 7, &COSTS));
        assert!((pair - 8000.0).abs() < 80.0, "{pair}");
        assert_eq!(trees(65_536, 0, 0).cost(VisitOutcome::Merge, 7, &COSTS), 6000);
    }

    #[test]
    fn a_doubling_of_a_tree_adds_a_level() {
        let unshared = |stable, unstable| trees(stable, unstable, 0).cost(VisitOutcome::Unshared, 7, &COSTS);
        assert_eq!(unshared(0, 1 << 20) - unshared(0, 1 << 19), 500);
        let level = unshared(1 << 25, 1 << 16) - unshared(1 << 24, 1 << 16);
        assert!((950..=1050).contains(&level), "{level}");
        assert!(unshared(1000, 1 << 16) - unshared(0, 1 << 16) < 500, "a small stable tree is in the caches");
    }

    #[test]
    fn a_chain_of_full_frames_costs_the_searches_that_meet_it() {
        let more = |stable, slot| {
            let cost = |full| trees(stable, 1 << 16, full).cost(VisitOutcome::Unshared, slot, &COSTS);
            cost(800) - cost(0)
        };
        assert_eq!(more(1, 7), 800 * 40, "the only content is on every way");
        assert_eq!(more(4, 7), 320 * 40);
        assert_eq!(more(100_000, 7), 0);
        assert_eq!(more(100_000, ZERO_SLOT), 800 * 40, "empty pages meet it in any case");
    }
}
