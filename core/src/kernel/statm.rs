//! `/proc/PID/statm`: the sizes of a process. No lock of the process is needed to read it.

use crate::reading::Malformed;

/// The sizes of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statm {
    /// Pages of its address space. 0 for a kernel thread or a zombie, which have none.
    pub mapped_pages: u64,
    /// Number of resident pages. `None` if the kernel shows an impossible number.
    pub resident_pages: Option<u64>,
}

impl Statm {
    /// Parses the first two of the seven numbers.
    ///
    /// # Errors
    /// Text that does not begin with two numbers.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed::new(1, "seven numbers of pages", text);
        let mut words = text.split_ascii_whitespace();
        let mut next = || words.next().and_then(super::unsigned).ok_or_else(malformed);
        let (mapped_pages, resident) = (next()?, next()?);
        Ok(Self { mapped_pages, resident_pages: Some(resident).filter(|pages| *pages <= super::MOST_PAGES) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_below_zero_is_no_resident_memory() {
        let sizes = |mapped_pages, resident_pages| Statm { mapped_pages, resident_pages };
        assert_eq!(Statm::parse("100 10 3 1 0 5 0\n"), Ok(sizes(100, Some(10))));
        assert_eq!(Statm::parse("0 0 0 0 0 0 0\n"), Ok(sizes(0, Some(0))));
        assert_eq!(Statm::parse("5 18446744073709551615 0"), Ok(sizes(5, None)));
        for bad in ["", "1", "-1 2", "x 1"] {
            assert!(Statm::parse(bad).is_err(), "{bad}");
        }
    }
}
