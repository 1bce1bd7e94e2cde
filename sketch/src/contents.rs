//! The sketch of one guest: the contents that the sampling rate keeps, with all their copies.

use std::collections::HashMap;

use ksmith_core::sketch::{SKIPPED, ZERO};

use crate::counted::CountedContent;
use crate::heavy::{HEAVY_ABOVE, HeavyCounter};
use crate::rate::SamplingRate;
use crate::rows::{ContentRow, PackedRows};

/// Limit of contents for one guest. Beyond it the rate is lowered, so that memory stays bounded.
const MOST: usize = 1 << 20;

/// The sampled contents of a guest that is being read.
#[derive(Debug, Clone, PartialEq)]
pub struct SketchBuilder {
    rate: SamplingRate,
    /// Number of pages read that KSM could merge, including zero pages.
    pub pages: u64,
    /// Number of zero pages among them.
    pub zero_pages: u64,
    contents: HashMap<u64, CountedContent>,
    heavy: HeavyCounter,
    looked_twice: bool,
}

impl SketchBuilder {
    /// Creates an empty sketch.
    pub fn new(rate: SamplingRate) -> Self {
        let heavy = HeavyCounter::default();
        Self { rate, pages: 0, zero_pages: 0, contents: HashMap::new(), heavy, looked_twice: false }
    }

    /// Counts the contents with many copies in full, in a guest with about this many pages.
    pub fn count_heavy(&mut self, pages: u64) {
        self.heavy = HeavyCounter::new(pages);
    }

    /// Frees what only reading needs: all pages were added.
    pub fn close(&mut self) {
        self.heavy.close();
    }

    /// Returns true if the content is counted, and a second look at it tells something.
    pub fn holds(&self, fingerprint: u64) -> bool {
        self.contents.contains_key(&fingerprint) || self.heavy.contains(fingerprint)
    }

    /// Returns the sampling rate.
    pub fn rate(&self) -> SamplingRate {
        self.rate
    }

    /// Returns the number of kept contents.
    pub fn len(&self) -> usize {
        self.contents.len()
    }

    /// Returns true if no content is kept.
    pub fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    /// Adds a page. Returns true if the second look should read it.
    pub fn add(&mut self, fingerprint: u64) -> bool {
        if fingerprint == SKIPPED {
            return false;
        }
        self.pages += 1;
        if fingerprint == ZERO {
            self.zero_pages += 1;
            return false;
        }
        let is_noted_as_heavy = self.heavy.add(fingerprint);
        if !self.rate.keeps(fingerprint) {
            return is_noted_as_heavy;
        }
        let is_noted = self.contents.entry(fingerprint).or_default().add();
        while self.contents.len() > MOST && self.rate.bits() < SamplingRate::MOST_BITS {
            self.lower(SamplingRate::from_bits(self.rate.bits() + 1));
        }
        is_noted
    }

    /// Adds zero pages that KSM has merged with the kernel's zero page.
    pub fn add_merged_zero_pages(&mut self, pages: u64) {
        self.pages = self.pages.saturating_add(pages);
        self.zero_pages = self.zero_pages.saturating_add(pages);
    }

    /// Enables the second look, without which no content counts as steady.
    pub fn look_twice(&mut self) {
        self.looked_twice = true;
    }

    /// Adds the second look at a page that had the content `before`. `now` is its current content; `None` if the page
    /// is gone.
    pub fn look_again(&mut self, before: u64, now: Option<u64>) {
        if let Some(content) = self.contents.get_mut(&before).or_else(|| self.heavy.get_mut(before)) {
            content.look_again(now == Some(before));
        }
    }

    /// Drops contents that a lower rate does not keep. The heavy ones stay counted.
    pub fn lower(&mut self, rate: SamplingRate) {
        if rate > self.rate {
            self.rate = rate;
            let heavy = &mut self.heavy;
            self.contents.retain(|fingerprint, content| {
                let is_kept = rate.keeps(*fingerprint);
                if !is_kept && content.copies() > HEAVY_ABOVE {
                    heavy.adopt(*fingerprint, *content);
                }
                is_kept
            });
            self.contents.shrink_to_fit();
        }
    }

