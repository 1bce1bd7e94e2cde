//! The daemon's socket for ordinary users: a program may ask for a scan, for what it saves, and which of its own
//! memory is worth merging. Root's requests go over the control socket, which can do more.
//!
//! The protocol is one ASCII line each way, so that a C library speaks it without a parser: see [`protocol`].

mod client;
pub mod protocol;

pub use client::{UserClient, UserError};
