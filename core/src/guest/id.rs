//! The one identity of a guest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::sample::ProcessId;

/// The identity of a guest from its start to its end: its first process. A guest that is started again is another
/// guest.
///
/// As text and in JSON it is `PID:START`, with the start in clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestId(ProcessId);

impl GuestId {
    /// Creates the identity of the guest that has this first process.
    pub const fn new(first: ProcessId) -> Self {
        Self(first)
    }

    /// Returns the guest's first process.
    pub const fn process(self) -> ProcessId {
        self.0
    }

    /// Returns the PID of the guest's first process.
    pub const fn pid(self) -> u32 {
        self.0.pid
    }
}

impl From<ProcessId> for GuestId {
    fn from(first: ProcessId) -> Self {
        Self(first)
    }
}

impl fmt::Display for GuestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.0.pid, self.0.start_ticks))
    }
}

/// The error for text that is no [`GuestId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the identity of a guest: it is written PID:START")]
pub struct BadGuestId(String);

impl FromStr for GuestId {
    type Err = BadGuestId;

    fn from_str(text: &str) -> Result<Self, BadGuestId> {
        let parse = || {
            let (pid, start) = text.split_once(':')?;
            Some(Self(ProcessId { pid: number(pid)?, start_ticks: number(start)? }))
        };
        parse().ok_or_else(|| BadGuestId(text.to_owned()))
    }
}

/// A number in digits alone: `+1` is none, so that every identity has one text.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl Serialize for GuestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GuestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_json_is_refused() {
        for text in [r#"{"pid":7,"start_ticks":70}"#, r#""uml:u1:7""#, "7"] {
            assert!(serde_json::from_str::<GuestId>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "7", ":", "7:", ":7", "+7:7", "7:7:7", "-1:7", "4294967296:1", "uml:7", " 7:7"] {
            assert_eq!(text.parse::<GuestId>(), Err(BadGuestId(text.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn text_and_json_keep_the_identity(pid: u32, start_ticks: u64) {
            let id = GuestId::new(ProcessId { pid, start_ticks });
            prop_assert_eq!(id.to_string().parse::<GuestId>().unwrap(), id);
            let text = serde_json::to_string(&id).unwrap();
            prop_assert_eq!(serde_json::from_str::<GuestId>(&text).unwrap(), id);
        }
    }
}
