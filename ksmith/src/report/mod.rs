//! The report of a stretch of the history: what was saved, by which guests, at what cost, and what each decision brought.
//!
//! [`ReportInputs`] are gathered by the command. [`document()`] makes a [`ReportDocument`] of them, which becomes HTML or Markdown.

mod chart;
mod content;
mod document;

pub use chart::{TimeMark, saved_and_spent};
pub use content::{ReportInputs, document};
pub use document::{DocumentPart, ReportDocument};

#[cfg(test)]
mod tests;
