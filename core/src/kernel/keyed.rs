//! The format that most kernel files share: lines of a key, a number and perhaps a unit.

use crate::reading::Malformed;

/// One line `key value [unit]`, with an optional colon behind the key.
pub(super) struct KeyedLine<'a> {
    pub number: usize,
    pub key: &'a str,
    pub rest: &'a str,
}

/// Splits the lines of `text` after their key. A line that was cut off after its key has an empty rest, which is
/// no number. Headings and flags of newer kernels have keys that no caller looks up.
pub(super) fn lines(text: &str) -> impl Iterator<Item = KeyedLine<'_>> {
    text.lines().enumerate().map(|(index, line)| {
        let line = line.trim_end();
        let (key, rest) = line.split_once([' ', '\t', ':']).unwrap_or((line, ""));
        let rest = rest.trim_start_matches([' ', '\t', ':']);
        KeyedLine { number: index + 1, key, rest }
    })
}

impl KeyedLine<'_> {
    /// Parses the value as a plain unsigned number.
    pub(super) fn unsigned(&self) -> Result<u64, Malformed> {
        super::unsigned(self.rest).ok_or_else(|| self.malformed("an unsigned number"))
    }

    /// Parses the value as a signed number of bytes. More than a host can have, either way, is malformed.
    pub(super) fn signed_bytes(&self) -> Result<i64, Malformed> {
        super::signed(self.rest)
            .filter(|bytes| bytes.unsigned_abs() <= super::MOST_BYTES)
            .ok_or_else(|| self.malformed("a signed number of bytes"))
    }

    /// Parses the value as a number of pages in a counter that may fall below zero, which is read as zero.
    pub(super) fn pages_or_below(&self) -> Result<u64, Malformed> {
        super::signed(self.rest)
            .filter(|pages| pages.unsigned_abs() <= super::MOST_PAGES)
            .map(|pages| u64::try_from(pages).unwrap_or(0))
            .ok_or_else(|| self.malformed("a number of pages"))
    }

    /// Parses the value as bytes, from the kernel's `kB` (which are KiB). More than a host can have is malformed.
    pub(super) fn kib(&self) -> Result<u64, Malformed> {
        self.rest
            .strip_suffix("kB")
            .and_then(|number| super::unsigned(number.trim_end()))
            .and_then(|kib| kib.checked_mul(1024))
            .filter(|bytes| *bytes <= super::MOST_BYTES)
            .ok_or_else(|| self.malformed("a number of kB"))
    }

    /// Parses the value as a number of events. A sum over CPUs that fell below zero is malformed.
    pub(super) fn events(&self) -> Result<u64, Malformed> {
        self.at_most(super::MOST_EVENTS, "a number of events")
    }

    /// Parses the value as a number of pages. More than a host can have is malformed.
    pub(super) fn pages(&self) -> Result<u64, Malformed> {
        self.at_most(super::MOST_PAGES, "a number of pages")
    }

    fn at_most(&self, most: u64, expected: &'static str) -> Result<u64, Malformed> {
        super::unsigned(self.rest).filter(|number| *number <= most).ok_or_else(|| self.malformed(expected))
    }

    /// Parses the value as the kernel's yes or no.
    pub(super) fn yes(&self) -> Result<bool, Malformed> {
        match self.rest {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(self.malformed("yes or no")),
        }
    }

    pub(super) fn malformed(&self, expected: &'static str) -> Malformed {
        Malformed::new(self.number, expected, self.rest)
    }
}
