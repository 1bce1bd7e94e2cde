//! The ranges of a process's memory that are worth merging.
//!
//! ksmd visits every marked page in every pass and keeps 64 bytes for it, equal or not, so ranges with few equal pages
//! are left out. Each border splits a mapping, of which a process may have 65,530, so the number of ranges is limited:
//! beyond it the narrowest gaps are included.

/// A range of memory with the number of its pages and of those with an equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStretch {
    /// The first address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Pages with content.
    pub pages: u64,
    /// Pages with an equal elsewhere.
    pub equal: u64,
}

impl MemoryStretch {
    /// Equal pages in a thousand.
    pub fn permille(&self) -> u64 {
        (self.equal * 1000).checked_div(self.pages).unwrap_or(0)
    }

    fn join(&mut self, next: &Self) {
        self.end = next.end;
        self.pages += next.pages;
        self.equal += next.equal;
    }
}

/// Chooses the stretches with at least `worth_permille` equal pages, joined where they touch; at most `most` of them.
///
/// `all` must be in the order of addresses.
pub fn choose_stretches(all: &[MemoryStretch], worth_permille: u64, most: usize) -> Vec<MemoryStretch> {
    let mut chosen: Vec<MemoryStretch> = Vec::new();
    for stretch in all.iter().filter(|stretch| stretch.equal > 0 && stretch.permille() >= worth_permille) {
        match chosen.last_mut() {
            Some(last) if last.end == stretch.start => last.join(stretch),
            _ => chosen.push(*stretch),
        }
    }
    if chosen.len() > most.max(1) {
        close_gaps(&mut chosen, most.max(1));
    }
    chosen
}

/// Joins across the narrowest gaps until `most` are left.
fn close_gaps(chosen: &mut Vec<MemoryStretch>, most: usize) {
    let mut gaps: Vec<u64> = chosen.windows(2).map(|pair| pair[1].start - pair[0].end).collect();
    let excess = chosen.len() - most;
    gaps.sort_unstable();
    let widest = gaps.get(excess - 1).copied().unwrap_or(u64::MAX);
    let mut left = excess;
    let mut joined: Vec<MemoryStretch> = Vec::with_capacity(most);
    for stretch in chosen.iter() {
        match joined.last_mut() {
            Some(last) if left > 0 && stretch.start - last.end <= widest => {
                last.join(stretch);
                left -= 1;
            }
            _ => joined.push(*stretch),
        }
    }
    *chosen = joined;
}

/// The contents that occur more than once, by fingerprints of pages.
///
/// Of very large memory only a part of the contents is counted, but with all their copies: a sample of pages would find
/// hardly any pair.
#[derive(Debug, Clone, Default)]
pub struct ContentCensus {
    seen: Vec<u64>,
    shift: u32,
}

impl ContentCensus {
    /// Creates a census of about `pages` pages that remembers about `most` of them.
    pub fn new(pages: u64, most: u64) -> Self {
        let parts = pages.div_ceil(most.max(1)).next_power_of_two();
        Self { seen: Vec::new(), shift: parts.trailing_zeros() }
    }

    /// The binary logarithm of `all contents / counted contents`.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// Returns true if a content is counted.
    pub fn counts(&self, fingerprint: u64) -> bool {
        fingerprint.leading_zeros() >= self.shift
    }

    /// Counts one page, if its content is counted.
    pub fn add(&mut self, fingerprint: u64) {
        if self.counts(fingerprint) {
            self.seen.push(fingerprint);
        }
    }

    /// Ends the counting. Only contents that occur twice are kept.
    pub fn close(&mut self) {
        self.seen.sort_unstable();
        let twice = self.seen.chunk_by(|a, b| a == b).filter(|run| run.len() > 1).map(|run| run[0]).collect();
        self.seen = twice;
    }

    /// Returns true if a content occurs more than once.
    pub fn is_equal(&self, fingerprint: u64) -> bool {
        self.seen.binary_search(&fingerprint).is_ok()
    }
}

/// The pages of a range as they are read, for a census that is not closed yet.
#[derive(Debug, Clone, Default)]
pub struct RangeTally {
    pages: u64,
    /// The number of pages with the content of the page before, known without a census.
    repeats: u64,
    last: Option<u64>,
    counted: Vec<u64>,
}

