//! Amounts as people write them: the one parser of sizes, times and percentages, for the configuration and for
//! options.
//!
//! A size is `512M`, `1.5G` or `1.5 GiB`, in powers of 1024. A time is `90s`, `10min`, `1.5h`, `7d` or `1h 30min`. A
//! percentage is `20%`. All are exact: at most six decimals are accepted.

use std::time::Duration;

const MILLION: i128 = 1_000_000;

const SECOND: i128 = 1000;
const DAY: i128 = 86_400 * SECOND;

/// The dimension of an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AmountDimension {
    /// Bytes of memory or of a file.
    Size,
    /// A length of time.
    Time,
    /// A part of a whole.
    Part,
}

impl AmountDimension {
    /// Returns the factor of a unit, in bytes, milliseconds or thousandths of the whole.
    fn factor(self, unit: &str) -> Option<i128> {
        match self {
            Self::Size => byte_factor(unit),
            Self::Time => Some(match unit {
                "ms" | "msec" | "millisecond" | "milliseconds" => 1,
                "s" | "sec" | "second" | "seconds" => SECOND,
                "m" | "min" | "minute" | "minutes" => 60 * SECOND,
                "h" | "hour" | "hours" => 3600 * SECOND,
                "d" | "day" | "days" => DAY,
                "w" | "week" | "weeks" => 7 * DAY,
                "y" | "year" | "years" => 365 * DAY,
                _ => return None,
            }),
            Self::Part => match unit {
                "%" => Some(10),
                "‰" => Some(1),
                _ => None,
            },
        }
    }

    /// Returns examples for messages.
    fn examples(self) -> &'static str {
        match self {
            Self::Size => "\"512M\" or \"1.5 GiB\"",
            Self::Time => "\"90s\", \"10min\" or \"1.5h\"",
            Self::Part => "\"20%\"",
        }
    }
}

/// Returns the factor of a unit of bytes: `b`, `k`, `KiB`, `M`, … in powers of 1024.
pub fn byte_factor(unit: &str) -> Option<i128> {
    let lower = unit.to_ascii_lowercase();
    if lower == "b" {
        return Some(1);
    }
    let prefix = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let power = ["k", "m", "g", "t", "p", "e"].iter().position(|known| *known == prefix)?;
    Some(1 << (10 * (power + 1)))
}

/// Parses a number and returns the rest of the text, without the spaces between: `1.5 G` is 1500000 millionths and
/// `G`.
pub(crate) fn number(text: &str) -> Option<(i128, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 20 || fraction.len() > 6 || !is_number(fraction) {
        return None;
    }
    let whole: i128 = whole.parse().ok()?;
    let millionths: i128 = format!("{fraction:0<6}").parse().ok()?;
    Some((whole.checked_mul(MILLION)?.checked_add(millionths)?, rest.trim_start()))
}

