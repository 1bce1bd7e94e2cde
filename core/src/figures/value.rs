//! The value of a figure.

use std::cmp::Ordering;

use serde::Serialize;

use crate::field::Type;
use crate::kernel;

/// The value of a figure at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// The value is unknown, or this kernel lacks the figure.
    Unknown,
    /// A whole number from 0.
    Unsigned(u64),
    /// A whole number.
    Signed(i64),
    /// A number that need not be whole.
    Real(f64),
    /// Yes or no.
    Flag(bool),
    /// Text of any length.
    Text(String),
}

/// A Rust type that a figure can hold.
pub trait Held: Sized {
    /// The type of the figure.
    const HOLDS: Type;
    /// Converts it to the value of the figure.
    fn value(self) -> Value;
}

macro_rules! held {
    ($($type:ty => $variant:ident),*) => {$(
        impl Held for $type {
            const HOLDS: Type = Type::$variant;
            fn value(self) -> Value {
                Value::$variant(self)
            }
        }
    )*};
}

held!(u64 => Unsigned, i64 => Signed, f64 => Real, bool => Flag, String => Text);

impl<T: Held> From<Option<T>> for Value {
    fn from(held: Option<T>) -> Self {
        held.map_or(Self::Unknown, Held::value)
    }
}

impl From<kernel::Value> for Value {
    fn from(value: kernel::Value) -> Self {
        match value {
            kernel::Value::Unsigned(value) => Self::Unsigned(value),
            kernel::Value::Signed(value) => Self::Signed(value),
            kernel::Value::Advisor(mode) => Self::Text(mode.word().to_owned()),
        }
    }
}

impl Value {
    /// Returns the number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Unsigned(value) => Some(*value as f64),
            Self::Signed(value) => Some(*value as f64),
            Self::Real(value) => Some(*value),
            Self::Flag(value) => Some(f64::from(u8::from(*value))),
            Self::Unknown | Self::Text(_) => None,
        }
    }

    /// Compares two values in the order of rows: large numbers first, text by the alphabet, unknown values last.
    pub fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Unsigned(a), Self::Unsigned(b)) => b.cmp(a),
            (Self::Signed(a), Self::Signed(b)) => b.cmp(a),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            _ => match (self.number(), other.number()) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => (*self == Self::Unknown).cmp(&(*other == Self::Unknown)),
            },
        }
    }

    /// Returns the sum of two values; unknown if one is unknown or no number.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Unsigned(a), Self::Unsigned(b)) => Self::Unsigned(a.saturating_add(*b)),
            (Self::Signed(a), Self::Signed(b)) => Self::Signed(a.saturating_add(*b)),
            (Self::Real(a), Self::Real(b)) => Self::Real(a + b),
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_come_first_and_unknown_values_last() {
        let mut values = [
            Value::Unknown,
            Value::Unsigned(1),
            Value::Unsigned(3),
            Value::Unknown,
            Value::Unsigned(u64::MAX),
            Value::Unsigned(u64::MAX - 1),
        ];
        values.sort_by(Value::order);
        let numbers = [u64::MAX, u64::MAX - 1, 3, 1].map(Value::Unsigned);
        assert_eq!(values[..4], numbers);
        assert_eq!(values[4..], [Value::Unknown, Value::Unknown]);
        let mut texts = [Value::Text("b".to_owned()), Value::Unknown, Value::Text("a".to_owned())];
        texts.sort_by(Value::order);
        assert_eq!(texts, [Value::Text("a".to_owned()), Value::Text("b".to_owned()), Value::Unknown]);
    }

    #[test]
    fn a_sum_with_an_unknown_part_is_unknown() {
        assert_eq!(Value::Signed(-1).plus(&Value::Signed(3)), Value::Signed(2));
        assert_eq!(Value::Unsigned(u64::MAX).plus(&Value::Unsigned(3)), Value::Unsigned(u64::MAX));
        assert_eq!(Value::Unknown.plus(&Value::Unsigned(3)), Value::Unknown);
    }
}
