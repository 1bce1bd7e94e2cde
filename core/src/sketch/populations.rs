//! Populations of pages on which the estimators are tested.

use super::mix::{TestRng, unit};
use super::{SKIPPED, ZERO, fingerprint, mix};

/// A way in which guests are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TestPopulation {
    /// Each page is drawn from half as many contents.
    UniformDuplicates,
    /// Contents with Zipf-like numbers of copies, some beyond `max_page_sharing`.
    Zipf,
    /// The same pages at the same places in four guests, and a fifth of each guest's own.
    Clones,
    /// The same pages in four guests at other places.
    ShuffledClones,
    /// A third of all pages is one content that is not zero.
    OneHeavyPage,
    /// No two pages are equal.
    AllUnique,
    /// Nine of ten pages are zero.
    MostlyZero,
    /// Unique but for three contents with 1,500 copies each: easily missed.
    RareHeavy,
}

pub(super) const POPULATIONS: [TestPopulation; 8] = [
    TestPopulation::UniformDuplicates,
    TestPopulation::Zipf,
    TestPopulation::Clones,
    TestPopulation::ShuffledClones,
    TestPopulation::OneHeavyPage,
    TestPopulation::AllUnique,
    TestPopulation::MostlyZero,
    TestPopulation::RareHeavy,
];

const GUESTS: usize = 4;

impl TestPopulation {
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    /// Contents among 40,000 pages, roughly: whether a table of a few thousand must overflow.
    pub fn distinct(self) -> usize {
        match self {
            Self::MostlyZero | Self::Zipf => 4_000,
            Self::Clones | Self::ShuffledClones => 9_000,
            _ => 20_000,
        }
    }

    /// Four guests with `pages` pages together. Small numbers stand for contents; 0 is the zero page.
    pub fn guests(self, pages: usize) -> Vec<Vec<u64>> {
        let each = pages / GUESTS;
        let mut rng = TestRng(self as u64 + 1);
        let mut fresh = 1_u64 << 40;
        let mut guests: Vec<Vec<u64>> = (0..GUESTS)
            .map(|guest| {
                (0..each)
                    .map(|index| {
                        fresh += 1;
                        let number = (guest * each + index) as u64;
                        match self {
                            Self::UniformDuplicates => 2 + rng.below(pages as u64 / 2),
                            Self::Zipf => (unit(rng.next()) * (pages as f64).ln()).exp() as u64 + 2,
                            Self::Clones | Self::ShuffledClones if index % 5 > 0 => 2 + index as u64,
                            Self::OneHeavyPage if rng.below(3) == 0 => 2,
                            Self::MostlyZero if rng.below(10) > 0 => ZERO,
                            Self::RareHeavy if number.is_multiple_of(9) && number / 9 < 4500 => 2 + number % 3,
                            _ => fresh,
                        }
                    })
                    .collect()
            })
            .collect();
        if self == Self::ShuffledClones {
            for guest in &mut guests {
                for at in (1..guest.len()).rev() {
                    guest.swap(at, rng.below(at as u64 + 1) as usize);
                }
            }
        }
        guests
    }
}

/// The same contents as fingerprints under another salt.
pub(super) fn salted(guests: &[Vec<u64>], salt: u64) -> Vec<Vec<u64>> {
    let spread = |&content: &u64| if content <= SKIPPED { content } else { fingerprint(mix(content ^ mix(salt))) };
    guests.iter().map(|guest| guest.iter().map(spread).collect()).collect()
}
