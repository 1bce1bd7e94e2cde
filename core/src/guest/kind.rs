//! The kind of a guest.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The kind of a guest: a short word such as `qemu`, `container` or `process`.
///
/// The words are those of the registry of hypervisors. Any word is accepted, so that a new kind changes nothing here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestKind([u8; GuestKind::LONGEST]);

impl GuestKind {
    /// A process that is part of nothing larger.
    pub const PROCESS: Self = Self::new("process");

    /// The length of the longest word.
    pub const LONGEST: usize = 24;

    /// Creates the kind of this word, which is cut to [`LONGEST`](Self::LONGEST) bytes.
    pub const fn new(word: &str) -> Self {
        let (mut text, mut at) = ([0; Self::LONGEST], 0);
        while at < word.len() && at < Self::LONGEST {
            text[at] = word.as_bytes()[at];
            at += 1;
        }
        Self(text)
    }

    /// Returns the word, as in text and JSON.
    pub fn word(&self) -> &str {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(Self::LONGEST);
        str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

impl fmt::Display for GuestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl fmt::Debug for GuestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({})", self.word())
    }
}

impl Serialize for GuestKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for GuestKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let is_word = !word.is_empty()
            && word.len() <= Self::LONGEST
            && word.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit());
        match is_word {
            true => Ok(Self::new(&word)),
            false => Err(serde::de::Error::custom(format!("{word:?} is not a kind of guest"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_its_word_in_json() {
        let kind: GuestKind = serde_json::from_str("\"cloud-hypervisor\"").unwrap();
        assert_eq!((kind.word(), format!("{kind:>18}")), ("cloud-hypervisor", "  cloud-hypervisor".to_owned()));
        assert_eq!(serde_json::to_string(&kind).unwrap(), "\"cloud-hypervisor\"");
        assert_eq!(kind, GuestKind::new("cloud-hypervisor"));
        for bad in ["\"\"", "\"QEMU\"", "\"a b\"", "\"a-word-of-more-than-24-bytes\"", "7"] {
            assert!(serde_json::from_str::<GuestKind>(bad).is_err(), "{bad}");
        }
    }
}
