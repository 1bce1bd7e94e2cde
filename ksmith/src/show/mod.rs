//! Models as text for people and as JSON for programs, with the JSON's schema.

pub mod balance;
pub mod demo;
pub mod estimate;
pub mod guests;
pub mod history;
mod lab;
pub mod schemas;
pub mod status;
mod table;

pub use table::{Table, cell};

#[cfg(test)]
mod tests;
