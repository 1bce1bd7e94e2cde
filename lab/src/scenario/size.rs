//! Sizes in a scenario file, such as `"256 MiB"`.

use serde::Deserialize;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct SizeText(pub(super) u64);

impl TryFrom<String> for SizeText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a size such as \"256 MiB\" (KiB, MiB or GiB)");
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let shift = match text[digits.len()..].trim() {
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            _ => return Err(wrong()),
        };
        // No host gives a guest more than 2^48 bytes, and smaller numbers do not overflow below.
        let bytes = digits.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        bytes.filter(|bytes| *bytes < 1 << 48).map(Self).ok_or_else(wrong)
    }
}

impl SizeText {
    /// The size in whole pages, after scaling.
    pub(super) fn pages(self, scale: f64) -> usize {
        (self.0 as f64 * scale / crate::filled::page_size() as f64).round() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_written() {
        let size = |text: &str| SizeText::try_from(text.to_owned()).map(|size| size.0);
        assert_eq!((size("4 KiB"), size("3MiB"), size("1 GiB")), (Ok(4096), Ok(3 << 20), Ok(1 << 30)));
        for text in ["", "4", "4 kB", "-4 MiB", "1.5 GiB", "99999999999999 GiB", "MiB"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(SizeText(1 << 20).pages(0.5), 128);
    }
}
