//! `ksmith top` without its terminal: a state machine with its keys and its screens.
//!
//! [`TopApp`] takes [`TopEvent`]s and returns [`TopRequest`]es. It reads no clock, file or socket, so that every screen can be made
//! in a test. `cli/top.rs` is the shell around it: threads for figures and keys, and the terminal.

mod app;
mod decisions;
mod draw;
mod event;
mod figures;
mod keys;
mod layout;
mod list;
mod pages;
mod replay;
mod series;
mod sieve;

#[cfg(test)]
mod tests;

pub use app::TopApp;
pub use decisions::ShownDecision;
pub use event::{HostSnapshot, TopEvent, TopRequest};
pub use figures::HeaderFigures;
pub use replay::{PastFigures, PastMoment};
