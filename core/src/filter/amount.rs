//! Exact numbers as people write them.

use crate::amount::{byte_factor, number};
use crate::field::FigureUnit;
use crate::figures::FigureScalar;

/// A number in millionths of its base unit: every whole number of 64 bits is exact, with six decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExactNumber(i128);

const MILLION: i128 = 1_000_000;

impl ExactNumber {
    /// Parses `12`, `-1.5`, and for bytes also `100MiB`, `1.5 G` or `4k`, all in powers of 1024.
    pub fn parse(text: &str, unit: FigureUnit) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (millionths, suffix) = number(text)?;
        let amount = millionths.checked_mul(factor(suffix.trim(), unit)?)?;
        Some(Self(if is_negative { -amount } else { amount }))
    }

    /// Converts the value of a figure, if it is a number.
    pub fn from_scalar(value: &FigureScalar) -> Option<Self> {
        match value {
            FigureScalar::Unsigned(value) => Some(Self(i128::from(*value) * MILLION)),
            FigureScalar::Signed(value) => Some(Self(i128::from(*value) * MILLION)),
            // A cast of a float saturates.
            FigureScalar::Real(value) if !value.is_nan() => Some(Self((value * MILLION as f64).round() as i128)),
            _ => None,
        }
    }
}

/// Returns true if the word is a unit of bytes.
pub fn is_unit(word: &str) -> bool {
    factor(word, FigureUnit::Bytes).is_some()
}

/// Returns the factor of a unit that stands behind a number.
fn factor(suffix: &str, unit: FigureUnit) -> Option<i128> {
    if suffix.is_empty() {
        return Some(1);
    }
    if unit == FigureUnit::Percent && suffix == "%" {
        return Some(1);
    }
    if !matches!(unit, FigureUnit::Bytes | FigureUnit::BytesPerSecond) {
        return None;
    }
    byte_factor(suffix)
}