    /// Packs the result: at most 9 bytes for a sampled page.
    pub fn finish(self) -> FinishedSketch {
        let Self { rate, pages, zero_pages, contents, heavy, looked_twice } = self;
        let heavy = heavy.into_contents().map(|counted| heavy_of(&contents, &counted));
        let sum =
            |of: fn(&CountedContent) -> u32| contents.values().map(|content| u64::from(of(content))).sum::<u64>();
        let (copies, steady) = (sum(|content| content.copies()), sum(|content| content.steady()));
        let rows = contents.iter().map(|(&fingerprint, content)| ContentRow {
            fingerprint,
            copies: content.copies(),
            steady: content.steady(),
        });
        let mut rows: Vec<ContentRow> = rows.collect();
        rows.sort_unstable_by_key(|row| row.fingerprint.cast_signed());
        FinishedSketch {
            rate,
            pages,
            zero_pages,
            looked_at: sum(|content| content.looked_at()),
            changing: (looked_twice && copies > 0).then(|| 1.0 - steady as f64 / copies as f64),
            rows: PackedRows::from_rows(&rows),
            heavy,
            looked_twice,
        }
    }
}

/// Returns the heavy contents, the heaviest first. The sample's counts are exact and go before those of the counter.
fn heavy_of(sampled: &HashMap<u64, CountedContent>, counted: &HashMap<u64, CountedContent>) -> Box<[HeavyContent]> {
    let of_sample = sampled.values().filter(|content| content.copies() > HEAVY_ABOVE);
    let others = counted.iter().filter(|(fingerprint, _)| !sampled.contains_key(fingerprint));
    let all = of_sample.chain(others.map(|(_, content)| content));
    let mut found: Vec<HeavyContent> =
        all.map(|content| HeavyContent { copies: content.copies(), steady: content.steady() }).collect();
    found.sort_unstable_by_key(|content| std::cmp::Reverse((content.copies, content.steady)));
    found.into_boxed_slice()
}

/// A content with more than [`HEAVY_ABOVE`] copies in a guest, sampled or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeavyContent {
    /// Number of pages with this content.
    pub copies: u32,
    /// Number of them that had it at both looks.
    pub steady: u32,
}

/// The sketch of a guest that has been read.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedSketch {
    /// The sampling rate of the reading.
    pub rate: SamplingRate,
    /// Number of pages read that KSM could merge, including zero pages.
    pub pages: u64,
    /// Number of zero pages among them.
    pub zero_pages: u64,
    /// Number of pages that the second look read.
    pub looked_at: u64,
    /// Fraction of the sampled pages with another content at the second look. `None` without a second look or a sampled
    /// page.
    pub changing: Option<f64>,
    rows: PackedRows,
    heavy: Option<Box<[HeavyContent]>>,
    looked_twice: bool,
}

impl FinishedSketch {
    /// Returns the contents that this rate keeps, in the order of the file: as signed numbers.
    pub fn rows(&self, rate: SamplingRate) -> impl Iterator<Item = ContentRow> {
        self.rows.rows().filter(move |row| rate.keeps(row.fingerprint))
    }

    /// Returns all contents with more than [`HEAVY_ABOVE`] copies, the heaviest first. `None` if they were not counted:
    /// the guest has too much memory, or too many of them.
    pub fn heavy(&self) -> Option<&[HeavyContent]> {
        self.heavy.as_deref()
    }

    /// Returns true if the second look was enabled. Otherwise no page is known to be steady.
    pub fn looked_twice(&self) -> bool {
        self.looked_twice
    }

    /// Returns the memory that the sketch uses, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.rows.bytes() + self.heavy.as_deref().map_or(0, size_of_val)
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::sketch::mix;
    use proptest::prelude::*;

