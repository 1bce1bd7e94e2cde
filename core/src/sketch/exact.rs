//! The exact count of all pages, which the other two modes estimate.
//!
//! The caller holds 8 bytes for each page. A pass over the fingerprints is done in parts by their upper bits,
//! so that the sorted copy of a part is small, and parts may run on several threads.

pub use super::group::ContentSums;
use super::group::GuestPageCount;
use super::outcome::SavingsOutcome;
use super::rules::MergeRules;
use super::{SKIPPED, ZERO};

/// The approximate size of a part in fingerprints, of 16 bytes each while it is sorted.
const PART: u64 = 1 << 18;

/// The number of fingerprints below which a second thread does not pay.
const SMALL: u64 = 1 << 14;

/// The fingerprints of one guest in any order and any number of pieces.
///
/// Zero pages are [`ZERO`], and pages that take no part [`SKIPPED`].
#[derive(Debug, Clone, Default)]
pub struct GuestPages<'a> {
    /// The pieces in any order.
    pub pieces: Vec<&'a [u64]>,
}

/// Chooses the number of parts for a number of pages and threads: a power of two, at most 256.
///
/// Each part costs a walk over all fingerprints. So there are only as many as the threads need, and as keep the sorted
/// copies of all threads below 16 bytes for each page.
pub fn parts(pages: u64, threads: usize) -> u64 {
    let threads = u64::try_from(threads).unwrap_or(u64::MAX);
    match pages {
        0..SMALL => 1,
        _ => pages.div_ceil(PART).min(32).max(threads.saturating_mul(2)).min(256).next_power_of_two(),
    }
}

