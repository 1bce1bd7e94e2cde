//! Metrics: the table of figures as OpenMetrics.
//!
//! Each row of the table with a number is a family: `name` derives its name, unit and divisor from the row, `families`
//! reads its values from the models, and `encode` writes them. A new row is a new metric without further code.

mod encode;
mod families;
mod name;
mod prometheus;

use ksmith_core::model::{BalanceReport, GuestsReport, Status};

pub use encode::Format;

/// Guests with metrics of their own, where the operator does not say.
pub const MOST_GUESTS: usize = 1000;

/// What is known of the host at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Figures<'a> {
    /// Whether a daemon answers.
    pub is_up: bool,
    /// The host's KSM.
    pub status: Option<&'a Status>,
    /// All guests of the host.
    pub guests: Option<&'a GuestsReport>,
    /// The plan of balance.
    pub balance: Option<&'a BalanceReport>,
    /// Guests with metrics of their own at most: those that save most.
    pub most_guests: usize,
}

/// The metrics of the figures as text.
pub fn text(figures: &Figures<'_>, format: Format) -> String {
    encode::text(families::all(figures), format)
}

#[cfg(test)]
mod tests;
