//! Which stretches of a process's memory are worth merging.
//!
//! ksmd visits every marked page in every pass and keeps 64 bytes for it, equal or not. A stretch with few equal pages
//! is therefore left out. Each border parts a mapping in the kernel, of which a process may have 65,530: so there are
//! not many ranges, and where there would be, the narrowest gaps are included.

use std::collections::HashMap;

/// A stretch of memory: where, how many pages of it are there, and how many of these have an equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stretch {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Pages with content.
    pub pages: u64,
    /// Of these, with an equal elsewhere.
    pub equal: u64,
}

impl Stretch {
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

/// Chooses the stretches with at least `worth_permille` equal pages, joined where they touch, and at most `most` of
/// them. `all` is in the order of addresses.
pub fn worth(all: &[Stretch], worth_permille: u64, most: usize) -> Vec<Stretch> {
    let mut chosen: Vec<Stretch> = Vec::new();
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
fn close_gaps(chosen: &mut Vec<Stretch>, most: usize) {
    let mut gaps: Vec<u64> = chosen.windows(2).map(|pair| pair[1].start - pair[0].end).collect();
    let excess = chosen.len() - most;
    gaps.sort_unstable();
    let widest = gaps.get(excess - 1).copied().unwrap_or(u64::MAX);
    let mut left = excess;
    let mut joined: Vec<Stretch> = Vec::with_capacity(most);
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

/// How often each content occurs, from fingerprints of pages.
#[derive(Debug, Clone, Default)]
pub struct Census(HashMap<u64, bool>);

impl Census {
    /// Counts one page.
    pub fn count(&mut self, fingerprint: u64) {
        self.0.entry(fingerprint).and_modify(|is_equal| *is_equal = true).or_insert(false);
    }

    /// Whether a content occurs more than once.
    pub fn is_equal(&self, fingerprint: u64) -> bool {
        self.0.get(&fingerprint).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stretch(index: u64, equal: u64) -> Stretch {
        Stretch { start: index * 0x1000, end: (index + 1) * 0x1000, pages: 100, equal }
    }

    #[test]
    fn what_touches_is_one_range_and_what_is_poor_is_none() {
        let all = [stretch(0, 90), stretch(1, 10), stretch(2, 4), stretch(3, 0), stretch(5, 5)];
        let ranges = worth(&all, 50, 100);
        assert_eq!(ranges.len(), 2);
        assert_eq!((ranges[0].start, ranges[0].end, ranges[0].permille()), (0, 0x2000, 500));
        assert_eq!(ranges[1].start, 0x5000);
        assert!(worth(&[stretch(0, 0)], 0, 10).is_empty(), "without equal pages nothing is worth it");
    }

    #[test]
    fn the_narrowest_gaps_are_closed_first() {
        let all = [stretch(0, 50), stretch(2, 50), stretch(10, 50)];
        let ranges = worth(&all, 50, 2);
        assert_eq!((ranges[0].start, ranges[0].end, ranges[1].start), (0, 0x3000, 0xa000));
        assert_eq!(worth(&all, 50, 1).len(), 1);
    }

    #[test]
    fn a_census_tells_contents_that_occur_twice() {
        let mut census = Census::default();
        [3, 4, 3].into_iter().for_each(|fingerprint| census.count(fingerprint));
        assert_eq!([3, 4, 5].map(|fingerprint| census.is_equal(fingerprint)), [true, false, false]);
    }

    proptest! {
        #[test]
        fn every_rich_stretch_is_within_a_range_and_there_are_not_too_many(
            equal in prop::collection::vec(0_u64..100, 0..80), gaps in prop::collection::vec(0_u64..5, 80), most in 1_usize..20
        ) {
            let mut index = 0;
            let all: Vec<Stretch> = equal.iter().zip(gaps).map(|(equal, gap)| { index += 1 + gap; stretch(index, *equal) }).collect();
            let ranges = worth(&all, 50, most);
            prop_assert!(ranges.len() <= most);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start || pair[0].end == pair[1].start));
            for rich in all.iter().filter(|stretch| stretch.permille() >= 50) {
                prop_assert!(ranges.iter().any(|range| range.start <= rich.start && rich.end <= range.end));
            }
        }
    }
}
