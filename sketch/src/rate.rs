//! The sampling rate: a power of two, so that the samples of any two rates are nested.

use std::fmt;
use std::str::FromStr;

/// The fraction of all contents that is kept: `2^-bits`.
///
/// A content is kept if the upper `bits` bits of its fingerprint are 0. A higher rate keeps everything that a lower one
/// keeps. In the order of this type a lower rate is greater, since it has more bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SamplingRate {
    bits: u32,
}

/// The error for text that is no rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a rate: give 1/N with a power of two up to 4294967296, such as 1/64")]
pub struct RateError(String);

impl SamplingRate {
    /// Maximum number of bits.
    pub const MOST_BITS: u32 = 32;

    /// Creates the rate with `bits` bits, or the lowest rate.
    pub fn from_bits(bits: u32) -> Self {
        Self { bits: bits.min(Self::MOST_BITS) }
    }

    /// Returns the number of upper bits that are 0 in each kept fingerprint.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Returns the fraction of all contents that is kept.
    pub fn part(self) -> f64 {
        0.5_f64.powi(self.bits as i32)
    }

    /// Returns true if the fingerprint is kept.
    #[inline]
    pub fn keeps(self, fingerprint: u64) -> bool {
        fingerprint.leading_zeros() >= self.bits
    }

    /// Returns the highest rate at which a guest with `pages` different pages has at most `per_guest` sampled contents.
    pub fn for_pages(pages: u64, per_guest: u64) -> Self {
        let times = pages.div_ceil(per_guest.max(1)).max(1);
        Self::from_bits(times.next_power_of_two().trailing_zeros())
    }
}

impl FromStr for SamplingRate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let wrong = || RateError(text.to_owned());
        let divisor = match text.trim().split_once('/') {
            None => text.trim(),
            Some((one, divisor)) if one.trim() == "1" => divisor.trim(),
            Some(_) => return Err(wrong()),
        };
        let divisor: u64 = divisor.parse().map_err(|_| wrong())?;
        let is_whole = text.contains('/') || divisor == 1;
        if !is_whole || !divisor.is_power_of_two() || divisor.trailing_zeros() > Self::MOST_BITS {
            return Err(wrong());
        }
        Ok(Self::from_bits(divisor.trailing_zeros()))
    }
}

impl fmt::Display for SamplingRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits {
            0 => f.write_str("1"),
            bits => write!(f, "1/{}", 1_u64 << bits),
        }
    }
}

/// The rule that sets the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateRule {
    /// This rate, the same on all hosts of the fleet.
    Stated(SamplingRate),
    /// The highest rate at which the largest guest has about this many contents.
    PerGuest(u64),
}

impl RateRule {
    /// Returns the rate for a host with at most `most_pages` pages in a guest.
    pub fn rate(self, most_pages: u64) -> SamplingRate {
        match self {
            Self::Stated(rate) => rate,
            Self::PerGuest(contents) => SamplingRate::for_pages(most_pages, contents),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_are_powers_of_two() {
        for (text, bits) in [("1", 0), ("1/1", 0), ("1/2", 1), (" 1 / 64 ", 6), ("1/4294967296", 32)] {
            assert_eq!(text.parse::<SamplingRate>().unwrap().bits(), bits, "{text}");
        }
        for wrong in ["", "0", "64", "1/0", "1/63", "2/64", "1/8589934592", "-1/2", "1/64x", "0.5", "1/"] {
            assert!(wrong.parse::<SamplingRate>().is_err(), "{wrong}");
        }
        assert_eq!(SamplingRate::from_bits(6).to_string(), "1/64");
        assert_eq!(
            SamplingRate::from_bits(0).to_string().parse::<SamplingRate>().unwrap(),
            SamplingRate::from_bits(0)
        );
    }

    #[test]
    fn the_largest_guest_sets_the_rate() {
        for (pages, bits) in [(0, 0), (1, 0), (4096, 0), (4097, 1), (8192, 1), (8193, 2), (1 << 20, 8)] {
            assert_eq!(RateRule::PerGuest(4096).rate(pages).bits(), bits, "{pages}");
        }
        assert_eq!(RateRule::Stated(SamplingRate::from_bits(6)).rate(u64::MAX).bits(), 6);
    }

    proptest! {
        #[test]
        fn samples_are_nested(fingerprint: u64, high in 0_u32..33, low in 0_u32..33) {
            let (high, low) = (SamplingRate::from_bits(high.min(low)), SamplingRate::from_bits(high.max(low)));
            prop_assert!(!low.keeps(fingerprint) || high.keeps(fingerprint));
            // The rule that readers of the file go by.
            let is_zero = fingerprint.checked_shr(64 - low.bits()).unwrap_or(0) == 0;
            prop_assert_eq!(low.keeps(fingerprint), is_zero);
        }
    }
}
