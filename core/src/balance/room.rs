//! How far one guest can be taken and given: floor, ceiling and step, in whole granules.

use super::config::{BalanceConfig, Marks, part_of};
use super::{GuestView, PoolView};

/// What may be done to one guest now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// It must not be taken below this.
    pub floor_bytes: u64,
    /// It must not be given more than this.
    pub ceiling_bytes: u64,
    /// The most that may change at once.
    pub step_bytes: u64,
    /// The granularity, at least 1.
    granule: u64,
    given: u64,
}

impl Room {
    /// The room that a guest has in a pool.
    ///
    /// The floor is what the operator says, and what the guest itself uses with a reserve on top: a user-mode Linux
    /// that is squeezed past its last available page panics. Of a guest that does not tell what it has available
    /// nothing can be taken.
    pub fn of(guest: &GuestView, pool: &PoolView, config: &BalanceConfig) -> Self {
        let granule = guest.step_bytes.max(1);
        let given = guest.given_bytes;
        let has_trouble = guest.held || guest.trouble.is_some();
        let available = guest.inside.available_bytes.filter(|_| guest.can_take && !has_trouble);
        let needed = available
            .map_or(given, |available| given.saturating_sub(available.saturating_sub(config.reserve_bytes(guest))));
        let least = part_of(guest.whole_bytes, config.floor_percent).max(guest.floor_bytes);
        let ceiling = guest.whole_bytes.min(guest.ceiling_bytes).max(given);
        let ceiling = if guest.can_give && !guest.held { ceiling } else { given };
        let is_urgent = is_urgent(pool, &config.marks(pool));
        let percent = if is_urgent { config.urgent_step_percent } else { config.step_percent };
        Self {
            floor_bytes: needed.max(least).min(given),
            ceiling_bytes: ceiling,
            step_bytes: part_of(guest.whole_bytes, percent).max(granule),
            granule,
            given,
        }
    }

    /// What it could give in all, in whole granules.
    pub fn giveable_bytes(&self) -> u64 {
        self.whole(self.given - self.floor_bytes)
    }

    /// What it could get in all, in whole granules; the last one may be cut by the ceiling.
    pub fn wanting_bytes(&self) -> u64 {
        self.ceiling_bytes - self.given
    }

    /// What it is to have after about `wanted` bytes were taken: never below the floor, never a step too far, and at
    /// least one granule where there is one.
    pub fn after_taking(&self, wanted: u64) -> u64 {
        let most = self.step_bytes.min(self.giveable_bytes());
        self.given - self.whole(wanted.max(self.granule).min(most))
    }

    /// What it is to have after about `wanted` bytes were given.
    pub fn after_giving(&self, wanted: u64) -> u64 {
        let most = self.step_bytes.min(self.wanting_bytes());
        let wanted = wanted.max(self.granule).min(most);
        // The last bit up to the ceiling need not be a granule: it brings the guest back to what it was.
        if wanted == self.wanting_bytes() { self.ceiling_bytes } else { self.given + self.whole(wanted) }
    }

    /// The amount nearest to `to` that may be had now.
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

/// Whether there is so little that larger steps are due.
pub(super) fn is_urgent(pool: &PoolView, marks: &Marks) -> bool {
    pool.available_bytes < marks.min
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MIB, guest, pool};
    use super::*;

    fn room(guest: &GuestView) -> Room {
        Room::of(guest, &pool(1000, 300), &BalanceConfig::default())
    }

    #[test]
    fn a_guests_own_word_says_how_far_it_goes() {
        // 256 MiB, of which 200 are available: 56 are used, 16 stay in reserve.
        let it = guest("a", 256, 200);
        assert_eq!(room(&it).floor_bytes, 72 * MIB);
        assert_eq!(room(&it).giveable_bytes(), 184 * MIB);
    }

    #[test]
    fn the_operators_floor_goes_before_the_guests_word() {
        let mut it = guest("a", 1000, 990);
        assert_eq!(room(&it).floor_bytes, 100 * MIB);
        it.floor_bytes = 400 * MIB;
        assert_eq!(room(&it).floor_bytes, 400 * MIB);
    }

    #[test]
    fn who_tells_nothing_or_is_in_trouble_gives_nothing() {
        let mut silent = guest("a", 256, 200);
        silent.inside.available_bytes = None;
        let troubled = GuestView { trouble: Some("it hangs".to_owned()), ..guest("a", 256, 200) };
        let held = GuestView { held: true, ..guest("a", 256, 200) };
        let unable = GuestView { can_take: false, ..guest("a", 256, 200) };
        for it in [silent, troubled, held, unable] {
            assert_eq!(room(&it).giveable_bytes(), 0);
        }
    }

    #[test]
    fn steps_are_larger_while_it_is_urgent() {
        let it = guest("a", 1000, 900);
        let step = |available| Room::of(&it, &pool(1000, available), &BalanceConfig::default()).step_bytes;
        assert_eq!((step(300), step(40)), (50 * MIB, 150 * MIB));
    }

    #[test]
    fn the_way_back_ends_at_the_ceiling_to_the_byte() {
        let mut it = guest("a", 100, 50);
        it.given_bytes = it.whole_bytes - MIB - 5;
        assert_eq!(room(&it).after_giving(64 * MIB), it.whole_bytes);
        it.ceiling_bytes = 0;
        assert_eq!(room(&it).wanting_bytes(), 0);
    }
}
