//! The places that a sample reads: the same in every guest, drawn without a walk over the rest.

use super::mix::{mix, unit};

/// The places drawn in one mapping, in rising order, each independently with the same chance.
///
/// Equal seeds and roles give equal places, so that pages of clones are drawn in pairs. The gaps are drawn, which
/// are geometric (Vitter, CACM 1984): the work is proportional to the places drawn and not to the size.
#[derive(Debug, Clone)]
pub struct SamplePositions {
    state: u64,
    next: u64,
    end: u64,
    /// `ln(1 - rate)`, or 0 when nothing is to be drawn.
    log_miss: f64,
}

impl SamplePositions {
    /// Draws places in `0..pages`, each with the chance `rate`.
    pub fn new(seed: u64, role: u64, pages: u64, rate: f64) -> Self {
        let log_miss = if rate >= 1.0 { f64::NEG_INFINITY } else { (-rate.max(0.0)).ln_1p() };
        let mut positions = Self { state: mix(seed ^ mix(role)), next: 0, end: pages, log_miss };
        positions.jump();
        positions
    }

    fn jump(&mut self) {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        // In (0, 1], so that the logarithm is finite.
        let draw = 1.0 - unit(mix(self.state));
        let gap = if self.log_miss == 0.0 { f64::INFINITY } else { (draw.ln() / self.log_miss).floor() };
        self.next = if gap < 1e18 { self.next.saturating_add(gap as u64) } else { u64::MAX };
    }
}

impl Iterator for SamplePositions {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.next >= self.end {
            return None;
        }
        let place = self.next;
        self.next += 1;
        self.jump();
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_the_same_chance() {
        let mut hits = [0_u32; 50];
        for seed in 0..20_000 {
            for place in SamplePositions::new(seed, 1, 50, 0.1) {
                hits[place as usize] += 1;
            }
        }
        // 2,000 expected, standard deviation 42.
        assert!(hits.iter().all(|hits| (1790..2210).contains(hits)), "{hits:?}");
    }

    #[test]
    fn a_smaller_mapping_has_the_places_of_a_larger_one() {
        let large: Vec<u64> = SamplePositions::new(3, 0, 10_000, 0.01).collect();
        let small: Vec<u64> = SamplePositions::new(3, 0, 5_000, 0.01).collect();
        assert!(large.len() > 60 && large.starts_with(&small));
        let other: Vec<u64> = SamplePositions::new(3, 1, 10_000, 0.01).collect();
        assert_ne!(large, other);
    }

    #[test]
    fn all_and_none_are_rates_too() {
        assert_eq!(SamplePositions::new(1, 1, 5, 1.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(SamplePositions::new(1, 1, 5, 0.0).next(), None);
        assert_eq!(SamplePositions::new(1, 1, u64::MAX, 1e-300).next(), None);
    }
}
