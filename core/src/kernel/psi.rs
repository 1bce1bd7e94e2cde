//! `/proc/pressure/*`: the time that work waited for a resource (PSI, 4.20; often switched off at boot).

use serde::{Deserialize, Serialize};

use crate::reading::Malformed;

/// One line of a pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StallTimes {
    /// Per cent of the last 10 s in which work waited. `None`: the value is impossible.
    pub avg10: Option<f32>,
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
    /// No line `some avg10=… avg60=… avg300=… total=…`, or neither figure is possible.
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
                avg10 = Some(value.parse().ok().filter(|percent| (0.0..=100.0).contains(percent)));
            }
            "total" => total_us = Some(super::unsigned(value).filter(|total| *total <= super::MOST_EVENTS)),
            _ => {}
        }
    }
    match (avg10, total_us) {
        (Some(avg10), Some(total_us)) if avg10.is_some() || total_us.is_some() => {
            Ok(StallTimes { avg10, total_us })
        }
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
        assert_eq!(psi.some, StallTimes { avg10: Some(1.5), total_us: Some(12_345) });
    }

    #[test]
    fn a_total_below_zero_is_unknown_and_the_percentage_counts() {
        let text = "some avg10=3.10 avg60=0.20 avg300=0.00 total=18446744073709550000\n";
        assert_eq!(Psi::parse(text).unwrap().some, StallTimes { avg10: Some(3.1), total_us: None });
    }

    #[test]
    fn percentages_that_cannot_be_are_unknown_and_the_total_counts() {
        for bad in ["NaN", "inf", "-1", "101", ""] {
            let text = format!("some avg10={bad} avg60=0.00 avg300=0.00 total=1\n");
            assert_eq!(Psi::parse(&text).unwrap().some, StallTimes { avg10: None, total_us: Some(1) }, "{bad}");
            assert!(Psi::parse(&text.replace("total=1", "total=-1")).is_err(), "{bad}");
        }
        assert!(Psi::parse("some avg10=1.00 avg60=0.00\n").is_err());
        assert!(Psi::parse("full avg10=1.00 avg60=0.00 avg300=0.00 total=1\n").is_err());
        assert!(Psi::parse("").is_err());
    }
}