    use super::*;

    fn sketch(contents: impl IntoIterator<Item = u64>, rate: SamplingRate) -> SketchBuilder {
        let mut sketch = SketchBuilder::new(rate);
        for content in contents {
            sketch.add(content);
        }
        sketch
    }

    fn fingerprints(sketch: &SketchBuilder, rate: SamplingRate) -> Vec<(u64, u32)> {
        sketch.clone().finish().rows(rate).map(|row| (row.fingerprint, row.copies)).collect()
    }

    #[test]
    fn zero_pages_are_counted_apart_and_skipped_pages_not_at_all() {
        let mut sketch = sketch([ZERO, ZERO, SKIPPED, 7, 7, u64::MAX], SamplingRate::default());
        sketch.add_merged_zero_pages(10);
        assert_eq!((sketch.pages, sketch.zero_pages), (15, 12));
        let rows = fingerprints(&sketch, SamplingRate::default());
        assert_eq!(rows, [(u64::MAX, 1), (7, 2)], "in the order of signed numbers");
        let sketched = sketch.finish();
        assert_eq!((sketched.changing, sketched.looked_twice()), (None, false));
    }

    #[test]
    fn the_second_look_tells_what_stays() {
        let mut sketch = SketchBuilder::new(SamplingRate::default());
        sketch.look_twice();
        let noted: Vec<bool> = (0..20).map(|_| sketch.add(5)).collect();
        assert_eq!(noted.iter().filter(|noted| **noted).count(), 8);
        assert!(sketch.add(6));
        assert!(sketch.add(7));
        for at in 0..8 {
            sketch.look_again(5, Some(if at < 6 { 5 } else { 9 }));
        }
        sketch.look_again(6, None);
        sketch.look_again(7, Some(7));
        sketch.look_again(8, Some(8));
        let sketched = sketch.finish();
        let steady: Vec<_> = sketched.rows(SamplingRate::default()).map(|row| row.steady).collect();
        assert_eq!(steady, [15, 0, 1]);
        assert_eq!(sketched.changing, Some(1.0 - 16.0 / 22.0));
        assert_eq!((sketched.looked_at, sketched.looked_twice()), (10, true));
    }

    #[test]
    fn contents_with_many_copies_are_counted_whether_sampled_or_not() {
        let never = SamplingRate::from_bits(SamplingRate::MOST_BITS);
        let mut whole = SketchBuilder::new(SamplingRate::default());
        let mut sampled = SketchBuilder::new(never);
        let mut lowered = SketchBuilder::new(SamplingRate::default());
        for sketch in [&mut whole, &mut sampled, &mut lowered] {
            sketch.count_heavy(100);
            sketch.look_twice();
            for page in 0..50_u64 {
                // 20 and 10 copies of two contents, and 8, 7 and 5 of others.
                let content = [20, 30, 38, 45].iter().filter(|end| page >= **end).count() as u64;
                let fingerprint = mix(content + 1) | 1 << 60;
                if sketch.add(fingerprint) {
                    sketch.look_again(fingerprint, Some(if content == 1 { 3 } else { fingerprint }));
                }
            }
        }
        lowered.lower(never);
        let found = |sketch: SketchBuilder| {
            let sketch = sketch.finish();
            let heavy: Vec<_> = sketch.heavy().unwrap().iter().map(|one| (one.copies, one.steady)).collect();
            (sketch.rows(never).count(), heavy)
        };
        for sketch in [whole, sampled, lowered] {
            assert_eq!(found(sketch), (0, vec![(20, 20), (10, 0)]));
        }
        assert_eq!(sketch([7; 20], SamplingRate::default()).finish().heavy(), None);
    }

