//! Copies of the contents that have many of them in a guest, counted whether the sampling rate keeps them or not.
//!
//! A few contents make up most of what a guest saves alone. A sample misses most of them, so their number of copies
//! is counted in full. Contents with fewer copies pass a count-min sketch with conservative update (Estan and
//! Varghese, SIGCOMM 2002), which takes one byte for each page of the guest at most.

use std::collections::HashMap;

use crate::counted::CountedContent;

/// Number of copies that a content has at most without being heavy.
pub const HEAVY_ABOVE: u32 = 8;

/// Limit of counters, four bits each. A guest with more pages (128 GiB) has too many contents for them.
const MOST_COUNTERS: u64 = 1 << 25;

/// Limit of a guest's heavy contents.
const MOST_HEAVY: usize = 1 << 14;

/// A counter of the heavy contents of one guest.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct HeavyCounter {
    /// Number of counters, a power of two; 0 if nothing is counted.
    counters: u64,
    /// The counters, two in a byte. Empty before the first page, and once all pages were read.
    cells: Vec<u8>,
    heavy: HashMap<u64, CountedContent>,
}

impl HeavyCounter {
    /// Creates a counter for a guest with about this many pages. It takes no memory before the first page.
    pub(crate) fn new(pages: u64) -> Self {
        let counters = if pages > MOST_COUNTERS { 0 } else { (2 * pages).next_power_of_two().min(MOST_COUNTERS) };
        Self { counters, cells: Vec::new(), heavy: HashMap::new() }
    }

    /// Counts a page. Returns true if the second look should read it.
    ///
    /// A count may be too high where both counters of a content are shared with others: seldom, and by a page or two.
    pub(crate) fn add(&mut self, fingerprint: u64) -> bool {
        if self.counters == 0 {
            return false;
        }
        if let Some(content) = self.heavy.get_mut(&fingerprint) {
            return content.add();
        }
        if self.cells.is_empty() {
            self.cells = vec![0; (self.counters / 2).max(1) as usize];
        }
        let places = self.places(fingerprint);
        let [one, other] = places.map(|place| self.count(place));
        let least = one.min(other);
        if u32::from(least) == HEAVY_ABOVE {
            return self.admit(fingerprint);
        }
        for (place, count) in places.into_iter().zip([one, other]) {
            if count == least && self.count(place) == least {
                self.set(place, least + 1);
            }
        }
        false
    }

    /// Begins to count a content at its ninth page.
    fn admit(&mut self, fingerprint: u64) -> bool {
        if self.heavy.len() == MOST_HEAVY {
            *self = Self::default();
            return false;
        }
        let mut content = CountedContent::with_copies(HEAVY_ABOVE);
        let is_noted = content.add();
        self.heavy.insert(fingerprint, content);
        is_noted
    }

    /// Takes over a content that the sample drops, with its exact count.
    pub(crate) fn adopt(&mut self, fingerprint: u64, content: CountedContent) {
        if self.counters > 0 {
            self.heavy.insert(fingerprint, content);
        }
    }

    /// Returns a heavy content.
    pub(crate) fn get_mut(&mut self, fingerprint: u64) -> Option<&mut CountedContent> {
        self.heavy.get_mut(&fingerprint)
    }

    /// Returns true if the content is heavy.
    pub(crate) fn contains(&self, fingerprint: u64) -> bool {
        self.heavy.contains_key(&fingerprint)
    }

    /// Frees the counters: all pages were read.
    pub(crate) fn close(&mut self) {
        self.cells = Vec::new();
    }

    /// Returns the heavy contents; `None` if they were not counted.
    pub(crate) fn into_contents(self) -> Option<HashMap<u64, CountedContent>> {
        (self.counters > 0).then_some(self.heavy)
    }

    /// Returns the two counters of a content. Sampled fingerprints have upper bits of 0, so all bits are mixed for one.
    fn places(&self, fingerprint: u64) -> [u64; 2] {
        let mask = self.counters - 1;
        [fingerprint & mask, (fingerprint.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) & mask]
    }

