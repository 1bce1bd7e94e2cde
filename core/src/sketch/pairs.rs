//! The number of contents that each two guests share.

/// A symmetric matrix over guests: the pages that merging saves by placing two guests on one host.
///
/// Off the diagonal are the distinct contents that both hold, on it the savings of the guest alone. Zero pages are left
/// out, as they merge on any host.
///
/// The measure of Wood et al., "Memory Buddies" (VEE 2009), with estimates in place of Bloom filters.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PairMatrix {
    guests: usize,
    pages: Vec<f64>,
}

impl PairMatrix {
    /// Creates a matrix of zeros.
    pub fn new(guests: usize) -> Self {
        Self { guests, pages: vec![0.0; guests * (guests + 1) / 2] }
    }

    /// Returns the number of guests.
    pub fn guests(&self) -> usize {
        self.guests
    }

    /// Returns the number of pages that `a` and `b` share.
    pub fn get(&self, a: usize, b: usize) -> f64 {
        self.index(a, b).and_then(|index| self.pages.get(index)).copied().unwrap_or(0.0)
    }

    pub(super) fn add(&mut self, a: usize, b: usize, pages: f64) {
        if let Some(cell) = self.index(a, b).and_then(|index| self.pages.get_mut(index)) {
            *cell += pages;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.pages.iter_mut().zip(&other.pages) {
            *mine += theirs;
        }
    }

    fn index(&self, a: usize, b: usize) -> Option<usize> {
        let (low, high) = (a.min(b), a.max(b));
        (high < self.guests).then(|| high * (high + 1) / 2 + low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_matter_and_strangers_share_nothing() {
        let mut pairs = PairMatrix::new(3);
        pairs.add(2, 0, 5.0);
        pairs.add(1, 1, 7.0);
        assert_eq!((pairs.get(0, 2), pairs.get(2, 0), pairs.get(1, 1)), (5.0, 5.0, 7.0));
        assert_eq!((pairs.get(0, 1), pairs.get(0, 3)), (0.0, 0.0));
        let copy = pairs.clone();
        pairs.merge(&copy);
        assert_eq!(pairs.get(0, 2), 10.0);
    }
}
