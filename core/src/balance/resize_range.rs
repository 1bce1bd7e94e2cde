//! The range within which one guest can be resized: floor, ceiling and step, in whole granules.

use super::config::{BalanceConfig, PoolWatermarks, part_of};
use super::{GuestView, PoolView};

/// The amounts of memory that one guest may have after the next resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResizeRange {
    /// The least that a take may leave it.
    pub floor_bytes: u64,
    /// The most that a give may bring it to.
    pub ceiling_bytes: u64,
    /// The most that may change at once.
    pub step_bytes: u64,
    /// The granularity, at least 1.
    granule: u64,
    given: u64,
}

impl ResizeRange {
    /// Computes the range of a guest in a pool.
    ///
    /// ```text
    /// floor   = max(given - (available - reserve), whole * floor_percent, operator's floor)
    /// ceiling = min(whole, operator's ceiling)
    /// step    = whole * step_percent, or urgent_step_percent below half the low mark
    /// ```
    ///
    /// The reserve is there because a user-mode Linux that is squeezed past its last available page panics. From a
    /// guest that does not say what it has available nothing can be taken.
    pub fn for_guest(guest: &GuestView, pool: &PoolView, config: &BalanceConfig) -> Self {
        let granule = guest.step_bytes.max(1);
        let given = guest.given_bytes;
        let has_trouble = guest.held || guest.trouble.is_some();
        let available = guest.inside.available_bytes.filter(|_| guest.can_take && !has_trouble);
        let spare = available.map(|available| available.saturating_sub(config.reserve_bytes(guest)));
        let needed = spare.map_or(given, |spare| given.saturating_sub(spare));
        let least = part_of(guest.whole_bytes, config.floor_percent).max(guest.floor_bytes);
        let ceiling = guest.whole_bytes.min(guest.ceiling_bytes).max(given);
        let is_urgent = is_urgent(pool, &config.marks(pool));
        let percent = if is_urgent { config.urgent_step_percent } else { config.step_percent };
        Self {
            floor_bytes: needed.max(least).min(given),
            ceiling_bytes: if guest.can_give && !guest.held { ceiling } else { given },
            step_bytes: part_of(guest.whole_bytes, percent).max(granule),
            granule,
            given,
        }
    }

    /// Returns all that can be taken, in whole granules.
    pub fn reclaimable_bytes(&self) -> u64 {
        self.whole(self.given - self.floor_bytes)
    }

    /// Returns all that can be given. The last granule may be cut by the ceiling.
    pub fn grantable_bytes(&self) -> u64 {
        self.ceiling_bytes - self.given
    }

    /// Returns the amount after about `wanted` bytes were taken: at most a step, at least one granule where there is
    /// one, and never below the floor.
    pub fn after_taking(&self, wanted: u64) -> u64 {
        let most = self.step_bytes.min(self.reclaimable_bytes());
        self.given - self.whole(wanted.max(self.granule).min(most))
    }

    /// Returns the amount after about `wanted` bytes were given.
    pub fn after_giving(&self, wanted: u64) -> u64 {
        let most = self.step_bytes.min(self.grantable_bytes());
        let wanted = wanted.max(self.granule).min(most);
        // The last part up to the ceiling need not be a granule: with it the guest has what it had at its start.
        if wanted == self.grantable_bytes() { self.ceiling_bytes } else { self.given + self.whole(wanted) }
    }

    /// Returns the amount nearest to `to` that the guest may have now.
    pub fn bound(&self, to: u64) -> u64 {
        match to {
            to if to < self.given => self.after_taking(self.given - to),
            to if to > self.given => self.after_giving(to - self.given),
            _ => self.given,
        }
    }

    fn whole(&self, bytes: u64) -> u64 {
        bytes - bytes % self.granule
    }
}

/// Returns true if the pool is below half its low mark.
pub(super) fn is_urgent(pool: &PoolView, marks: &PoolWatermarks) -> bool {
    pool.available_bytes < marks.min
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MIB, guest, pool};
    use super::*;

    fn range(guest: &GuestView) -> ResizeRange {
        ResizeRange::for_guest(guest, &pool(1000, 300), &BalanceConfig::default())
    }

    #[test]
    fn the_floor_is_what_the_guest_uses_and_a_reserve() {
        // 256 MiB, of which 200 are available: 56 are used, 16 stay in reserve.
        let it = guest("a", 256, 200);
        assert_eq!(range(&it).floor_bytes, 72 * MIB);
        assert_eq!(range(&it).reclaimable_bytes(), 184 * MIB);
    }

    #[test]
    fn the_operators_floor_goes_before_the_guests_figures() {
        let mut it = guest("a", 1000, 990);
        assert_eq!(range(&it).floor_bytes, 100 * MIB);
        it.floor_bytes = 400 * MIB;
        assert_eq!(range(&it).floor_bytes, 400 * MIB);
    }

    #[test]
    fn a_guest_that_says_nothing_or_is_in_trouble_gives_nothing() {
        let mut silent = guest("a", 256, 200);
        silent.inside.available_bytes = None;
        let troubled = GuestView { trouble: Some("it hangs".to_owned()), ..guest("a", 256, 200) };
        let held = GuestView { held: true, ..guest("a", 256, 200) };
        let unable = GuestView { can_take: false, ..guest("a", 256, 200) };
        for it in [silent, troubled, held, unable] {
            assert_eq!(range(&it).reclaimable_bytes(), 0);
        }
    }

    #[test]
    fn steps_are_larger_while_it_is_urgent() {
        let it = guest("a", 1000, 900);
        let step =
            |available| ResizeRange::for_guest(&it, &pool(1000, available), &BalanceConfig::default()).step_bytes;
        assert_eq!((step(300), step(40)), (50 * MIB, 150 * MIB));
    }

    #[test]
    fn giving_ends_at_the_ceiling_to_the_byte() {
        let mut it = guest("a", 100, 50);
        it.given_bytes = it.whole_bytes - MIB - 5;
        assert_eq!(range(&it).after_giving(64 * MIB), it.whole_bytes);
        it.ceiling_bytes = 0;
        assert_eq!(range(&it).grantable_bytes(), 0);
    }
}
