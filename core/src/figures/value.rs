//! The value of a figure.

use std::cmp::Ordering;

use serde::Serialize;

use crate::field::FigureType;
use crate::kernel;

/// The value of a figure at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum FigureScalar {
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
pub trait FigureValue: Sized {
    /// The type of the figure.
    const HOLDS: FigureType;
    /// Converts it to the value of the figure.
    fn value(self) -> FigureScalar;
}

macro_rules! held {
    ($($type:ty => $variant:ident),*) => {$(
        impl FigureValue for $type {
            const HOLDS: FigureType = FigureType::$variant;
            fn value(self) -> FigureScalar {
                FigureScalar::$variant(self)
            }
        }
    )*};
}

held!(u64 => Unsigned, i64 => Signed, f64 => Real, bool => Flag, String => Text);

impl<T: FigureValue> From<Option<T>> for FigureScalar {
    fn from(held: Option<T>) -> Self {
        held.map_or(Self::Unknown, FigureValue::value)
    }
}

impl From<kernel::KsmValue> for FigureScalar {
    fn from(value: kernel::KsmValue) -> Self {
        match value {
            kernel::KsmValue::Unsigned(value) => Self::Unsigned(value),
            kernel::KsmValue::Signed(value) => Self::Signed(value),
            kernel::KsmValue::Advisor(mode) => Self::Text(mode.word().to_owned()),
        }
    }
}

impl FigureScalar {
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
            FigureScalar::Unknown,
            FigureScalar::Unsigned(1),
            FigureScalar::Unsigned(3),
            FigureScalar::Unknown,
            FigureScalar::Unsigned(u64::MAX),
            FigureScalar::Unsigned(u64::MAX - 1),
        ];
        values.sort_by(FigureScalar::order);
        let numbers = [u64::MAX, u64::MAX - 1, 3, 1].map(FigureScalar::Unsigned);
        assert_eq!(values[..4], numbers);
        assert_eq!(values[4..], [FigureScalar::Unknown, FigureScalar::Unknown]);
        let mut texts =
            [FigureScalar::Text("b".to_owned()), FigureScalar::Unknown, FigureScalar::Text("a".to_owned())];
        texts.sort_by(FigureScalar::order);
        assert_eq!(
            texts,
            [FigureScalar::Text("a".to_owned()), FigureScalar::Text("b".to_owned()), FigureScalar::Unknown]
        );
    }

    #[test]
    fn a_sum_with_an_unknown_part_is_unknown() {
        assert_eq!(FigureScalar::Signed(-1).plus(&FigureScalar::Signed(3)), FigureScalar::Signed(2));
        assert_eq!(
            FigureScalar::Unsigned(u64::MAX).plus(&FigureScalar::Unsigned(3)),
            FigureScalar::Unsigned(u64::MAX)
        );
        assert_eq!(FigureScalar::Unknown.plus(&FigureScalar::Unsigned(3)), FigureScalar::Unknown);
    }
}
