//! The guests of the demo, their memory, and the savings that follow from it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Contents, Part};

/// Number of guests that start at the beginning.
pub const EARLY: usize = 3;

/// Passes with `smart_scan` before the late guest starts. After so many, `smart_scan` visits an old page so
/// rarely that the page and the late guest's equal page may never be visited in the same pass.
pub const AGEING_PASSES: u64 = 13;

/// The guests of the demo. Half of each guest's memory is equal in all guests, a tenth is empty, and a tenth is
/// rewritten all the time. An eighth is equal in the first and the last guest only. The rest is unique.
#[derive(Debug, Clone)]
pub struct Script {
    guests: Vec<Contents>,
}

/// Seed of the pages that all guests hold.
const COMMON: u64 = 1;
/// Seed of the pages that only the first and the late guest hold.
const PAIR: u64 = 2;
/// Time between two changes of the changing part: less than between two visits by ksmd.
const CHANGES: Duration = Duration::from_millis(20);

impl Script {
    /// Makes the guests, of `pages` pages each.
    pub fn new(pages: usize) -> Self {
        let guests = (0..=EARLY).map(|number| {
            let pair = match number {
                0 | EARLY => Part::Equal { seed: PAIR, pages: pages / 8 },
                _ => Part::Unique { pages: pages / 8 },
            };
            let parts = [
                Part::Equal { seed: COMMON, pages: pages / 2 },
                pair,
                Part::Zero { pages: pages / 10 },
                Part::Churn { pages: pages / 10, every: CHANGES },
            ];
            let rest = pages - parts.iter().map(|part| part.pages()).sum::<usize>();
            Contents(parts.into_iter().chain([Part::Unique { pages: rest }]).collect())
        });
        Self { guests: guests.collect() }
    }

    /// Contents of the guests, with the late guest last.
    pub fn guests(&self) -> &[Contents] {
        &self.guests
    }

    /// Pages that merging saves among the first `guests` guests.
    ///
    /// Of `c` equal pages `c - ceil(c / max_page_sharing)` are saved. Empty pages are all saved where they map
    /// the kernel's zero page.
    pub fn mergeable_pages(&self, guests: usize, max_page_sharing: u64, uses_zero_pages: bool) -> u64 {
        let mut copies: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut zero = 0;
        for part in self.guests.iter().take(guests).flat_map(|guest| &guest.0) {
            match *part {
                Part::Equal { seed, pages } => copies.entry(seed).or_default().push(pages as u64),
                Part::Zero { pages } => zero += pages as u64,
                // The script has no other parts.
                _ => {}
            }
        }
        // All guests hold the same number of pages of a seed.
        let saved_of = |copies: u64| copies - copies.div_ceil(max_page_sharing.max(1));
        let equal: u64 =
            copies.values().map(|pages| pages.first().map_or(0, |n| n * saved_of(pages.len() as u64))).sum();
        equal + if uses_zero_pages { zero } else { saved_of(zero) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_saved_is_known_beforehand() {
        let script = Script::new(16_000);
        assert!(script.guests().iter().all(|guest| guest.pages() == 16_000));
        // Three more copies of the common half, one of the pair, and all the empty pages.
        assert_eq!(script.mergeable_pages(4, 256, true), 3 * 8000 + 2000 + 4 * 1600);
        // 6,400 empty pages keep 25 frames where they merge with each other.
        assert_eq!(script.mergeable_pages(4, 256, false), 3 * 8000 + 2000 + 6400 - 25);
        // No other guest holds the pair before the late guest starts.
        assert_eq!(script.mergeable_pages(3, 256, true), 2 * 8000 + 3 * 1600);
    }
}