    #[test]
    fn a_guest_with_4096_sampled_pages_takes_less_than_64_kib_whatever_it_holds() {
        for copies in [1, 2, 3, 7] {
            let mut sketch = sketch((0..4096_u64).map(|page| mix(page / copies)), SamplingRate::default());
            // The sample of a guest is binomial: four standard deviations more are 64 * 4 pages.
            for page in 0..256 {
                sketch.add(mix(1_000_000 + page / copies));
            }
            assert!(sketch.finish().bytes() <= 40 << 10, "{copies} copies");
        }
    }

    #[test]
    fn too_many_contents_lower_the_rate_and_keep_the_sample_whole() {
        let contents: Vec<u64> = (0..3_000_000).map(mix).collect();
        let sketch = sketch(contents.iter().copied(), SamplingRate::default());
        assert!(sketch.len() <= MOST && sketch.rate().bits() == 2, "{} at {}", sketch.len(), sketch.rate());
        let kept = contents.iter().filter(|content| SamplingRate::from_bits(2).keeps(**content)).count();
        assert_eq!((sketch.len(), sketch.pages), (kept, 3_000_000));
    }

    proptest! {
        /// Reading at a lower rate, lowering it afterwards, and filtering rows are equivalent.
        #[test]
        fn a_lower_rate_can_be_had_afterwards(seeds in prop::collection::vec(0_u64..300, 0..600), high in 0_u32..6, more in 0_u32..6) {
            let (high, low) = (SamplingRate::from_bits(high), SamplingRate::from_bits(high + more));
            let contents: Vec<u64> = seeds.into_iter().map(mix).collect();
            let mut at_high = sketch(contents.iter().copied(), high);
            let at_low = sketch(contents.iter().copied(), low);
            let left = fingerprints(&at_high, low);
            at_high.lower(low);
            prop_assert_eq!(&fingerprints(&at_high, low), &fingerprints(&at_low, low));
            prop_assert_eq!(left, fingerprints(&at_low, low));
            prop_assert_eq!(at_high.pages, contents.len() as u64);
        }
    }

    /// Compares the estimated intersection of two guests over many keys with the true one. Contents differ in their
    /// number of copies.
    #[test]
    fn intersections_are_estimated_without_bias() {
        const KEYS: u64 = 400;
        let one: Vec<u64> = (0..6000).map(|at| at % 3000).collect();
        let other: Vec<u64> = (2000..9000).map(|at| at % 5000).collect();
        // 0 to 2999 and 0 to 4999.
        let distinct = |list: &[u64]| list.iter().copied().collect::<std::collections::BTreeSet<_>>();
        let truth = distinct(&one).intersection(&distinct(&other)).count() as f64;
        let rate = SamplingRate::from_bits(5);
        let (mut sum, mut squares, mut covered) = (0.0, 0.0, 0);
        for key in 0..KEYS {
            let keyed = |list: &[u64]| sketch(list.iter().map(|content| mix(content ^ mix(key))), rate);
            let (one, other) = (keyed(&one), keyed(&other));
            let (one, other) = (one.finish(), other.finish());
            let rows: std::collections::BTreeSet<u64> = other.rows(rate).map(|row| row.fingerprint).collect();
            let common = one.rows(rate).filter(|row| rows.contains(&row.fingerprint)).count() as f64;
            let estimate = common / rate.part();
            let deviation = (common * (1.0 - rate.part())).sqrt() / rate.part();
            covered += u32::from((estimate - truth).abs() <= 1.96 * deviation);
            sum += estimate;
            squares += (estimate - truth).powi(2);
        }
        let (mean, spread) = (sum / KEYS as f64, (squares / KEYS as f64).sqrt());
        // Binomial: sqrt(truth (1-q)/q). The mean of 400 keys is within 3.3 standard errors of the truth.
        let expected = (truth * (1.0 - rate.part()) / rate.part()).sqrt();
        assert!((mean - truth).abs() < 3.3 * expected / (KEYS as f64).sqrt(), "{mean} instead of {truth}");
        assert!((spread / expected - 1.0).abs() < 0.15, "{spread} instead of {expected}");
        assert!(covered >= 360, "{covered} of {KEYS}");
    }
}
