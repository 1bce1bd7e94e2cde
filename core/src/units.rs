//! Units for people. Inside, every quantity is a plain number with its unit in its name (`_bytes`, `_ns`,
//! `_pages`); these wrappers only format it.

use std::fmt;
use std::time::Duration;

/// A number of bytes, printed in binary units with three significant digits: `1.94 GiB`, `-12.0 KiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub i128);

impl From<u64> for Bytes {
    fn from(bytes: u64) -> Self {
        Self(bytes.into())
    }
}

impl From<i64> for Bytes {
    fn from(bytes: i64) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let sign = if self.0 < 0 { "-" } else { "" };
        let mut scaled = self.0.unsigned_abs() as f64;
        let mut unit = 0;
        // 999.5 would be printed as "1000": a value that rounds up to four digits belongs to the next unit.
        while scaled >= 999.5 && unit < UNITS.len() - 1 {
            scaled /= 1024.0;
            unit += 1;
        }
        let digits = match scaled {
            _ if unit == 0 => 0,
            s if s < 9.995 => 2,
            s if s < 99.95 => 1,
            _ => 0,
        };
        f.pad(&format!("{sign}{scaled:.digits$} {}", UNITS[unit]))
    }
}

/// Bytes that a scan newly saved: `22.4 MiB saved`, or `48.0 MiB less saved` where more became unmerged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewSavings(pub i64);

impl fmt::Display for NewSavings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let less = if self.0 < 0 { " less" } else { "" };
        write!(f, "{}{less} saved", Bytes::from(self.0.unsigned_abs()))
    }
}

/// A count with its noun in the singular or the plural: `1 guest`, `2 processes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedNoun {
    /// The count.
    pub count: u64,
    /// The noun in the singular. Its plural ends in `s`, or in `es` behind an `s`.
    pub noun: &'static str,
}

impl CountedNoun {
    /// Counts a noun.
    pub fn new(count: usize, noun: &'static str) -> Self {
        Self { count: u64::try_from(count).unwrap_or(u64::MAX), noun }
    }

    /// Returns the count with a verb: `1 guest has`, `2 guests have`.
    pub fn with_verb(self, singular: &str, plural: &str) -> String {
        format!("{self} {}", if self.count == 1 { singular } else { plural })
    }
}

impl fmt::Display for CountedNoun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = match self.count {
            1 => "",
            _ if self.noun.ends_with('s') => "es",
            _ => "s",
        };
        write!(f, "{} {}{ending}", self.count, self.noun)
    }
}

/// A span of time, printed with the two units that matter: `4 ms`, `12.5 s`, `3 min 20 s`, `2 h 5 min`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpan(pub Duration);

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let text = match seconds {
            _ if self.0 < Duration::from_millis(999) => format!("{} ms", self.0.as_millis()),
            0..60 => {
                let tenths = format!("{:.1}", self.0.as_secs_f64());
                format!("{} s", tenths.trim_end_matches(".0"))
            }
            60..3600 => pair(seconds / 60, "min", seconds % 60, "s"),
            3600..86_400 => pair(seconds / 3600, "h", seconds % 3600 / 60, "min"),
            _ => pair(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
        };
        f.pad(&text)
    }
}

fn pair(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_three_significant_digits() {
        let text = |b: i64| Bytes::from(b).to_string();
        assert_eq!(text(0), "0 B");
        assert_eq!(text(512), "512 B");
        assert_eq!(text(1000), "0.98 KiB");
        assert_eq!(text(4096), "4.00 KiB");
        assert_eq!(text(2_038_431_744), "1.90 GiB");
        assert_eq!(text(-12 * 1024), "-12.0 KiB");
        assert_eq!(Bytes::from(u64::MAX).to_string(), "16.0 EiB");
    }

    #[test]
    fn lost_savings_are_told_without_a_sign() {
        assert_eq!(NewSavings(48 << 20).to_string(), "48.0 MiB saved");
        assert_eq!(NewSavings(-48 << 20).to_string(), "48.0 MiB less saved");
        assert_eq!(NewSavings(0).to_string(), "0 B saved");
    }

    #[test]
    fn one_thing_is_singular_and_others_are_plural() {
        let guests = |count| CountedNoun::new(count, "guest").with_verb("has", "have");
        assert_eq!([guests(0), guests(1), guests(2)], ["0 guests have", "1 guest has", "2 guests have"]);
        assert_eq!(CountedNoun::new(1, "process").to_string(), "1 process");
        assert_eq!(CountedNoun::new(2, "process").to_string(), "2 processes");
        assert_eq!(CountedNoun::new(2, "pass").to_string(), "2 passes");
    }

    #[test]
    fn spans_name_the_two_units_that_matter() {
        let text = |ms: u64| TimeSpan(Duration::from_millis(ms)).to_string();
        assert_eq!(text(4), "4 ms");
        assert_eq!(text(1000), "1 s");
        assert_eq!(text(12_500), "12.5 s");
        assert_eq!(text(200_000), "3 min 20 s");
        assert_eq!(text(240_000), "4 min");
        assert_eq!(text(7_500_000), "2 h 5 min");
    }
}
