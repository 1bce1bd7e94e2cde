//! `/proc/PID/schedstat`: CPU time of one task in nanoseconds.

use crate::reading::Malformed;

/// Parses the nanoseconds that the task ran: the first of the three numbers.
///
/// # Errors
/// Text that does not begin with a possible number.
pub fn cpu_ns(text: &str) -> Result<u64, Malformed> {
    text.split_ascii_whitespace()
        .next()
        .and_then(super::unsigned)
        .filter(|time| *time <= super::MOST_EVENTS)
        .ok_or_else(|| Malformed::new(1, "nanoseconds, waiting time and slices", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_the_time() {
        assert_eq!(cpu_ns("49811240 158373 77\n").unwrap(), 49_811_240);
        assert!(cpu_ns("").is_err());
        assert!(cpu_ns("-1 0 0\n").is_err());
    }
}
