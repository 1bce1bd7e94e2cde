//! Parsers for amounts on the command line: sizes, times and percentages.

use std::time::Duration;

use ksmith_core::amount;
use ksmith_core::units::TimeSpan;

/// The shortest and the longest time between two refreshes.
const LOOKS: (Duration, Duration) = (Duration::from_millis(100), DAY);

const DAY: Duration = Duration::from_secs(86_400);

/// Parses a time between two refreshes, from a tenth of a second to a day.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    within(text, LOOKS)
}

/// Parses a time to wait, of a day at most.
pub(super) fn wait(text: &str) -> Result<Duration, String> {
    within(text, (Duration::ZERO, DAY))
}

/// Parses the time of a pause, from a second to a year.
pub(super) fn pause(text: &str) -> Result<Duration, String> {
    within(text, (Duration::from_secs(1), DAY * 365))
}

/// Parses a time between two scans of a program, from a tenth of a second to eleven days.
pub(super) fn period(text: &str) -> Result<Duration, String> {
    within(text, (Duration::from_millis(100), Duration::from_secs(1_000_000)))
}

fn within(text: &str, (least, most): (Duration, Duration)) -> Result<Duration, String> {
    let wrong = || {
        let bounds = format!("from {} to {}", TimeSpan(least), TimeSpan(most));
        format!(
            "{text:?} is not a time {bounds}: write seconds, or a unit behind the number, as in 90s, 10min or 1.5h"
        )
    };
    amount::seconds(text).filter(|time| (least..=most).contains(time)).ok_or_else(wrong)
}

/// Parses a number of bytes, of at least one and less than 2^60.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not an amount of memory: write it as 256M, 1.5G or 1048576");
    amount::size(text).filter(|bytes| (1..1 << 60).contains(bytes)).ok_or_else(wrong)
}

/// Parses a number of MiB from 4 to 65536, where a unit may stand behind the number.
pub(super) fn mebibytes(text: &str) -> Result<u32, String> {
    let wrong =
        || format!("{text:?} is not an amount from 4 MiB to 64 GiB: write MiB, or a unit, as in 96M or 1.5G");
    let plain = text.trim().parse::<u32>().ok();
    let mebibytes = plain.or_else(|| {
        let bytes = amount::size(text)?;
        u32::try_from(bytes >> 20).ok().filter(|_| bytes % (1 << 20) == 0)
    });
    mebibytes.filter(|number| (4..=65_536).contains(number)).ok_or_else(wrong)
}

/// Parses a percentage over 0 and up to 100: its sign may be left out.
pub(super) fn per_cent(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is not a percentage over 0 and up to 100, such as 1% or 0.5");
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>().map_err(|_| wrong())?;
    if number > 0.0 && number <= 100.0 { Ok(number) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        assert_eq!(
            ["256M", "256MiB", "1G", "1.5 GiB", "2 k", "7"].map(size),
            [256 << 20, 256 << 20, 1 << 30, 3 << 29, 2048, 7].map(Ok)
        );
        for text in ["", "M", "-1M", "1.5", "0", "9999999T", "1X", "ä", "1MBB", "1iBiB", "+1M"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(["96", "96M", "1.5G"].map(mebibytes), [96, 96, 1536].map(Ok));
        for text in ["", "3", "1k", "65537", "0.5M", "many"] {
            assert!(mebibytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn percentages_may_have_their_sign() {
        assert_eq!(["1", "0.5 %", "100%"].map(per_cent), [1.0, 0.5, 100.0].map(Ok));
        for text in ["", "%", "0", "101%", "nan", "-1", "half"] {
            assert!(per_cent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_seconds_or_have_their_unit() {
        assert_eq!(
            ["2", "0.5", "2min"].map(interval),
            [2000, 500, 120_000].map(|ms| Ok(Duration::from_millis(ms)))
        );
        assert_eq!(wait("0"), Ok(Duration::ZERO));
        assert_eq!(period("10d"), Ok(DAY * 10));
        assert_eq!(["90s", "1h", "365d"].map(pause), [90, 3600, 31_536_000].map(|s| Ok(Duration::from_secs(s))));
        for text in ["0.5", "0", "366d", "long"] {
            assert!(pause(text).is_err(), "{text}");
        }
        for text in ["", "0.05", "0", "2d", "-1", "nan", "inf", "1e3", "soon"] {
            assert!(interval(text).is_err(), "{text}");
        }
        let said = interval("soon").unwrap_err();
        assert_eq!(
            said,
            "\"soon\" is not a time from 100 ms to 1 d: write seconds, or a unit behind the number, as in 90s, 10min or 1.5h"
        );
    }
}