    fn count(&self, place: u64) -> u8 {
        let byte = self.cells.get((place / 2) as usize).copied().unwrap_or(0);
        (byte >> (4 * (place % 2))) & 15
    }

    fn set(&mut self, place: u64, count: u8) {
        if let Some(byte) = self.cells.get_mut((place / 2) as usize) {
            let shift = 4 * (place % 2);
            *byte = (*byte & !(15 << shift)) | (count << shift);
        }
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::sketch::mix;

    use super::*;

    /// Counts contents of which each has a number of copies, in the order of rounds, and returns their copies.
    fn count(pages: u64, contents: &[(u64, u32)]) -> Option<HashMap<u64, u32>> {
        let mut counter = HeavyCounter::new(pages);
        let most = contents.iter().map(|(_, copies)| *copies).max().unwrap_or(0);
        for round in 0..most {
            for (content, _) in contents.iter().filter(|(_, copies)| round < *copies) {
                counter.add(mix(*content));
            }
        }
        counter.close();
        let found = counter.into_contents()?;
        Some(found.into_iter().map(|(fingerprint, content)| (fingerprint, content.copies())).collect())
    }

    #[test]
    fn a_content_is_heavy_from_its_ninth_copy_on() {
        let found = count(1000, &[(1, 8), (2, 9), (3, 700), (4, 1)]).unwrap();
        assert_eq!(found, HashMap::from([(mix(2), 9), (mix(3), 700)]));
    }

    #[test]
    fn among_as_many_contents_as_pages_counts_are_exact_but_for_a_page_or_two() {
        let light = (0..100_000).map(|content| (content, 1 + (content % 8) as u32));
        let heavy = (200_000..200_100).map(|content| (content, 9 + (content % 50) as u32));
        let contents: Vec<(u64, u32)> = light.chain(heavy).collect();
        let pages = contents.iter().map(|(_, copies)| u64::from(*copies)).sum();
        let found = count(pages, &contents).unwrap();
        let truth: HashMap<u64, u32> = contents.iter().map(|(content, copies)| (mix(*content), *copies)).collect();
        for (content, copies) in truth.iter().filter(|(_, copies)| **copies > HEAVY_ABOVE) {
            let counted = found.get(content).copied().unwrap_or(0);
            assert!((*copies..=copies + 2).contains(&counted), "{counted} instead of {copies}");
        }
        let excess: u32 = found.iter().map(|(content, copies)| copies.saturating_sub(truth[content])).sum();
        let wrong = found.keys().filter(|content| truth[*content] <= HEAVY_ABOVE).count();
        // Of the 12,500 contents with eight copies.
        assert!(wrong < 250 && excess < 400, "{wrong} of {}, {excess} pages too many", found.len());
    }

    #[test]
    fn a_guest_that_is_too_large_or_has_too_many_heavy_contents_has_no_count() {
        assert_eq!(count(MOST_COUNTERS + 1, &[(1, 20)]), None);
        let many: Vec<(u64, u32)> = (0..=MOST_HEAVY as u64).map(|content| (content, 9)).collect();
        assert_eq!(count(1 << 20, &many), None);
        assert_eq!(count(1 << 20, &many[1..]).unwrap().len(), MOST_HEAVY);
        assert_eq!(count(0, &[]), Some(HashMap::new()));
    }

    #[test]
    fn counters_take_a_byte_a_page_while_pages_are_read() {
        let mut counter = HeavyCounter::new(10_000);
        assert_eq!(counter.cells.capacity(), 0);
        counter.add(7);
        assert_eq!(counter.cells.len(), 16_384);
        assert_eq!(HeavyCounter::new(MOST_COUNTERS).counters / 2, 16 << 20);
        counter.close();
        assert_eq!(counter.cells.capacity(), 0);
    }
}
