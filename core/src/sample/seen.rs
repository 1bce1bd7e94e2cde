//! A Bloom filter of contents, with two bits for each slot: seen once, and seen twice. Most contents were not seen, and
//! need no lookup.

/// The number of slots for each content that is expected.
const BITS: usize = 8;

/// A Bloom filter of contents with one hash: it has false positives and no false negatives.
#[derive(Debug, Clone)]
pub struct ContentBloomFilter {
    once: Vec<u64>,
    twice: Vec<u64>,
}

impl ContentBloomFilter {
    /// Creates an empty filter for so many contents.
    pub fn with_capacity(contents: usize) -> Self {
        let words = (contents * BITS / 64).next_power_of_two();
        Self { once: vec![0; words], twice: vec![0; words] }
    }

    /// Adds a content. Contents must be spread evenly.
    pub fn add(&mut self, content: u64) {
        let (word, bit) = self.place(content);
        self.twice[word] |= self.once[word] & bit;
        self.once[word] |= bit;
    }

    /// Returns true if the content may have been added; false means that it was not.
    pub fn may_be_once(&self, content: u64) -> bool {
        let (word, bit) = self.place(content);
        self.once[word] & bit != 0
    }

    /// Returns true if the content may have been added twice; false means that it was not.
    pub fn may_be_twice(&self, content: u64) -> bool {
        let (word, bit) = self.place(content);
        self.twice[word] & bit != 0
    }

    fn place(&self, content: u64) -> (usize, u64) {
        let word = (content >> 6) as usize & (self.once.len() - 1);
        (word, 1 << (content & 63))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::mix;

    #[test]
    fn what_was_seen_once_and_twice_is_told_and_little_else() {
        let mut seen = ContentBloomFilter::with_capacity(10_000);
        (0..10_000).chain(0..100).for_each(|number| seen.add(mix(number)));
        assert!((0..10_000).all(|number| seen.may_be_once(mix(number))));
        assert!((0..100).all(|number| seen.may_be_twice(mix(number))));
        let twice = (100..10_000).filter(|number| seen.may_be_twice(mix(*number))).count();
        let once = (10_000..20_000).filter(|number| seen.may_be_once(mix(*number))).count();
        assert!(twice < 9_900 / 5 && once < 10_000 / 5, "{twice} {once}");
        assert!(!ContentBloomFilter::with_capacity(0).may_be_once(7));
    }
}
