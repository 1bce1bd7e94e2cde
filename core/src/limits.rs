//! The limits on every decision, whichever policy made it.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// A part of one CPU: 0.2 is 20 %. In the configuration a text in per cent, `"20%"`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct CpuShare(f64);

impl<'de> Deserialize<'de> for CpuShare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PercentageVisitor)
    }
}

struct PercentageVisitor;

impl Visitor<'_> for PercentageVisitor {
    type Value = CpuShare;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a percentage such as \"20%\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CpuShare, E> {
        CpuShare::try_from(text.to_owned()).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<CpuShare, E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<CpuShare, E> {
        let meant = if number > 0.0 && number <= 100.0 { number } else { 50.0 };
        Err(E::custom(format!("a percentage is a text with its sign, not {number}: write \"{meant}%\"")))
    }
}

/// A text that is no share of a CPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a percentage over 0 % and up to 100 %, such as \"20%\"")]
pub struct BadPercentage(String);

impl TryFrom<String> for CpuShare {
    type Error = BadPercentage;

    fn try_from(text: String) -> Result<Self, BadPercentage> {
        let percent = text.trim_end().strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        percent.and_then(|percent| Self::new(percent / 100.0)).ok_or(BadPercentage(text))
    }
}

impl CpuShare {
    /// One whole CPU.
    pub const WHOLE: Self = Self(1.0);

    /// Creates the share `part` of one CPU; `None` unless `part` is over 0 and at most 1.
    pub fn new(part: f64) -> Option<Self> {
        (part > 0.0 && part <= 1.0).then_some(Self(part))
    }

    /// Returns the share as a number from 0 to 1.
    pub fn part(self) -> f64 {
        self.0
    }
}

impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} %", self.0 * 100.0)
    }
}

/// The limits that no policy may exceed: the `[limits]` table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyLimits {
    /// The most CPU that ksmd may use.
    pub max_cpu: CpuShare,
    /// The most pages in one batch. A batch can't be interrupted: writing `run` waits for its end.
    pub max_pages_to_scan: u32,
    /// The shortest time that ksmd sleeps between batches. 0 lets it take a whole CPU.
    pub min_sleep_milliseconds: u32,
}

impl Default for PolicyLimits {
    fn default() -> Self {
        Self { max_cpu: CpuShare::WHOLE, max_pages_to_scan: u32::MAX, min_sleep_milliseconds: 0 }
    }
}
