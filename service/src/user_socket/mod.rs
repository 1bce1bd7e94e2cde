//! The daemon's socket for ordinary users: a program may ask for a scan, for what it saves, and which of its own
//! memory is worth merging. Root's requests go over the control socket, which can do more.
//!
//! The protocol is one ASCII line each way, so that a C library speaks it without a parser: see [`protocol`].
//! [`crate::socket`] accepts connections within limits. [`server`] knows its peers by the kernel's word (`SO_PEERCRED`),
//! answers from threads of its own and passes only scans to the daemon, where [`scans`] collects them. Every user has a
//! budget ([`ksmith_core::job::Allowance`]); [`ksmith_host::accountable`] says which user's
//! budget a peer uses.

mod budget;
mod client;
mod config;
mod peer;
pub mod protocol;
mod ranges;
mod scans;
mod server;

pub use budget::Budget;
pub use client::{UserClient, UserError};
pub use config::{OptinConfig, PassLimit};
pub use peer::Peer;
pub use protocol::Refusal;
pub use ranges::{Advice, Adviser, RangesError};
pub use scans::{Done, ScanQueue, UserScan, UserScans};
pub use server::serve;
