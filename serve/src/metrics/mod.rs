//! Metrics: the table of figures as OpenMetrics.
//!
//! Each row of the table with a number is a family: `name` derives its name, unit and divisor from the row, `families`
//! reads its values from the models, and `encode` writes them. A new row is a new metric without further code.

mod encode;
mod families;
mod name;
mod prometheus;

use ksmith_core::model::{BalanceReport, GuestsReport, StatusReport};

pub use encode::MetricsFormat;

/// Default limit of guests with metrics of their own.
pub const MOST_GUESTS: usize = 1000;

/// A snapshot of the host's figures.
#[derive(Debug, Clone, Copy)]
pub struct MetricsSnapshot<'a> {
    /// True if a daemon answers.
    pub is_up: bool,
    /// The host's KSM.
    pub status: Option<&'a StatusReport>,
    /// All guests of the host.
    pub guests: Option<&'a GuestsReport>,
    /// The balance plan.
    pub balance: Option<&'a BalanceReport>,
    /// Limit of guests with metrics of their own. Those with the largest savings are kept.
    pub most_guests: usize,
}

/// Encodes the figures as metrics text.
pub fn text(figures: &MetricsSnapshot<'_>, format: MetricsFormat) -> String {
    encode::text(families::all(figures), format)
}

#[cfg(test)]
mod tests;
