//! The outcome of reading one thing from the kernel: a value, or one of three distinct reasons for not having it.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The outcome of reading one kernel file or one field of it.
///
/// A file that a kernel lacks is [`Absent`](Reading::Absent): never 0, never an error. A file that we may not
/// read is [`Denied`](Reading::Denied), and text that does not parse is [`Malformed`](Reading::Malformed):
/// both are faults, and both degrade one source, never the whole sample.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reading<T> {
    /// The kernel gave a value.
    Value(T),
    /// This kernel does not have it (or the process it belongs to is gone).
    #[default]
    Absent,
    /// The kernel has it and refuses to show it.
    Denied,
    /// The kernel's text is not what its documentation promises.
    Malformed(Malformed),
}

/// The error of text that did not parse: its line, the text found, and the expected one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("line {line}: expected {expected}, found {found:?}")]
pub struct Malformed {
    /// 1-based line in the file.
    pub line: u32,
    /// The text that the format promises there.
    pub expected: Cow<'static, str>,
    /// The text found there, cut to a length that is fit for a log line.
    pub found: String,
}

impl Malformed {
    /// Longest piece of foreign text that is kept, in characters.
    const FOUND_MAX: usize = 60;

    /// Records that `found` stood on 1-based `line` where `expected` should have.
    pub fn new(line: usize, expected: &'static str, found: &str) -> Self {
        Self {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            expected: Cow::Borrowed(expected),
            found: found.chars().take(Self::FOUND_MAX).collect(),
        }
    }
}

impl<T> Reading<T> {
    /// Returns the value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Applies `f` to the value and keeps any other outcome.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        self.and_then(|value| Ok(f(value)))
    }

    /// Applies a parser to the value; its failure becomes [`Reading::Malformed`].
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Result<U, Malformed>) -> Reading<U> {
        match self {
            Self::Value(value) => f(value).into(),
            Self::Absent => Reading::Absent,
            Self::Denied => Reading::Denied,
            Self::Malformed(why) => Reading::Malformed(why),
        }
    }

    /// Returns the same outcome with the value borrowed.
    pub fn as_ref(&self) -> Reading<&T> {
        match self {
            Self::Value(value) => Reading::Value(value),
            Self::Absent => Reading::Absent,
            Self::Denied => Reading::Denied,
            Self::Malformed(why) => Reading::Malformed(why.clone()),
        }
    }
}

impl<T: Copy> Reading<T> {
    /// Returns the value by copy, if there is one.
    pub fn get(&self) -> Option<T> {
        self.value().copied()
    }
}

impl<T> From<Result<T, Malformed>> for Reading<T> {
    fn from(result: Result<T, Malformed>) -> Self {
        match result {
            Ok(value) => Self::Value(value),
            Err(why) => Self::Malformed(why),
        }
    }
}

/// Formats the value, `-` where this kernel has none, or the fault in words.
impl<T: fmt::Display> fmt::Display for Reading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::Absent => f.pad("-"),
            Self::Denied => f.pad("denied"),
            Self::Malformed(why) => write!(f, "malformed ({why})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_parser_makes_a_value_malformed_and_leaves_absent_alone() {
        let fail = |_: u64| Err::<u64, _>(Malformed::new(3, "a number", "x"));
        assert!(matches!(Reading::Value(1).and_then(fail), Reading::Malformed(m) if m.line == 3));
        assert_eq!(Reading::Absent.and_then(fail), Reading::Absent);
    }

    #[test]
    fn foreign_text_is_cut() {
        let long = "ä".repeat(10_000);
        assert_eq!(Malformed::new(1, "a number", &long).found.chars().count(), 60);
    }
}
