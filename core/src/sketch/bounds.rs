//! Bounds on the savings from a random sample of pages.
//!
//! No estimate of the number of distinct contents from a sample has a guarantee better than a factor of `sqrt(1/rate)`
//! (Charikar et al., PODS 2000). It can be bounded from both sides by how many contents were drawn once, twice, three
//! times (`f1`, `f2`, `f3`...), for *every* population:
//!
//! * at least `d + f1² / (2 f2 + f1 q/(1-q))` contents, from the Cauchy-Schwarz inequality over the chances of
//!   being drawn 0, 1 and 2 times (Chao 1984; Chao and Lin 2012 for a known rate q);
//! * copies to be saved, by inequalities of the Dawson-Sankoff kind (1967): weights for `f2`, `f3`... such that
//!   a content with c copies contributes at most c - 1 in the mean, whatever c is.

use super::interval::{ConfidenceInterval, poisson_lower, poisson_upper};

/// Bounds on the number of copies that merging saves: those beyond the first of each content.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SurplusBounds {
    /// The lower bound, at 97.5 %.
    pub low: f64,
    /// The upper bound, at 97.5 %.
    pub high: f64,
}

/// One-sided 0.8 %: three quantities share the error of 2.5 % of the lower bound.
const Z_LOW: f64 = 2.41;

/// One-sided 1.25 %: two quantities share the error of the upper bound.
const Z_HIGH: f64 = 2.24;

/// Largest multiplicity for which a lower bound is made sharp.
const MOST_SHARP: u32 = 4096;

/// Draws from which a content's own number of draws is taken as a Poisson variable with that mean.
const MANY: usize = 30;

impl SurplusBounds {
    /// Computes the bounds from a sample in which each page was drawn independently with the chance `rate`.
    ///
    /// `drawn[j]` is the number of contents of which j pages were drawn (`drawn[0]` is not used), `pages` the size of
    /// the whole as far as it is known.
    pub fn from_draws(drawn: &[u64], rate: f64, pages: ConfidenceInterval) -> Self {
        if rate >= 1.0 {
            let surplus: f64 = (1..).zip(drawn.iter().skip(1)).map(|(j, &f)| f64::from(j - 1) * f as f64).sum();
            return Self { low: surplus, high: surplus };
        }
        let low = least_surplus(drawn, rate);
        let high = (pages.high - least_distinct(drawn, rate)).max(0.0);
        // They can only cross by chance, with few pages drawn.
        Self { low: low.min(high), high }
    }
}

/// A lower confidence bound on the copies beyond each content's first.
///
/// With r = q/(1-q), a content with c copies is drawn j times with the chance C(c,j) r^j (1-q)^c. Weights
/// j/q - 1 for all j would give c - 1 in the mean; but a page drawn once says nothing, and without the weights at
/// 0 and 1 the mean is (1-q)^c (c - 1) too small. A further weight 2x/r² at 2 and -6y/r³ at 3 add
/// (1-q)^c (x c(c-1) - y c(c-1)(c-2)). The mean is then at most c - 1 if 1 - x c + y c(c-2) >= 0. With
/// y = 1/(k(k+1)) and x = (2k-1) y that is (c-k)(c-k-1) y: never negative at a whole c, and 0 at k and k+1,
/// where the bound is sharp. All k share the same three confidence limits, so the best k may be taken.
fn least_surplus(drawn: &[u64], rate: f64) -> f64 {
    let count = |j: usize| drawn.get(j).map_or(0.0, |&f| f as f64);
    let (twice, thrice) = (poisson_lower(count(2), Z_LOW), poisson_lower(count(3), Z_LOW));
    let most_thrice = poisson_upper(count(3), Z_LOW);
    let (mut often, mut variance) = (0.0, 0.0);
    for (j, &f) in drawn.iter().enumerate().skip(4) {
        let weight = plain_weight(j as f64, rate);
        often += weight * f as f64;
        let own = if j >= MANY { j as f64 / (rate * rate) } else { weight * weight };
        variance += own * f as f64;
    }
    let often = (often - Z_LOW * variance.sqrt()).max(0.0);
    let best = (2..=MOST_SHARP).map(|k| {
        let [two, three] = weights(f64::from(k), rate);
        two * twice + if three < 0.0 { three * most_thrice } else { three * thrice }
    });
    (best.fold(0.0, f64::max) + often).max(0.0)
}

