//! The test that one figure of a row has to pass.

use std::cmp::Ordering;

use wildmatch::WildMatch;

use super::amount::Amount;
use crate::figures::Value;

/// A test of a figure: the value to compare it with.
#[derive(Debug)]
pub enum Test {
    /// A number, by the orderings that pass.
    Number(&'static [Ordering], Amount),
    /// Text that is equal.
    Text(String),
    /// A pattern with `*` and `?`.
    Pattern(WildMatch),
    /// Yes or no.
    Flag(bool),
    /// The unknown value.
    Unknown,
    /// The opposite of a test.
    Not(Box<Test>),
}

impl Test {
    /// Returns true if the value passes.
    pub fn passes(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Not(test), value) => !test.passes(value),
            (Self::Unknown, value) => *value == Value::Unknown,
            (Self::Number(orderings, amount), value) => {
                Amount::of(value).is_some_and(|value| orderings.contains(&value.cmp(amount)))
            }
            (Self::Text(text), Value::Text(value)) => text == value,
            (Self::Pattern(pattern), Value::Text(value)) => pattern.matches(value),
            (Self::Flag(flag), Value::Flag(value)) => flag == value,
            _ => false,
        }
    }
}
