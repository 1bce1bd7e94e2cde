//! The test that one figure of a row has to pass.

use std::cmp::Ordering;

use wildmatch::WildMatch;

use super::amount::ExactNumber;
use crate::figures::FigureScalar;

/// A test of a figure: the value to compare it with.
#[derive(Debug)]
pub enum FigureTest {
    /// A number, by the orderings that pass.
    Number(&'static [Ordering], ExactNumber),
    /// Text that is equal.
    Text(String),
    /// A pattern with `*` and `?`.
    Pattern(WildMatch),
    /// Yes or no.
    Flag(bool),
    /// The unknown value.
    Unknown,
    /// The opposite of a test.
    Not(Box<FigureTest>),
}

impl FigureTest {
    /// Returns true if the value passes.
    pub fn passes(&self, value: &FigureScalar) -> bool {
        match (self, value) {
            (Self::Not(test), value) => !test.passes(value),
            (Self::Unknown, value) => *value == FigureScalar::Unknown,
            (Self::Number(orderings, amount), value) => {
                ExactNumber::from_scalar(value).is_some_and(|value| orderings.contains(&value.cmp(amount)))
            }
            (Self::Text(text), FigureScalar::Text(value)) => text == value,
            (Self::Pattern(pattern), FigureScalar::Text(value)) => pattern.matches(value),
            (Self::Flag(flag), FigureScalar::Flag(value)) => flag == value,
            _ => false,
        }
    }
}