/// Parses an amount with its unit, in millionths of a byte, a millisecond or a thousandth. A time may have several
/// parts.
fn with_unit(text: &str, measure: AmountDimension) -> Option<i128> {
    let mut rest = text.trim();
    let mut sum: i128 = 0;
    while !rest.is_empty() {
        let (millionths, behind) = number(rest)?;
        let end = behind.find(|c: char| c.is_ascii_digit() || c.is_whitespace()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at_checked(end)?;
        sum = sum.checked_add(millionths.checked_mul(measure.factor(unit)?)?)?;
        rest = next.trim_start();
        if measure != AmountDimension::Time && !rest.is_empty() {
            return None;
        }
    }
    (!text.trim().is_empty()).then_some(sum)
}

/// Parses a number of whole bytes: `4096`, `100MiB`, `1.5 G`.
pub fn size(text: &str) -> Option<u64> {
    let plain = |text: &str| number(text).filter(|(_, unit)| unit.is_empty()).map(|(millionths, _)| millionths);
    let millionths = plain(text.trim()).or_else(|| with_unit(text, AmountDimension::Size))?;
    u64::try_from(millionths / MILLION).ok().filter(|_| millionths % MILLION == 0)
}

/// Parses a length of time with its unit, in whole milliseconds: `90s`, `1h 30min`.
pub fn time(text: &str) -> Option<Duration> {
    let milliseconds = with_unit(text, AmountDimension::Time)? / MILLION;
    Some(Duration::from_millis(u64::try_from(milliseconds).ok()?))
}

/// Parses a length of time, where a plain number is one of seconds: `90`, `90s`, `1.5`.
pub fn seconds(text: &str) -> Option<Duration> {
    let plain = number(text.trim()).filter(|(_, unit)| unit.is_empty()).map(|(millionths, _)| millionths);
    match plain {
        Some(microseconds) => Some(Duration::from_micros(u64::try_from(microseconds).ok()?)),
        None => time(text),
    }
}

/// Suffixes of keys that name a unit, with its dimension, its factor and its name: `max_mib` counts MiB.
const ENDS: [(&str, AmountDimension, i128, &str); 9] = [
    ("_mib", AmountDimension::Size, 1 << 20, "MiB"),
    ("_milliseconds", AmountDimension::Time, 1, "milliseconds"),
    ("_millisecs", AmountDimension::Time, 1, "milliseconds"),
    ("_seconds", AmountDimension::Time, SECOND, "seconds"),
    ("_minutes", AmountDimension::Time, 60 * SECOND, "minutes"),
    ("_hours", AmountDimension::Time, 3600 * SECOND, "hours"),
    ("_days", AmountDimension::Time, DAY, "days"),
    ("_years", AmountDimension::Time, 365 * DAY, "years"),
    ("_percent", AmountDimension::Part, 10, "per cent"),
];

/// A text that is no amount of its key's unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} takes a number of {unit}, or a text with its unit such as {examples}, not the text {text:?}")]
pub struct BadAmount {
    key: String,
    unit: &'static str,
    examples: &'static str,
    text: String,
}

/// Converts a text to the number of a key that ends in its unit: `1.5G` is 1536 for `max_mib`. `None` if the key names
/// no unit.
///
/// # Errors
/// The text is no such amount; the message names what the key accepts.
pub fn for_key(key: &str, text: &str) -> Option<Result<String, BadAmount>> {
    let permille = ("_permille", AmountDimension::Part, 1, "parts per thousand");
    let (_, measure, factor, unit) = ENDS.into_iter().chain([permille]).find(|(end, ..)| key.ends_with(end))?;
    let wrong = || BadAmount { key: key.to_owned(), unit, examples: measure.examples(), text: text.to_owned() };
    let amount = with_unit(text, measure).ok_or_else(wrong);
    Some(amount.map(|millionths| {
        let in_unit = factor * MILLION;
        match millionths % in_unit {
            0 => (millionths / in_unit).to_string(),
            _ => format!("{:?}", millionths as f64 / in_unit as f64),
        }
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, expected) in
            [("512M", 512 << 20), ("1.5 GiB", 3 << 29), ("1.5G", 3 << 29), ("4 k", 4096), (" 7 ", 7), ("2b", 2)]
        {
            assert_eq!(size(text), Some(expected), "{text}");
        }
        for bad in ["", "M", "-1M", "1.5", "0.1b", "1X", "1MBB", "1M 2K", "ä", "+1M", "1.5.5G"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("90s", 90.0),
            ("1.5h", 5400.0),
            ("10min", 600.0),
            ("10 m", 600.0),
            ("1h 30min", 5400.0),
            ("1h30m", 5400.0),
            ("250ms", 0.25),
            ("7d", 604_800.0),
        ] {
            assert_eq!(time(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for bad in ["", "90", "s", "-1s", "1h 30", "1 fortnight", "1e3s"] {
            assert_eq!(time(bad), None, "{bad}");
        }
        assert_eq!(seconds("0.1"), Some(Duration::from_millis(100)));
        assert_eq!((seconds("2min"), seconds("nan")), (Some(Duration::from_secs(120)), None));
    }

    #[test]
    fn a_key_takes_an_amount_in_any_unit_of_its_measure() {
        for (key, text, expected) in [
            ("floor_mib", "1.5G", "1536"),
            ("reserve_mib", "512 KiB", "0.5"),
            ("rest_seconds", "10min", "600"),
            ("cooldown_seconds", "1500ms", "1.5"),
            ("every_minutes", "1h", "60"),
            ("hours_years", "730d", "2"),
            ("low_percent", "12.5%", "12.5"),
            ("worth_permille", "5%", "50"),
        ] {
            assert_eq!(for_key(key, text), Some(Ok(expected.to_owned())), "{key} {text}");
        }
        assert_eq!(for_key("max_cpu", "20%"), None);
        let error = for_key("floor_mib", "much").unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "floor_mib takes a number of MiB, or a text with its unit such as \"512M\" or \"1.5 GiB\", not the text \"much\""
        );
        for (key, bad) in [("floor_mib", "512"), ("rest_seconds", "5%"), ("low_percent", "5M")] {
            assert!(for_key(key, bad).unwrap().is_err(), "{key} {bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_amount_or_none(text in ".{0,24}") {
            let _ = (size(&text), time(&text), seconds(&text), for_key("a_mib", &text), for_key("a_percent", &text));
        }
    }
}
