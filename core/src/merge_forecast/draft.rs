//! The arithmetic of a forecast: pages drawn at random, then a few huge pages whole.

use rustc_hash::FxHashMap;

use crate::sample::MergeForecast;
use crate::sketch::{ZERO, mix};

/// The most huge pages that are read whole: half of them for zeros, half for equal pages.
const RANGES: usize = 32;

/// A page that was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForecastPage {
    /// Its huge page, or the range that one could back.
    pub range: HugeRange,
    /// The number of the page within its guest.
    pub page: u64,
    /// Its fingerprint, or [`ZERO`].
    pub content: u64,
    /// True if it lies in a huge page.
    pub is_huge: bool,
}

/// The range of one huge page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HugeRange {
    /// The guest, by a number that differs for different guests.
    pub guest: u32,
    /// The number of the range within the guest.
    pub number: u64,
}

/// The first half of a forecast: the drawn pages, and what they have in common.
#[derive(Debug, Clone)]
pub struct ForecastDraft {
    pages: Vec<ForecastPage>,
    /// The number of drawn pages with each content. Zeros are not among them.
    drawn: FxHashMap<u64, u32>,
    /// The chance with which each page was drawn.
    rate: f64,
    page_size: u64,
    /// Pages in a huge page.
    huge_pages: f64,
}

/// The huge pages to be read whole, for one kind of page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedRanges {
    /// Ranges with a drawn page of zeros, a page each.
    zero: Vec<HugeRange>,
    /// Ranges with a drawn page that equals another, a page each.
    equal: Vec<HugeRange>,
}

impl WantedRanges {
    /// Returns all of them. One may stand there twice.
    pub fn all(&self) -> impl Iterator<Item = HugeRange> + '_ {
        self.zero.iter().chain(&self.equal).copied()
    }
}

impl ForecastDraft {
    /// Creates a draft of pages of `page_size` bytes, `huge_pages` of them in a huge page, of which each was drawn with
    /// the chance `rate`, 0 to 1.
    pub fn new(pages: Vec<ForecastPage>, rate: f64, page_size: u64, huge_pages: u64) -> Self {
        let mut drawn = FxHashMap::default();
        for page in pages.iter().filter(|page| page.content != ZERO) {
            *drawn.entry(page.content).or_default() += 1;
        }
        Self { pages, drawn, rate: rate.clamp(f64::MIN_POSITIVE, 1.0), page_size, huge_pages: huge_pages as f64 }
    }

    /// Chooses the huge pages to be read whole: those of pages that would merge, drawn at random.
    pub fn wanted_ranges(&self, seed: u64) -> WantedRanges {
        let choose = |is_zero: bool| {
            let mut pages: Vec<&ForecastPage> =
                self.merging(true).filter(|page| (page.content == ZERO) == is_zero).collect();
            pages.sort_unstable_by_key(|page| mix(seed ^ mix(u64::from(page.range.guest) << 40 ^ page.page)));
            pages.into_iter().take(RANGES / 2).map(|page| page.range).collect()
        };
        WantedRanges { zero: choose(true), equal: choose(false) }
    }

    /// Computes the forecast. `contents` are the fingerprints of the pages of each wanted range, in the order of
    /// [`WantedRanges::all`]; none of a range that could not be read.
    pub fn finish(&self, wanted: &WantedRanges, contents: &[Vec<u64>]) -> MergeForecast {
        let page_size = self.page_size as f64;
        let whole = self.pages.len() as f64 / self.rate;
        let bytes = |pages: f64| (pages * page_size).round().max(0.0) as u64;
        let in_huge = self.pages.iter().filter(|page| page.is_huge).count() as f64 / self.rate;
        let (copies, chance) = self.copies();
        let zeros_of =
            |is_huge| self.merging(is_huge).filter(|page| page.content == ZERO).count() as f64 / self.rate;
        let equal_of = |is_huge| {
            self.merging(is_huge).filter(|page| page.content != ZERO).count() as f64 / (self.rate * chance)
        };
        let (zeros, equal) = (zeros_of(true), equal_of(true));
        let saved_in_small = zeros_of(false) + equal_of(false) * (copies - 1.0) / copies;
        let read: Vec<Option<f64>> = wanted
            .all()
            .zip(contents)
            .map(|(range, contents)| self.merging_pages(range, contents, chance))
            .collect();
        let (of_zeros, of_equal) = read.split_at(wanted.zero.len().min(read.len()));
        let ranges = zeros * mean_inverse(of_zeros) + equal * mean_inverse(of_equal);
        let split = (ranges * self.huge_pages).min(in_huge);
        let saved = (zeros + equal * (copies - 1.0) / copies).min(in_huge);
        MergeForecast {
            bytes: bytes(whole),
            huge_bytes: bytes(in_huge),
            saved_bytes: bytes((saved + saved_in_small).min(whole)),
            saved_in_huge_bytes: bytes(saved),
            split_bytes: bytes(split.max(saved)),
        }
    }

