//! Parsing and formatting of times.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ksmith_core::amount;

/// The error for text that is no time, or for a reversed time range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTime {
    /// The text is no time.
    #[error(
        "{0:?} is not a time: write how long ago, such as 2h, 30m or 7d, or a date such as 2026-11-23T20:15, or \
        seconds since 1970"
    )]
    NoTime(String),
    /// The beginning is not before the end.
    #[error("the beginning ({since}) is not before the end ({until}): name an earlier beginning")]
    Reversed {
        /// The beginning.
        since: String,
        /// The end.
        until: String,
    },
}

/// Smallest accepted timestamp, in seconds since 1970: a time in 2001.
const EARLIEST: f64 = 1e9;

/// Parses a time: an age before `now`, a date in the host's time zone, or seconds since 1970. Returns milliseconds.
///
/// # Errors
/// The text is none of these, or out of range.
pub fn parse(text: &str, now: i64) -> Result<i64, BadTime> {
    let text = text.trim();
    let bad = || BadTime::NoTime(text.chars().take(80).collect());
    if text == "now" {
        return Ok(now);
    }
    if let Ok(seconds) = text.parse::<f64>() {
        let is_time = (EARLIEST..1e12).contains(&seconds);
        return if is_time { Ok((seconds * 1000.0) as i64) } else { Err(bad()) };
    }
    if let Some(ago) = amount::time(text) {
        let then = i64::try_from(ago.as_millis()).ok().and_then(|ago| now.checked_sub(ago));
        return then.filter(|then| *then >= 0).ok_or_else(bad);
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_millisecond());
    }
    let date = text.parse::<DateTime>().map_err(|_| bad())?;
    Ok(date.to_zoned(TimeZone::system()).map_err(|_| bad())?.timestamp().as_millisecond())
}

/// Parses the beginning and the end of a time range, in the forms of [`parse`].
///
/// # Errors
/// One of them is no time, or the beginning is not before the end.
pub fn between(since: &str, until: &str, now: i64) -> Result<(i64, i64), BadTime> {
    let (since, until) = (parse(since, now)?, parse(until, now)?);
    if since < until {
        Ok((since, until))
    } else {
        Err(BadTime::Reversed { since: local(since), until: local(until) })
    }
}

/// Formats a time in the host's time zone: `2026-11-23 20:15:30`.
pub fn local(milliseconds: i64) -> String {
    let Ok(time) = Timestamp::from_millisecond(milliseconds) else { return "-".to_owned() };
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_795_467_600_000;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, expected) in [
            ("now", NOW),
            ("2h", NOW - 7_200_000),
            ("30m", NOW - 1_800_000),
            ("90s", NOW - 90_000),
            ("1d", NOW - 86_400_000),
            ("2w", NOW - 14 * 86_400_000),
            ("1h 30m", NOW - 5_400_000),
            ("2592000s", NOW - 2_592_000_000),
            ("1795467600", NOW),
            ("1795467600.5", NOW + 500),
            ("2026-11-23T21:00:00Z", NOW),
            ("2026-11-23T22:00:00+01:00", NOW),
        ] {
            assert_eq!(parse(text, NOW), Ok(expected), "{text}");
        }
        for bad in ["", "2", "-2h", "yesterday", "2x", "999999999999d", "2026-13-01", "nan", "inf", "1e300"] {
            assert!(parse(bad, NOW).is_err(), "{bad}: {:?}", parse(bad, NOW));
        }
    }

    #[test]
    fn a_stretch_of_time_has_its_beginning_before_its_end() {
        assert_eq!(between("2h", "now", NOW), Ok((NOW - 7_200_000, NOW)));
        for (since, until) in [("1m", "1h"), ("now", "now"), ("2999-01-01", "now")] {
            let error = between(since, until, NOW).unwrap_err();
            assert!(matches!(error, BadTime::Reversed { .. }), "{since} {until}: {error}");
        }
        assert!(matches!(between("2h", "x", NOW), Err(BadTime::NoTime(_))));
    }

    proptest! {
        #[test]
        fn any_text_is_a_time_or_an_error(text in ".{0,40}") {
            let _ = parse(&text, NOW);
        }

        #[test]
        fn any_number_is_shown(time: i64) {
            assert!(!local(time).is_empty());
        }
    }
}
