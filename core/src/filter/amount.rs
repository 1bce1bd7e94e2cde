//! Numbers as people write them, held exactly.

use crate::field::Unit;
use crate::figures::Value;

/// A number in millionths of its base unit: every whole number of 64 bits is exact, and six digits behind the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

const MILLION: i128 = 1_000_000;

impl Amount {
    /// Reads `12`, `-1.5`, and for bytes also `100MiB`, `1.5 G` or `4k`, all in powers of 1024.
    pub fn parse(text: &str, unit: Unit) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at_checked(end)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || whole.len() > 20 || fraction.len() > 6 || !is_number(fraction) {
            return None;
        }
        let whole: i128 = whole.parse().ok()?;
        let millionths: i128 = format!("{fraction:0<6}").parse().ok()?;
        let factor = factor(suffix.trim(), unit)?;
        let amount = whole.checked_mul(MILLION)?.checked_add(millionths)?.checked_mul(factor)?;
        Some(Self(if is_negative { -amount } else { amount }))
    }

    /// The amount of a figure that is a number.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Unsigned(value) => Some(Self(i128::from(*value) * MILLION)),
            Value::Signed(value) => Some(Self(i128::from(*value) * MILLION)),
            // A cast of a float saturates.
            Value::Real(value) if !value.is_nan() => Some(Self((value * MILLION as f64).round() as i128)),
            _ => None,
        }
    }
}

/// A number of whole bytes as people write it: `4096`, `100MiB`, `1.5 G`.
pub fn size(text: &str) -> Option<u64> {
    let Amount(millionths) = Amount::parse(text.trim(), Unit::Bytes)?;
    let is_whole = millionths % MILLION == 0;
    u64::try_from(millionths / MILLION).ok().filter(|_| is_whole)
}

/// Whether the word is a unit of bytes.
pub fn is_unit(word: &str) -> bool {
    factor(word, Unit::Bytes).is_some()
}

/// The factor of a unit that stands behind a number.
fn factor(suffix: &str, unit: Unit) -> Option<i128> {
    if suffix.is_empty() {
        return Some(1);
    }
    if unit == Unit::Percent && suffix == "%" {
        return Some(1);
    }
    if !matches!(unit, Unit::Bytes | Unit::BytesPerSecond) {
        return None;
    }
    let lower = suffix.to_ascii_lowercase();
    if lower == "b" {
        return Some(1);
    }
    let prefix = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let power = ["k", "m", "g", "t", "p", "e"].iter().position(|known| *known == prefix)?;
    Some(1 << (10 * (power + 1)))
}
