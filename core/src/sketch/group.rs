//! Sums over contents, for exact counts and for samples of contents alike.

use super::interval::{ConfidenceInterval, score};
use super::outcome::{GuestOutcome, SavingsOutcome};
use super::pairs::PairMatrix;
use super::rules::MergeRules;

/// Sums over the contents seen so far, each weighted by `1 / chance of being seen` (Horvitz and Thompson, JASA 1952).
///
/// The parts of a partitioned run are added up.
#[derive(Debug, Clone, Default)]
pub struct ContentSums {
    guests: Vec<GuestContentSums>,
    /// The frames of all guests that remain after merging.
    frames: WeightedSum,
    pairs: Option<PairMatrix>,
}

#[derive(Debug, Clone, Copy, Default)]
struct GuestContentSums {
    distinct: f64,
    across: f64,
    /// The guest's part in the frames that remain.
    frames: WeightedSum,
}

/// A weighted sum, its variance, and the most that one content could have added to it.
#[derive(Debug, Clone, Copy, Default)]
struct WeightedSum {
    sum: f64,
    variance: f64,
    heaviest: f64,
}

impl WeightedSum {
    /// Under Poisson sampling the variance of x/p is x² (1-p)/p; its estimate from what was drawn divides by p.
    fn add(&mut self, value: f64, chance: f64) {
        let weighted = value / chance;
        self.sum += weighted;
        self.variance += weighted * weighted * (1.0 - chance);
        self.heaviest = self.heaviest.max(weighted * (1.0 - chance));
    }

    fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
        self.variance += other.variance;
        self.heaviest = self.heaviest.max(other.heaviest);
    }

    fn interval(&self) -> ConfidenceInterval {
        score(self.sum, self.variance, self.heaviest)
    }
}

/// The pages of one guest, before their contents are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GuestPageCount {
    /// Pages looked at, zero pages included.
    pub pages: u64,
    /// Pages of zeros.
    pub zero: u64,
}

impl ContentSums {
    /// Creates empty sums for a number of guests, with the pair matrix or without.
    pub fn new(guests: usize, with_pairs: bool) -> Self {
        Self {
            guests: vec![GuestContentSums::default(); guests],
            frames: WeightedSum::default(),
            pairs: with_pairs.then(|| PairMatrix::new(guests)),
        }
    }

    /// Adds one content that `holders` have: each guest once, with its number of copies. `chance` is the
    /// content's chance of being seen.
    pub(super) fn add(&mut self, holders: &[(u32, u32)], chance: f64, rules: &MergeRules) {
        let copies: u64 = holders.iter().map(|&(_, count)| u64::from(count)).sum();
        let frames = rules.frames(copies) as f64;
        self.frames.add(frames, chance);
        let is_shared = holders.len() > 1;
        for (index, &(guest, count)) in holders.iter().enumerate() {
            if let Some(sums) = self.guests.get_mut(guest as usize) {
                sums.distinct += 1.0 / chance;
                sums.across += if is_shared { 1.0 / chance } else { 0.0 };
                sums.frames.add(frames * f64::from(count) / copies as f64, chance);
            }
            if let Some(pairs) = &mut self.pairs {
                pairs.add(guest as usize, guest as usize, f64::from(count - 1) / chance);
                for &(other, _) in &holders[index + 1..] {
                    pairs.add(guest as usize, other as usize, 1.0 / chance);
                }
            }
        }
    }

    /// Adds what another part of the same run saw.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.guests.iter_mut().zip(&other.guests) {
            mine.distinct += theirs.distinct;
            mine.across += theirs.across;
            mine.frames.merge(&theirs.frames);
        }
        self.frames.merge(&other.frames);
        if let (Some(mine), Some(theirs)) = (&mut self.pairs, &other.pairs) {
            mine.merge(theirs);
        }
    }

    /// Computes the savings: the pages, which are known, less the frames that remain, which are estimated.
    ///
    /// Each content keeps about one frame, so the variance is bounded for any number of copies. That of a sum of
    /// surplus copies would not be.
    pub fn outcome(self, counted: &[GuestPageCount], rules: &MergeRules) -> SavingsOutcome {
        let zero_total: u64 = counted.iter().map(|guest| guest.zero).sum();
        let zero_frames = rules.zero_frames(zero_total) as f64;
        let zero_share = if zero_total == 0 { 0.0 } else { 1.0 - zero_frames / zero_total as f64 };
        let saved = |frames: &WeightedSum, pages: u64, zero: u64| {
            let nonzero = (pages - zero) as f64;
            let saved = frames.interval().less_than(nonzero).within(0.0, nonzero);
            let zero = zero as f64 * zero_share;
            ConfidenceInterval { expected: saved.expected + zero, low: saved.low + zero, high: saved.high + zero }
        };
        let guests: Vec<GuestOutcome> = counted
            .iter()
            .zip(&self.guests)
            .map(|(counted, sums)| {
                let nonzero = (counted.pages - counted.zero) as f64;
                let distinct = sums.distinct.min(nonzero);
                let across = sums.across.min(distinct);
                GuestOutcome {
                    pages: counted.pages,
                    zero: counted.zero as f64,
                    within: nonzero - distinct,
                    across,
                    unique: distinct - across,
                    saved: saved(&sums.frames, counted.pages, counted.zero),
                }
            })
            .collect();
        let pages = counted.iter().map(|guest| guest.pages).sum();
        let total = saved(&self.frames, pages, zero_total);
        SavingsOutcome::from_guests(guests, total, self.pairs)
    }
}
