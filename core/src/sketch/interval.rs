//! An estimate and the 95 % interval around it.

use serde::Serialize;

/// The two-sided 97.5 % quantile of the normal distribution: intervals are made a little wider than 95 % asks, as
/// a margin for what is approximate in them (estimated variances, a threshold that depends on the data).
pub(super) const Z: f64 = 2.241_403;

/// An estimate in pages, with the interval that holds the truth in 95 of 100 runs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct ConfidenceInterval {
    /// The estimate in pages.
    pub expected: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl ConfidenceInterval {
    /// A value that is known exactly.
    pub fn exactly(value: f64) -> Self {
        Self { expected: value, low: value, high: value }
    }

    /// Restricts all three values to a range.
    #[must_use]
    pub fn within(self, least: f64, most: f64) -> Self {
        let clamp = |x: f64| x.min(most).max(least);
        Self { expected: clamp(self.expected), low: clamp(self.low), high: clamp(self.high) }
    }

    /// `self - known`, where `known` is certain.
    pub(super) fn less_than(self, whole: f64) -> Self {
        Self { expected: whole - self.expected, low: whole - self.high, high: whole - self.low }
    }

    /// Subtracts pages that will not merge: an expected number, and the largest possible one.
    pub(super) fn reduced(self, expected: f64, at_most: f64) -> Self {
        let low = (self.low - at_most).max(0.0);
        Self { expected: (self.expected - expected).clamp(low, self.high.max(low)), low, high: self.high }
    }
}

/// The interval of a sum that a sampled sum estimates; `heaviest` is the most that one sampled unit contributes.
///
/// It is the scaled score interval of a Poisson count, which unlike the normal one also holds when few units or none
/// were drawn.
pub(super) fn score(estimate: f64, variance: f64, heaviest: f64) -> ConfidenceInterval {
    let z2 = Z * Z;
    let centre = estimate + heaviest * z2 / 2.0;
    let half = Z * (variance + heaviest * heaviest * z2 / 4.0).sqrt();
    ConfidenceInterval { expected: estimate, low: centre - half, high: centre + half }
}

/// The interval of a proportion, `hits / trials`, times `whole` (Wilson's score interval, 1927).
pub fn proportion(hits: u64, trials: u64, whole: f64) -> ConfidenceInterval {
    if trials == 0 {
        return ConfidenceInterval { expected: 0.0, low: 0.0, high: whole };
    }
    let (n, p, z2) = (trials as f64, hits as f64 / trials as f64, Z * Z);
    let centre = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    ConfidenceInterval {
        expected: p * whole,
        low: (centre - half).max(0.0) * whole,
        high: (centre + half).min(1.0) * whole,
    }
}

/// An upper confidence limit for the mean of a Poisson variable that showed `count`, at `z` standard deviations:
/// Garwood's limit (1936) by the Wilson-Hilferty approximation of the chi-square quantile, within 1 % from 0 on.
pub(super) fn poisson_upper(count: f64, z: f64) -> f64 {
    let k = count + 1.0;
    let root = 1.0 - 1.0 / (9.0 * k) + z / (3.0 * k.sqrt());
    k * root.powi(3)
}

/// A lower confidence limit for the mean of a Poisson variable that showed `count`, by the same approximation.
pub(super) fn poisson_lower(count: f64, z: f64) -> f64 {
    if count < 1.0 {
        return 0.0;
    }
    let root = 1.0 - 1.0 / (9.0 * count) - z / (3.0 * count.sqrt());
    count * root.max(0.0).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_limits_are_garwoods() {
        // Exact 97.5 % limits.
        let z = 1.959_964;
        for (count, exact) in [(0.0, 3.689), (1.0, 5.572), (10.0, 18.39)] {
            let limit = poisson_upper(count, z);
            assert!((limit / exact - 1.0).abs() < 0.015, "{count}: {limit}");
        }
        // The exact 2.5 % limit for 10 is 4.795.
        assert!(poisson_lower(0.0, Z) == 0.0 && poisson_lower(1.0, z) < 0.06);
        assert!((poisson_lower(10.0, z) / 4.795 - 1.0).abs() < 0.01);
    }

    #[test]
    fn nothing_drawn_is_not_taken_for_nothing_there() {
        let none = proportion(0, 100, 1000.0);
        assert_eq!(none.expected, 0.0);
        assert!(none.low < 1e-9 && none.high > 30.0, "{none:?}");
        assert!(score(0.0, 0.0, 64.0).high > 3.6 * 64.0);
        assert_eq!(proportion(0, 0, 7.0).high, 7.0);
    }

    #[test]
    fn without_uncertainty_there_is_no_width() {
        assert_eq!(score(8.0, 0.0, 0.0), ConfidenceInterval::exactly(8.0));
    }
}
