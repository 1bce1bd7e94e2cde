//! Which contents may have been seen, once or twice, in little memory: most have not, and need not be looked up.

/// Bits for each content that is expected.
const BITS: usize = 8;

/// Contents that were seen, by some of their bits: others may be taken for them.
#[derive(Debug, Clone)]
pub struct Seen {
    once: Vec<u64>,
    twice: Vec<u64>,
}

impl Seen {
    /// Nothing is seen yet, and so many contents are expected.
    pub fn expecting(contents: usize) -> Self {
        let words = (contents * BITS / 64).next_power_of_two();
        Self { once: vec![0; words], twice: vec![0; words] }
    }

    /// Notes a content. Contents are spread evenly.
    pub fn add(&mut self, content: u64) {
        let (word, bit) = self.place(content);
        self.twice[word] |= self.once[word] & bit;
        self.once[word] |= bit;
    }

    /// Whether the content may have been noted. False where it was not.
    pub fn may_be_once(&self, content: u64) -> bool {
        let (word, bit) = self.place(content);
        self.once[word] & bit != 0
    }

    /// Whether the content may have been noted twice. False where it was not.
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
        let mut seen = Seen::expecting(10_000);
        (0..10_000).chain(0..100).for_each(|number| seen.add(mix(number)));
        assert!((0..10_000).all(|number| seen.may_be_once(mix(number))));
        assert!((0..100).all(|number| seen.may_be_twice(mix(number))));
        let twice = (100..10_000).filter(|number| seen.may_be_twice(mix(*number))).count();
        let once = (10_000..20_000).filter(|number| seen.may_be_once(mix(*number))).count();
        assert!(twice < 9_900 / 5 && once < 10_000 / 5, "{twice} {once}");
        assert!(!Seen::expecting(0).may_be_once(7));
    }
}
