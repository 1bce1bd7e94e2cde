//! XDR (RFC 4506), limited to the types of libvirt's calls: numbers of four bytes, strings, and bytes of a fixed
//! length.

/// The error of a message that ends too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message ends too early")]
pub(super) struct ShortMessage;

/// An encoder of a message.
#[derive(Debug, Default)]
pub(super) struct XdrEncoder(pub(super) Vec<u8>);

impl XdrEncoder {
    pub(super) fn number(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// Appends bytes of a length that both sides know.
    pub(super) fn fixed(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn string(self, text: &str) -> Self {
        self.number(u32::try_from(text.len()).unwrap_or(u32::MAX)).fixed(text.as_bytes())
    }

    /// Appends an optional string that is present.
    pub(super) fn some_string(self, text: &str) -> Self {
        self.number(1).string(text)
    }
}

/// A decoder of a message.
#[derive(Debug)]
pub(super) struct XdrDecoder<'a>(pub(super) &'a [u8]);

impl<'a> XdrDecoder<'a> {
    pub(super) fn number(&mut self) -> Result<u32, ShortMessage> {
        let (number, rest) = self.0.split_first_chunk::<4>().ok_or(ShortMessage)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*number))
    }

    pub(super) fn fixed(&mut self, length: usize) -> Result<&'a [u8], ShortMessage> {
        let padded = length.checked_next_multiple_of(4).ok_or(ShortMessage)?;
        let (bytes, rest) = self.0.split_at_checked(padded).ok_or(ShortMessage)?;
        self.0 = rest;
        bytes.get(..length).ok_or(ShortMessage)
    }

    pub(super) fn string(&mut self) -> Result<String, ShortMessage> {
        let length = self.number()?;
        let bytes = self.fixed(usize::try_from(length).map_err(|_| ShortMessage)?)?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    pub(super) fn optional_string(&mut self) -> Result<Option<String>, ShortMessage> {
        match self.number()? {
            0 => Ok(None),
            _ => self.string().map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn strings_are_padded_to_four_bytes() {
        let bytes = XdrEncoder::default().number(7).string("abcde").some_string("x").fixed(&[9; 16]).0;
        assert_eq!(&bytes[..16], b"\0\0\0\x07\0\0\0\x05abcde\0\0\0");
        let mut reader = XdrDecoder(&bytes);
        assert_eq!((reader.number(), reader.string()), (Ok(7), Ok("abcde".to_owned())));
        assert_eq!((reader.optional_string(), reader.fixed(16)), (Ok(Some("x".to_owned())), Ok(&[9; 16][..])));
        assert_eq!(reader.number(), Err(ShortMessage));
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes: Vec<u8>) {
            let mut reader = XdrDecoder(&bytes);
            while reader.optional_string().is_ok() && !reader.0.is_empty() {}
        }
    }
}
