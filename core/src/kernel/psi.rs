//! `/proc/pressure/*`: the time that work waited for a resource (PSI, 4.20; often switched off at boot).

use serde::{Deserialize, Serialize};

use crate::reading::Malformed;

/// One line of a pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StallTimes {
    /// Per cent of the last 10 s in which work waited.
    pub avg10: f32,
    /// Microseconds waited since boot. `None`: the value is impossible, as that of a counter that fell below zero.
    pub total_us: Option<u64>,
}

/// Pressure on one resource: the line `some`. No policy needs the line `full` (every task that could run waited).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Psi {
    /// At least one task waited.
    pub some: StallTimes,
}

impl Psi {
    /// Parses the file.
    ///
    /// # Errors
    /// No line `some avg10=… avg60=… avg300=… total=…`.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let some =
            text.lines().enumerate().find_map(|(index, line)| Some((index + 1, line.strip_prefix("some ")?)));
        let (line, rest) = some.ok_or_else(|| Malformed::new(1, "a line that begins with some", text))?;
        Ok(Self { some: stall(line, rest)? })
    }
}

fn stall(line: usize, text: &str) -> Result<StallTimes, Malformed> {
    let malformed = || Malformed::new(line, "avg10=N avg60=N avg300=N total=N", text);
    let (mut avg10, mut total_us) = (None, None);
    for word in text.split_ascii_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(malformed)?;
        match key {
            "avg10" => {
                let percent = value.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
                avg10 = Some(percent.ok_or_else(malformed)?);
            }
            "total" => {
                let total = super::unsigned(value).ok_or_else(malformed)?;
                total_us = Some(Some(total).filter(|total| *total <= i64::MAX as u64));
            }
            _ => {}
        }
    }
    match (avg10, total_us) {
        (Some(avg10), Some(total_us)) => Ok(StallTimes { avg10, total_us }),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_for_some_counts() {
        let text = "some avg10=1.50 avg60=0.20 avg300=0.00 total=12345\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        let psi = Psi::parse(text).unwrap();
        assert_eq!(psi.some, StallTimes { avg10: 1.5, total_us: Some(12_345) });
    }

    #[test]
    fn a_total_below_zero_is_unknown_and_the_percentage_counts() {
        let text = "some avg10=3.10 avg60=0.20 avg300=0.00 total=18446744073709550000\n";
        assert_eq!(Psi::parse(text).unwrap().some, StallTimes { avg10: 3.1, total_us: None });
    }

    #[test]
    fn percentages_that_cannot_be_are_malformed() {
        for bad in ["NaN", "inf", "-1", "101", ""] {
            let text = format!("some avg10={bad} avg60=0.00 avg300=0.00 total=1\n");
            assert!(Psi::parse(&text).is_err(), "{bad}");
        }
        assert!(Psi::parse("some avg10=1.00 avg60=0.00\n").is_err());
        assert!(Psi::parse("full avg10=1.00 avg60=0.00 avg300=0.00 total=1\n").is_err());
        assert!(Psi::parse("").is_err());
    }
}
