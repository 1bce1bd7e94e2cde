//! Reading numbers of the configuration with their bounds, so that a value out of bounds is refused where it
//! stands: the error then has its line and column.

use serde::de::{Deserialize, Deserializer, Error};

/// Numbers that configurations use are far below this; beyond it, arithmetic in seconds and bytes overflows.
const LARGEST: f64 = 1e9;

/// A number over 0.
///
/// # Errors
/// Any other number, and numbers over 1e9.
pub fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let value = number(deserializer)?;
    if value > 0.0 && value <= LARGEST {
        return Ok(value);
    }
    Err(D::Error::custom(format!("must be over 0 and at most {LARGEST}, not {value}")))
}

/// A percentage over 0 and up to 100.
///
/// # Errors
/// Any other number.
pub fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let value = number(deserializer)?;
    if value > 0.0 && value <= 100.0 {
        return Ok(value);
    }
    Err(D::Error::custom(format!("must be over 0 and at most 100, not {value}")))
}

/// An integer or a float: people write `15` where we think `15.0`.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    f64::deserialize(deserializer)
}