/// Sums over the contents with fingerprints in `part` of `parts` (a power of two).
pub fn sums(guests: &[GuestPages<'_>], part: u64, parts: u64, rules: &MergeRules, with_pairs: bool) -> ContentSums {
    let bits = parts.trailing_zeros();
    let is_mine = |fingerprint: u64| fingerprint.checked_shr(64 - bits).unwrap_or(0) == part;
    let pages: u64 = guests.iter().flat_map(|guest| &guest.pieces).map(|piece| piece.len() as u64).sum();
    // A little more than the mean spares a second allocation.
    let mut entries: Vec<(u64, u32)> = Vec::with_capacity((pages / parts + pages / parts / 16) as usize);
    for (guest, pieces) in (0_u32..).zip(guests) {
        for piece in &pieces.pieces {
            let mine = piece.iter().filter(|&&f| f > SKIPPED && is_mine(f));
            entries.extend(mine.map(|&fingerprint| (fingerprint, guest)));
        }
    }
    entries.sort_unstable();
    let mut sums = ContentSums::new(guests.len(), with_pairs);
    let mut holders = Vec::new();
    for content in entries.chunk_by(|a, b| a.0 == b.0) {
        holders.clear();
        for copies in content.chunk_by(|a, b| a.1 == b.1) {
            holders.push((copies[0].1, u32::try_from(copies.len()).unwrap_or(u32::MAX)));
        }
        sums.add(&holders, 1.0, rules);
    }
    sums
}

/// Counts the pages of each guest, in the order of `guests`.
pub fn counted(guests: &[GuestPages<'_>]) -> Vec<GuestPageCount> {
    let count = |guest: &GuestPages<'_>| {
        let all = || guest.pieces.iter().copied().flatten();
        GuestPageCount {
            pages: all().filter(|&&f| f != SKIPPED).count() as u64,
            zero: all().filter(|&&f| f == ZERO).count() as u64,
        }
    };
    guests.iter().map(count).collect()
}

/// Computes the outcome on one thread.
pub fn outcome(guests: &[GuestPages<'_>], rules: &MergeRules, with_pairs: bool) -> SavingsOutcome {
    let counted = counted(guests);
    let parts = parts(counted.iter().map(|guest| guest.pages).sum(), 1);
    let mut all = ContentSums::new(guests.len(), with_pairs);
    for part in 0..parts {
        all.merge(&sums(guests, part, parts, rules, with_pairs));
    }
    all.outcome(&counted, rules)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::sketch::fingerprint;
    use crate::sketch::mix;

    fn pages(guests: &[Vec<u64>]) -> Vec<GuestPages<'_>> {
        guests.iter().map(|guest| GuestPages { pieces: vec![guest] }).collect()
    }

    #[test]
    fn two_clones_save_half_and_zero_pages_go_to_their_frames() {
        let clone: Vec<u64> = (2..102).chain([ZERO; 20]).collect();
        let guests = [clone.clone(), clone];
        let outcome = outcome(&pages(&guests), &MergeRules::default(), true);
        assert_eq!(outcome.total.saved.expected, 100.0 + 39.0);
        assert_eq!(outcome.guests[0].saved.expected, 50.0 + 19.5);
        assert_eq!((outcome.guests[1].across, outcome.guests[1].within), (100.0, 0.0));
        assert_eq!(outcome.pairs.unwrap().get(0, 1), 100.0);
        let rules = MergeRules { use_zero_pages: true, ..MergeRules::default() };
        assert_eq!(super::outcome(&pages(&guests), &rules, false).total.saved.expected, 140.0);
    }

    #[test]
    fn pages_that_are_skipped_take_no_part() {
        let guests = [vec![5, 5, SKIPPED, SKIPPED, ZERO]];
        let outcome = outcome(&pages(&guests), &MergeRules::default(), false);
        assert_eq!(outcome.guests[0].pages, 3);
        assert_eq!((outcome.guests[0].within, outcome.guests[0].zero), (1.0, 1.0));
    }

    #[test]
    fn every_page_is_in_one_of_the_parts() {
        let guests = [(2..200_000_u64).map(|i| fingerprint(mix(i))).collect::<Vec<_>>()];
        for parts in [1, 2, 8, 64] {
            let distinct: f64 = (0..parts)
                .map(|part| sums(&pages(&guests), part, parts, &MergeRules::default(), false))
                .map(|sums| {
                    sums.outcome(&[GuestPageCount { pages: 199_998, zero: 0 }], &MergeRules::default()).total.unique
                })
                .sum();
            assert_eq!(distinct, 199_998.0);
        }
        assert_eq!((parts(0, 8), parts(PART, 1), parts(8 * PART, 1), parts(PART, 8)), (1, 2, 8, 16));
        assert_eq!((parts(u64::MAX / 2, 2), parts(u64::MAX / 2, 1000)), (32, 256));
    }

    proptest! {
        /// Against the definition, written out with maps and sets.
        #[test]
        fn exact_is_what_the_definition_says(
            guests in prop::collection::vec(prop::collection::vec(0_u64..40, 0..200), 1..5),
            max_page_sharing in 2_u64..9,
            use_zero_pages: bool,
        ) {
            let spread = |&small: &u64| if small <= SKIPPED { small } else { fingerprint(mix(small)) };
            let guests: Vec<Vec<u64>> = guests.iter().map(|guest| guest.iter().map(spread).collect()).collect();
            let rules = MergeRules { max_page_sharing, use_zero_pages };
            let outcome = outcome(&pages(&guests), &rules, true);

            let mut copies: BTreeMap<u64, u64> = BTreeMap::new();
            for page in guests.iter().flatten().filter(|&&page| page != SKIPPED) {
                *copies.entry(*page).or_default() += 1;
            }
            let saved: u64 = copies.iter().map(|(&content, &c)| match content {
                ZERO => c - rules.zero_frames(c),
                _ => c - c.div_ceil(max_page_sharing),
            }).sum();
            prop_assert!((outcome.total.saved.expected - saved as f64).abs() < 1e-6);
            prop_assert!((outcome.total.saved.low - saved as f64).abs() < 1e-6);
            prop_assert!((outcome.total.saved.high - saved as f64).abs() < 1e-6);
            let parts: f64 = outcome.guests.iter().map(|guest| guest.saved.expected).sum();
            prop_assert!((parts - saved as f64).abs() < 1e-6);

            let sets: Vec<BTreeSet<u64>> =
                guests.iter().map(|g| g.iter().copied().filter(|&p| p > SKIPPED).collect()).collect();
            let pairs = outcome.pairs.unwrap();
            for (a, guest) in outcome.guests.iter().enumerate() {
                let nonzero = guests[a].iter().filter(|&&page| page > SKIPPED).count();
                let elsewhere: BTreeSet<u64> =
                    sets.iter().enumerate().filter(|&(b, _)| b != a).flat_map(|(_, s)| s.iter().copied()).collect();
                prop_assert_eq!(guest.within, (nonzero - sets[a].len()) as f64);
                prop_assert_eq!(guest.across, sets[a].intersection(&elsewhere).count() as f64);
                prop_assert_eq!(guest.zero + guest.within + guest.across + guest.unique, guest.pages as f64);
                for b in 0..guests.len() {
                    let shared = if a == b { nonzero - sets[a].len() } else { sets[a].intersection(&sets[b]).count() };
                    prop_assert_eq!(pairs.get(a, b), shared as f64);
                }
            }
        }
    }
}