fn plain_weight(j: f64, rate: f64) -> f64 {
    j / rate - 1.0
}

/// The weights for contents drawn twice and thrice of the bound that is sharp at k and k + 1 copies.
fn weights(k: f64, rate: f64) -> [f64; 2] {
    let r = rate / (1.0 - rate);
    let y = 1.0 / (k * (k + 1.0));
    let x = (2.0 * k - 1.0) * y;
    [plain_weight(2.0, rate) + 2.0 * x / (r * r), plain_weight(3.0, rate) - 6.0 * y / (r * r * r)]
}

/// A lower confidence bound on the number of distinct contents.
fn least_distinct(drawn: &[u64], rate: f64) -> f64 {
    let count = |j: usize| drawn.get(j).map_or(0.0, |&f| f as f64);
    let distinct: f64 = drawn.iter().skip(1).map(|&f| f as f64).sum();
    let once = (count(1) - Z_HIGH * count(1).sqrt()).max(0.0);
    let twice = poisson_upper(count(2), Z_HIGH);
    let r = rate / (1.0 - rate);
    let unseen = if once > 0.0 { once * once / (2.0 * twice + once * r) } else { 0.0 };
    distinct + unseen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Mean frequencies of frequencies for `contents` contents with `copies` copies each.
    fn expected(contents: f64, copies: u32, rate: f64) -> Vec<u64> {
        let chance = |j: u32| {
            let choose: f64 = (0..j).map(|i| f64::from(copies - i) / f64::from(i + 1)).product();
            choose * rate.powi(j as i32) * (1.0 - rate).powi((copies - j) as i32)
        };
        (0..=copies.min(12)).map(|j| (contents * chance(j)).round() as u64).collect()
    }

    #[test]
    fn bounds_are_tight_where_all_contents_have_equally_many_copies() {
        for (copies, contents) in [(1, 4e7), (2, 2e7), (4, 1e7), (16, 2e6)] {
            let pages = contents * f64::from(copies);
            let bounds = SurplusBounds::from_draws(
                &expected(contents, copies, 0.01),
                0.01,
                ConfidenceInterval::exactly(pages),
            );
            let truth = pages - contents;
            assert!(bounds.low <= truth && truth <= bounds.high, "{copies}: {bounds:?} {truth}");
            // Beside the truth: a sixth of all pages below, a sixtieth above.
            assert!(truth - bounds.low < 0.17 * pages, "{copies}: {bounds:?} {truth}");
            assert!(bounds.high - truth < 0.017 * pages, "{copies}: {bounds:?} {truth}");
        }
    }

    #[test]
    fn a_sample_of_everything_is_exact() {
        let bounds = SurplusBounds::from_draws(&[0, 5, 3, 1], 1.0, ConfidenceInterval::exactly(14.0));
        assert_eq!((bounds.low, bounds.high), (5.0, 5.0));
    }

    #[test]
    fn nothing_drawn_bounds_nothing() {
        let bounds = SurplusBounds::from_draws(&[], 0.01, ConfidenceInterval::exactly(500.0));
        assert_eq!((bounds.low, bounds.high), (0.0, 500.0));
    }

    proptest! {
        /// In the mean no content contributes more than its surplus copies.
        #[test]
        fn no_content_is_overrated(copies in 1_u32..400, rate in 0.002_f64..0.3, k in 2_u32..200) {
            let [two, three] = weights(f64::from(k), rate);
            let r = rate / (1.0 - rate);
            let mut mean = 0.0;
            let mut chance = (1.0 - rate).powi(copies as i32);
            for j in 0..=copies {
                mean += chance * match j {
                    0 | 1 => 0.0,
                    2 => two,
                    3 => three,
                    _ => plain_weight(f64::from(j), rate),
                };
                chance *= f64::from(copies - j) / f64::from(j + 1) * r;
            }
            let surplus = f64::from(copies - 1);
            prop_assert!(mean <= surplus + 1e-6 * surplus.max(1.0), "{mean} > {surplus}");
            if copies == k || copies == k + 1 {
                prop_assert!(mean >= surplus * (1.0 - 1e-6), "sharp at {k}: {mean} < {surplus}");
            }
        }
    }
}
