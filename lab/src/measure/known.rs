//! The attainable savings, known from the guests' contents.

use std::collections::BTreeMap;

use ksmith_core::sim::{MixedKind, mixed_kind};

use crate::filled::page_size;
use crate::{GuestContents, MemoryPart};

/// The most copies that share one frame: the kernel's default for `max_page_sharing`.
const MAX_PAGE_SHARING: u64 = 256;

/// The running guests, and which of their parts have been rewritten.
#[derive(Debug, Clone, Default)]
pub struct KnownGuests {
    guests: BTreeMap<usize, (GuestContents, Vec<bool>)>,
}

impl KnownGuests {
    /// Records the start of a guest with these contents.
    pub fn start(&mut self, guest: usize, contents: &GuestContents) {
        self.guests.insert(guest, (contents.clone(), vec![false; contents.0.len()]));
    }

    /// Records the end of a guest.
    pub fn stop(&mut self, guest: usize) {
        self.guests.remove(&guest);
    }

    /// Records that a part has unique content, or (`false`) its first content again.
    pub fn rewritten(&mut self, guest: usize, part: usize, is_rewritten: bool) {
        if let Some(mark) = self.guests.get_mut(&guest).and_then(|(_, marks)| marks.get_mut(part)) {
            *mark = is_rewritten;
        }
    }

    /// The most bytes that merging can save now.
    ///
    /// Of `c` equal pages `c - ceil(c / max_page_sharing)` are saved, and every page of zeros, as with
    /// `use_zero_pages`. Parts that change all the time do not count.
    pub fn attainable_bytes(&self) -> u64 {
        let mut parts: BTreeMap<(bool, u64), Vec<u64>> = BTreeMap::new();
        let mut saved = 0;
        let pristine = self.guests.values().flat_map(|(contents, rewritten)| {
            contents.0.iter().zip(rewritten).filter(|(_, rewritten)| !**rewritten).map(|(part, _)| *part)
        });
        for part in pristine {
            match part {
                MemoryPart::Equal { seed, pages } => parts.entry((false, seed)).or_default().push(pages as u64),
                MemoryPart::Mixed { seed, pages } => {
                    let count = |kind| (0..pages as u64).filter(|page| mixed_kind(*page) == kind).count() as u64;
                    parts.entry((true, seed)).or_default().push(count(MixedKind::Equal));
                    saved += count(MixedKind::Zero);
                }
                MemoryPart::Zero { pages } => saved += pages as u64,
                // No other part can be saved.
                _ => {}
            }
        }
        // Page n of a seed is in every part of this seed with more than n pages.
        for sizes in parts.values_mut() {
            sizes.sort_unstable();
            let mut below = 0;
            for (place, size) in sizes.iter().enumerate() {
                let copies = (sizes.len() - place) as u64;
                saved += (size - below) * (copies - copies.div_ceil(MAX_PAGE_SHARING));
                below = *size;
            }
        }
        saved * page_size() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(known: &KnownGuests) -> u64 {
        known.attainable_bytes() / page_size() as u64
    }

    #[test]
    fn what_can_be_saved_follows_the_guests() {
        let contents = |equal| {
            GuestContents(vec![
                MemoryPart::Equal { seed: 1, pages: equal },
                MemoryPart::Zero { pages: 10 },
                MemoryPart::Unique { pages: 500 },
                MemoryPart::Work { pages: 500, percent: 1 },
            ])
        };
        let mut known = KnownGuests::default();
        known.start(0, &contents(100));
        assert_eq!(pages(&known), 10);
        known.start(1, &contents(100));
        known.start(2, &contents(40));
        assert_eq!(pages(&known), 100 + 40 + 30);
        known.rewritten(0, 0, true);
        known.rewritten(1, 1, true);
        assert_eq!(pages(&known), 40 + 20);
        known.rewritten(0, 0, false);
        known.stop(1);
        assert_eq!(pages(&known), 40 + 20);
    }

    #[test]
    fn a_frame_serves_no_more_than_256() {
        let mut known = KnownGuests::default();
        for guest in 0..257 {
            known.start(guest, &GuestContents(vec![MemoryPart::Equal { seed: 1, pages: 3 }]));
        }
        assert_eq!(pages(&known), 3 * (257 - 2));
    }
}