    /// Returns the drawn pages, in huge pages or in small ones, that are zeros or equal another drawn page.
    fn merging(&self, is_huge: bool) -> impl Iterator<Item = &ForecastPage> {
        let is_found = |page: &&ForecastPage| {
            page.content == ZERO || self.drawn.get(&page.content).is_some_and(|drawn| *drawn > 1)
        };
        self.pages.iter().filter(move |page| page.is_huge == is_huge).filter(is_found)
    }

    /// Returns the copies of a content that has any, in the mean over pairs, and the chance that another of them is drawn.
    ///
    /// With c copies each, pairs and triples are drawn in the mean as `C(c, 2) rate²` and `C(c, 3) rate³`, so that
    /// `c = 2 + 3 triples / (pairs rate)`.
    fn copies(&self) -> (f64, f64) {
        let (mut pairs, mut triples) = (0.0, 0.0);
        for &drawn in self.drawn.values() {
            let drawn = f64::from(drawn);
            pairs += drawn * (drawn - 1.0) / 2.0;
            triples += drawn * (drawn - 1.0) * (drawn - 2.0) / 6.0;
        }
        let copies = if pairs > 0.0 { 2.0 + 3.0 * triples / (pairs * self.rate) } else { 2.0 };
        (copies, (1.0 - (1.0 - self.rate).powf(copies - 1.0)).max(f64::MIN_POSITIVE))
    }

    /// Estimates the pages of a range that merge, at least one: its zeros, and its equal pages by the `chance` that
    /// another of them was drawn elsewhere. `None` if it could not be read.
    fn merging_pages(&self, range: HugeRange, contents: &[u64], chance: f64) -> Option<f64> {
        let mut own: FxHashMap<u64, u32> = FxHashMap::default();
        for page in self.pages.iter().filter(|page| page.range == range) {
            *own.entry(page.content).or_default() += 1;
        }
        let is_elsewhere = |content: &&u64| {
            let [drawn, own] = [&self.drawn, &own].map(|counts| counts.get(content).copied().unwrap_or(0));
            drawn > own
        };
        let zeros = contents.iter().filter(|content| **content == ZERO).count() as f64;
        let equal = contents.iter().filter(is_elsewhere).count() as f64;
        (!contents.is_empty()).then(|| (zeros + equal / chance).clamp(1.0, self.huge_pages))
    }
}