impl RangeTally {
    /// Adds a page, and counts it in the census.
    pub fn add(&mut self, fingerprint: u64, census: &mut ContentCensus) {
        census.add(fingerprint);
        self.pages += 1;
        if self.last.replace(fingerprint) == Some(fingerprint) {
            self.repeats += 1;
        } else if census.counts(fingerprint) {
            self.counted.push(fingerprint);
        }
    }

    /// The number of pages that were added.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Estimates how many of them have an equal, after the census is closed. Exact if the census counts all contents.
    pub fn equal(&self, census: &ContentCensus) -> u64 {
        let found = self.counted.iter().filter(|fingerprint| census.is_equal(**fingerprint)).count() as u64;
        let others = self.pages - self.repeats;
        let scaled = (others * found).checked_div(self.counted.len() as u64);
        // None of its contents was counted: where most pages repeat, so do their first copies.
        self.repeats + scaled.unwrap_or(if self.repeats * 2 > self.pages { others } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stretch(index: u64, equal: u64) -> MemoryStretch {
        MemoryStretch { start: index * 0x1000, end: (index + 1) * 0x1000, pages: 100, equal }
    }

    #[test]
    fn stretches_that_touch_are_one_range_and_poor_ones_are_left_out() {
        let all = [stretch(0, 90), stretch(1, 10), stretch(2, 4), stretch(3, 0), stretch(5, 5)];
        let ranges = choose_stretches(&all, 50, 100);
        assert_eq!(ranges.len(), 2);
        assert_eq!((ranges[0].start, ranges[0].end, ranges[0].permille()), (0, 0x2000, 500));
        assert_eq!(ranges[1].start, 0x5000);
        assert!(choose_stretches(&[stretch(0, 0)], 0, 10).is_empty(), "without equal pages nothing is worth it");
    }

    #[test]
    fn the_narrowest_gaps_are_closed_first() {
        let all = [stretch(0, 50), stretch(2, 50), stretch(10, 50)];
        let ranges = choose_stretches(&all, 50, 2);
        assert_eq!((ranges[0].start, ranges[0].end, ranges[1].start), (0, 0x3000, 0xa000));
        assert_eq!(choose_stretches(&all, 50, 1).len(), 1);
    }

    fn equal(census: &mut ContentCensus, memories: &[Vec<u64>]) -> Vec<u64> {
        let tallies: Vec<RangeTally> = memories
            .iter()
            .map(|memory| {
                let mut tally = RangeTally::default();
                memory.iter().for_each(|fingerprint| tally.add(*fingerprint, census));
                tally
            })
            .collect();
        census.close();
        tallies.iter().map(|tally| tally.equal(census)).collect()
    }

    /// Spread as a hash spreads them.
    fn hashes(from: u64, count: u64) -> Vec<u64> {
        (from..from + count).map(|i| (i + 2).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
    }

    #[test]
    fn a_census_of_everything_is_exact() {
        let mut census = ContentCensus::new(1000, 1000);
        assert_eq!(census.shift(), 0);
        assert_eq!(equal(&mut census, &[vec![3, 4, 5], vec![4, 6], vec![7, 7, 7]]), [1, 1, 3]);
    }

    #[test]
    fn a_census_of_a_part_is_near() {
        let mut census = ContentCensus::new(64_000, 8000);
        assert_eq!(census.shift(), 3);
        // Half of the first is in the second.
        let found = equal(&mut census, &[hashes(0, 20_000), hashes(10_000, 44_000), vec![u64::MAX; 1000]]);
        assert!((9000..11_000).contains(&found[0]), "{found:?}");
        assert_eq!(found[2], 1000, "equal neighbours are known without");
        assert!(census.seen.len() < 3000);
    }

    proptest! {
        #[test]
        fn every_rich_stretch_is_within_a_range_and_there_are_not_too_many(
            equal in prop::collection::vec(0_u64..100, 0..80), gaps in prop::collection::vec(0_u64..5, 80), most in 1_usize..20
        ) {
            let mut index = 0;
            let all: Vec<MemoryStretch> = equal.iter().zip(gaps).map(|(equal, gap)| { index += 1 + gap; stretch(index, *equal) }).collect();
            let ranges = choose_stretches(&all, 50, most);
            prop_assert!(ranges.len() <= most);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            for rich in all.iter().filter(|stretch| stretch.permille() >= 50) {
                prop_assert!(ranges.iter().any(|range| range.start <= rich.start && rich.end <= range.end));
            }
        }
    }
}
