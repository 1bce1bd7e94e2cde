//! Text without allocation: parses numbers and builds lines.

/// Parses `text` as a decimal number.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, &byte| {
        let digit = char::from(byte).to_digit(10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Parses `text` as a decimal number that may be negative.
pub fn signed(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(rest) => 0_i64.checked_sub_unsigned(decimal(rest)?),
        None => i64::try_from(decimal(text)?).ok(),
    }
}

/// Parses `text` as a hexadecimal number, with or without `0x`.
pub fn hexadecimal(text: &[u8]) -> Option<usize> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_usize, |number, &byte| {
        let digit = char::from(byte).to_digit(16)?;
        number.checked_mul(16)?.checked_add(digit as usize)
    })
}

/// Iterates over the words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty())
}

/// Finds the value of `key=value` among the words of a line.
pub fn value<'a>(line: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    words(line).find_map(|word| word.strip_prefix(key)?.strip_prefix(b"="))
}

/// Up to N bytes of text. Longer text is truncated.
#[derive(Debug, Clone, Copy)]
pub struct LineBuffer<const N: usize> {
    bytes: [u8; N],
    used: usize,
}

impl<const N: usize> LineBuffer<N> {
    /// Creates an empty line.
    pub const fn new() -> Self {
        Self { bytes: [0; N], used: 0 }
    }

    /// Appends a text.
    pub fn add(mut self, text: &[u8]) -> Self {
        for (place, byte) in self.bytes.iter_mut().skip(self.used).zip(text) {
            *place = *byte;
            self.used = self.used.saturating_add(1);
        }
        self
    }

    /// Appends a decimal number.
    pub fn add_number(self, number: u64) -> Self {
        let mut digits = [0_u8; 20];
        let mut rest = number;
        let mut used = 0_usize;
        for place in digits.iter_mut().rev() {
            *place = b'0'.wrapping_add((rest % 10) as u8);
            rest /= 10;
            used = used.saturating_add(1);
            if rest == 0 {
                break;
            }
        }
        let start = digits.len().saturating_sub(used);
        let Some(digits) = digits.get(start..) else { return self };
        self.add(digits)
    }

    /// Returns the bytes of the line.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_the_whole_text() {
        assert_eq!((decimal(b"42"), decimal(b""), decimal(b"4 "), decimal(b"-4")), (Some(42), None, None, None));
        assert_eq!((signed(b"-42"), signed(b"-"), signed(b"7")), (Some(-42), None, Some(7)));
        assert_eq!((hexadecimal(b"7fF0"), hexadecimal(b"0x10"), hexadecimal(b"")), (Some(0x7ff0), Some(16), None));
        assert_eq!(decimal(b"18446744073709551616"), None);
    }

    #[test]
    fn values_are_found_by_their_key() {
        let line = b"ok passes=2 saved_bytes=-5 x=";
        assert_eq!(value(line, b"saved_bytes"), Some(&b"-5"[..]));
        assert_eq!((value(line, b"x"), value(line, b"bytes")), (Some(&b""[..]), None));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number in any::<u64>()) {
            let line = LineBuffer::<20>::new().add_number(number);
            prop_assert_eq!(decimal(line.bytes()), Some(number));
            prop_assert_eq!(core::str::from_utf8(line.bytes()).unwrap(), number.to_string());
        }

        #[test]
        fn a_line_keeps_what_fits(text in proptest::collection::vec(any::<u8>(), 0..20)) {
            let line = LineBuffer::<8>::new().add(&text).add(&text);
            let whole: Vec<u8> = text.iter().chain(&text).copied().take(8).collect();
            prop_assert_eq!(line.bytes(), &whole[..]);
        }

        #[test]
        fn any_bytes_are_read_without_a_fault(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (decimal(&text), signed(&text), hexadecimal(&text), value(&text, b"a"));
        }
    }
}