/// Returns the mean of the inverses, 0 of none.
fn mean_inverse(values: &[Option<f64>]) -> f64 {
    let known: Vec<f64> = values.iter().flatten().map(|value| value.recip()).collect();
    known.iter().sum::<f64>() / (known.len() as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::fingerprint;

    const GUEST_RANGES: u64 = 256;

    /// A mixture by name, and the least and most per cent that are saved, split, and saved of what is split.
    type MixtureCase = (&'static str, Mixture, [f64; 2], [f64; 2], [f64; 2]);

    /// A content by guest and page; `None` for one of its own.
    type Mixture = fn(u64) -> Option<u64>;

    fn content(guest: u64, page: u64, mixture: Mixture) -> u64 {
        let own = || fingerprint(mix(guest << 40 | page | 1 << 60));
        mixture(page).map_or_else(own, |content| if content == 0 { ZERO } else { fingerprint(mix(content)) })
    }

    /// Draws pages of guests with the same mixture in huge pages, reads what is wanted, and computes the forecast.
    fn forecast(guests: u64, rate: f64, seed: u64, mixture: Mixture) -> MergeForecast {
        let range = |guest: u64, number| HugeRange { guest: guest as u32, number };
        let mut pages = Vec::new();
        for guest in 0..guests {
            for page in crate::sketch::SamplePositions::new(mix(seed) ^ guest, 0, GUEST_RANGES * 512, rate) {
                let content = content(guest, page, mixture);
                pages.push(ForecastPage { range: range(guest, page / 512), page, content, is_huge: true });
            }
        }
        let draft = ForecastDraft::new(pages, rate, 4096, 512);
        let wanted = draft.wanted_ranges(seed);
        let read = |range: HugeRange| {
            (0..512).map(|page| content(u64::from(range.guest), range.number * 512 + page, mixture)).collect()
        };
        draft.finish(&wanted, &wanted.all().map(read).collect::<Vec<Vec<u64>>>())
    }

    /// The per cent of all bytes that are saved and split, and of the split that are saved.
    fn percent(forecast: &MergeForecast) -> [f64; 3] {
        let part = |bytes: u64| bytes as f64 / forecast.bytes as f64 * 100.0;
        [part(forecast.saved_in_huge_bytes), part(forecast.split_bytes), forecast.saved_part() * 100.0]
    }

    #[test]
    fn scattered_pages_split_everything_and_pages_in_runs_what_they_fill() {
        let mixtures: [MixtureCase; 6] = [
            ("1 %", |page| (mix(page) % 100 < 1).then_some(page + 1), [0.1, 1.3], [5.0, 100.0], [0.1, 3.0]),
            ("20 %", |page| (mix(page) % 100 < 20).then_some(page + 1), [7.0, 13.0], [85.0, 100.0], [7.0, 13.0]),
            (
                "20 % in runs",
                |page| (page / 2048 % 5 == 0).then_some(page + 1),
                [7.0, 13.0],
                [16.0, 26.0],
                [35.0, 70.0],
            ),
            (
                "50 % zeros in runs",
                |page| (page / 2048 % 2 == 0).then_some(0),
                [45.0, 55.0],
                [45.0, 55.0],
                [99.0, 100.0],
            ),
            ("30 % zeros", |page| (mix(page) % 10 < 3).then_some(0), [27.0, 33.0], [85.0, 100.0], [27.0, 36.0]),
            ("nothing", |_| None, [0.0, 0.0], [0.0, 0.0], [100.0, 100.0]),
        ];
        for (name, mixture, saved, split, part) in mixtures {
            for seed in 0..20 {
                let figures = percent(&forecast(2, 0.087, seed, mixture));
                for (figure, [least, most]) in figures.into_iter().zip([saved, split, part]) {
                    assert!((least..=most).contains(&figure), "{name}, {seed}: {figures:?}");
                }
            }
        }
    }

    #[test]
    fn zeros_in_runs_do_not_hide_scattered_pages() {
        for seed in 0..20 {
            let mixture: Mixture = |page| match page / 2048 % 2 {
                0 => Some(0),
                _ => (mix(page) % 100 < 10).then_some(page + 1),
            };
            let [_, split, part] = percent(&forecast(4, 0.06, seed, mixture));
            assert!(split > 85.0 && (45.0..65.0).contains(&part), "{seed}: {split} {part}");
        }
    }

    #[test]
    fn small_pages_are_not_split() {
        let page = |page, content| ForecastPage {
            range: HugeRange { guest: 1, number: 0 },
            page,
            content,
            is_huge: false,
        };
        let draft = ForecastDraft::new(vec![page(0, 7), page(1, 7), page(2, ZERO)], 0.5, 4096, 512);
        let wanted = draft.wanted_ranges(1);
        assert_eq!(wanted, WantedRanges::default());
        let forecast = draft.finish(&wanted, &[]);
        assert_eq!((forecast.huge_bytes, forecast.split_bytes, forecast.saved_part()), (0, 0, 1.0));
    }
}
