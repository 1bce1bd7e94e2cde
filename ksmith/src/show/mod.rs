//! Models as text for people and as JSON for programs, with the JSON's schema.

pub mod balance;
pub mod controllers;
pub mod demo;
pub mod estimate;
pub mod fold;
pub mod guests;
pub mod history;
pub mod orders;
pub mod overview;
pub mod paint;
pub mod plot;
pub mod schemas;
pub mod settings;
pub mod status;
mod table;
mod width;
pub mod wrap;

pub use table::{ALWAYS, ColumnSpan, TableColumn, TextTable, cell};
pub use width::{cut, width};

#[cfg(test)]
pub(crate) mod tests;
