//! `/proc/pressure/*`: how long work waited for a resource (PSI, 4.20; often switched off at boot).

use crate::reading::Malformed;

/// One line of a pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stall {
    /// Per cent of the last 10 s in which work waited.
    pub avg10: f32,
    /// Per cent of the last 60 s.
    pub avg60: f32,
    /// Microseconds waited since boot.
    pub total_us: u64,
}

/// Pressure on one resource.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Psi {
    /// At least one task waited.
    pub some: Stall,
    /// Every task that could run waited. `None` for the CPU before 5.13.
    pub full: Option<Stall>,
}

impl Psi {
    /// Parses the file.
    ///
    /// # Errors
    /// A line that is not `some|full avg10=… avg60=… avg300=… total=…`, or no `some` line.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut some = None;
        let mut full = None;
        for (index, line) in text.lines().enumerate() {
            match line.split_once(' ') {
                Some(("some", rest)) => some = Some(stall(index + 1, rest)?),
                Some(("full", rest)) => full = Some(stall(index + 1, rest)?),
                _ => {}
            }
        }
        let some = some.ok_or_else(|| Malformed::new(1, "a line that begins with some", text))?;
        Ok(Self { some, full })
    }
}

fn stall(line: usize, text: &str) -> Result<Stall, Malformed> {
    let malformed = || Malformed::new(line, "avg10=N avg60=N avg300=N total=N", text);
    let (mut avg10, mut avg60, mut total_us) = (None, None, None);
    for word in text.split_ascii_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(malformed)?;
        let percent = || match value.parse::<f32>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
            _ => Err(malformed()),
        };
        match key {
            "avg10" => avg10 = Some(percent()?),
            "avg60" => avg60 = Some(percent()?),
            "total" => total_us = Some(super::unsigned(value).ok_or_else(malformed)?),
            _ => {}
        }
    }
    match (avg10, avg60, total_us) {
        (Some(avg10), Some(avg60), Some(total_us)) => Ok(Stall { avg10, avg60, total_us }),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_parse() {
        let text = "some avg10=1.50 avg60=0.20 avg300=0.00 total=12345\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        let psi = Psi::parse(text).unwrap();
        assert_eq!(psi.some, Stall { avg10: 1.5, avg60: 0.2, total_us: 12_345 });
        assert_eq!(psi.full.unwrap().total_us, 7);
    }

    #[test]
    fn percentages_that_cannot_be_are_malformed() {
        for bad in ["NaN", "inf", "-1", "101", ""] {
            let text = format!("some avg10={bad} avg60=0.00 avg300=0.00 total=1\n");
            assert!(Psi::parse(&text).is_err(), "{bad}");
        }
        assert!(Psi::parse("some avg10=1.00 avg60=0.00\n").is_err());
        assert!(Psi::parse("some avg10=1.00 avg10=1.00 avg10=1.00\n").is_err());
        assert!(Psi::parse("").is_err());
    }
}
