//! The learned probability that expected savings come true.

/// The probability that an expected merge happens: the share of past trials in which it did, where each trial halves
/// the weight of those before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MergeProbability(f64);

impl MergeProbability {
    /// Creates the probability expected before any trial, 0 to 1.
    pub const fn expecting(part: f64) -> Self {
        Self(part)
    }

    /// Records that `part` of what was promised came true, 0 to 1, in so many trials: `p += (1 - 2^-trials) * (part -
    /// p)`.
    pub fn learn(&mut self, part: f64, trials: f64) {
        let weight = 1.0 - (-trials).exp2();
        self.0 = (self.0 + weight * (part.clamp(0.0, 1.0) - self.0)).clamp(0.0, 1.0);
    }

    /// The mean, 0 to 1.
    pub fn mean(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trial_halves_the_weight_of_those_before() {
        let mut one_by_one = MergeProbability::expecting(1.0);
        one_by_one.learn(0.0, 1.0);
        assert_eq!(one_by_one.mean(), 0.5);
        one_by_one.learn(0.0, 1.0);
        let mut at_once = MergeProbability::expecting(1.0);
        at_once.learn(0.0, 2.0);
        assert_eq!((one_by_one.mean(), at_once.mean()), (0.25, 0.25));
        at_once.learn(1.0, 1.0);
        assert_eq!(at_once.mean(), 0.625);
    }
}
