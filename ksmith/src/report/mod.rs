//! The report of a stretch of the history: what was saved, by which guests, at what cost, and what each decision brought.
//!
//! [`Facts`] are gathered by the command. [`document()`] makes a [`Document`] of them, which becomes HTML or Markdown.

mod chart;
mod content;
mod document;

pub use chart::{Mark, saved_and_spent};
pub use content::{Facts, document};
pub use document::{Document, Part};

#[cfg(test)]
mod tests;
