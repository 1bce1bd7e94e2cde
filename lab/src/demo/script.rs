//! The guests of the demo, their memory, and the savings that follow from it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{GuestContents, MemoryPart};
use ksmith_core::kernel::Ksm;

/// Number of guests that start at the beginning.
pub const EARLY: usize = 3;

/// Passes with `smart_scan` before the late guest starts. After so many, `smart_scan` visits an old page so
/// rarely that the page and the late guest's equal page may never be visited in the same pass.
pub const AGEING_PASSES: u64 = 13;

/// The guests of the demo. Half of each guest's memory is equal in all guests, a tenth is empty, and a tenth is
/// rewritten all the time. An eighth is equal in the first and the last guest only. The rest is unique.
#[derive(Debug, Clone)]
pub struct DemoScript {
    guests: Vec<GuestContents>,
}

/// Seed of the pages that all guests hold.
const COMMON: u64 = 1;
/// Seed of the pages that only the first and the late guest hold.
const PAIR: u64 = 2;
/// Time between two changes of the changing part: less than between two visits by ksmd.
const CHANGES: Duration = Duration::from_millis(20);
/// The share of a CPU that one guest spends on its changing part, at most. On a slow machine, such as an emulated one, the
/// guests would otherwise leave ksmd no CPU time.
const CHANGING_SHARE: u32 = 10;

impl DemoScript {
    /// Makes the guests, of `pages` pages each.
    pub fn new(pages: usize) -> Self {
        let guests = (0..=EARLY).map(|number| {
            let pair = match number {
                0 | EARLY => MemoryPart::Equal { seed: PAIR, pages: pages / 8 },
                _ => MemoryPart::Unique { pages: pages / 8 },
            };
            let parts = [
                MemoryPart::Equal { seed: COMMON, pages: pages / 2 },
                pair,
                MemoryPart::Zero { pages: pages / 10 },
                MemoryPart::Churn { pages: pages / 10, every: CHANGES },
            ];
            let rest = pages - parts.iter().map(|part| part.pages()).sum::<usize>();
            GuestContents(parts.into_iter().chain([MemoryPart::Unique { pages: rest }]).collect())
        });
        Self { guests: guests.collect() }
    }

    /// Has the guests rewrite their changing part more slowly, where writing all of it once takes `rewriting`.
    #[must_use]
    pub fn paced(mut self, rewriting: Duration) -> Self {
        let slower = CHANGES.max(rewriting * CHANGING_SHARE);
        for part in self.guests.iter_mut().flat_map(|guest| &mut guest.0) {
            if let MemoryPart::Churn { every, .. } = part {
                *every = slower;
            }
        }
        self
    }

    /// The changing part of one guest, in pages.
    pub fn changing_pages(&self) -> usize {
        let parts = self.guests.first().into_iter().flat_map(|guest| &guest.0);
        parts.filter(|part| matches!(part, MemoryPart::Churn { .. })).map(|part| part.pages()).sum()
    }

    /// Contents of the guests, with the late guest last.
    pub fn guests(&self) -> &[GuestContents] {
        &self.guests
    }

    /// Pages that merging saves among the first `guests` guests.
    ///
    /// Of `c` equal pages `c - ceil(c / max_page_sharing)` are saved, and of empty pages as `empty` says.
    pub fn mergeable_pages(&self, guests: usize, max_page_sharing: u64, empty: EmptyPages) -> u64 {
        let mut copies: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut zero = 0;
        for part in self.guests.iter().take(guests).flat_map(|guest| &guest.0) {
            match *part {
                MemoryPart::Equal { seed, pages } => copies.entry(seed).or_default().push(pages as u64),
                MemoryPart::Zero { pages } => zero += pages as u64,
                // The script has no other parts.
                _ => {}
            }
        }
        // All guests hold the same number of pages of a seed.
        let saved_of = |copies: u64| copies - copies.div_ceil(max_page_sharing.max(1));
        let equal: u64 =
            copies.values().map(|pages| pages.first().map_or(0, |n| n * saved_of(pages.len() as u64))).sum();
        let empty = match empty {
            EmptyPages::ZeroPage => zero,
            EmptyPages::Merge => saved_of(zero),
            EmptyPages::Uncounted => 0,
        };
        equal + empty
    }
}

/// A kernel's treatment of empty pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyPages {
    /// They map the kernel's zero page, and count as saved.
    ZeroPage,
    /// They merge with each other like any others.
    Merge,
    /// They map the kernel's zero page, and the kernel does not count them.
    Uncounted,
}

impl EmptyPages {
    /// Determines the treatment from KSM's files, under the policy of the demo.
    pub fn from_ksm(ksm: &Ksm) -> Self {
        match ksm.use_zero_pages.get() {
            _ if ksm.ksm_zero_pages.get().is_some() => Self::ZeroPage,
            Some(1) => Self::Uncounted,
            _ => Self::Merge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ksmith_core::reading::Reading;

    #[test]
    fn what_can_be_saved_is_known_beforehand() {
        let script = DemoScript::new(16_000);
        assert!(script.guests().iter().all(|guest| guest.pages() == 16_000));
        // Three more copies of the common half, one of the pair, and all the empty pages.
        assert_eq!(script.mergeable_pages(4, 256, EmptyPages::ZeroPage), 3 * 8000 + 2000 + 4 * 1600);
        // 6,400 empty pages keep 25 frames where they merge with each other.
        assert_eq!(script.mergeable_pages(4, 256, EmptyPages::Merge), 3 * 8000 + 2000 + 6400 - 25);
        // No other guest holds the pair before the late guest starts.
        assert_eq!(script.mergeable_pages(3, 256, EmptyPages::ZeroPage), 2 * 8000 + 3 * 1600);
    }
    #[test]
    fn empty_pages_count_as_the_kernel_counts_them() {
        let of = |uses, counts: bool| {
            let mut ksm = Ksm { use_zero_pages: uses, ..Ksm::default() };
            if counts {
                ksm.ksm_zero_pages = Reading::Value(0);
            }
            EmptyPages::from_ksm(&ksm)
        };
        // The policy switches it on where it is counted.
        assert_eq!(of(Reading::Value(0), true), EmptyPages::ZeroPage);
        assert_eq!(of(Reading::Value(0), false), EmptyPages::Merge);
        assert_eq!(of(Reading::Value(1), false), EmptyPages::Uncounted);
        assert_eq!(of(Reading::Absent, false), EmptyPages::Merge);
    }

    #[test]
    fn a_slow_machine_spends_a_tenth_of_a_cpu_on_each_guests_changes() {
        let every = |rewriting| {
            let script = DemoScript::new(1000).paced(Duration::from_millis(rewriting));
            assert_eq!(script.changing_pages(), 100);
            let parts = script.guests().iter().flat_map(|guest| guest.0.clone()).collect::<Vec<_>>();
            let every = parts.iter().filter_map(|part| match part {
                MemoryPart::Churn { every, .. } => Some(every.as_millis()),
                _ => None,
            });
            let every: Vec<_> = every.collect();
            assert_eq!(every.len(), EARLY + 1);
            every[0]
        };
        assert_eq!((every(0), every(2), every(50)), (20, 20, 500));
    }
}
