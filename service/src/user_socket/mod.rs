//! The daemon's socket for ordinary users: a program may request a scan, its savings, and the ranges of its own
//! memory that are worth merging. Root's requests go over the control socket, which can do more.
//!
//! The protocol is one ASCII line each way, so that a C library speaks it without a parser: see [`protocol`].
//! [`crate::socket`] accepts connections within limits. [`server`] identifies its peers by the kernel's credentials
//! (`SO_PEERCRED`), answers from threads of its own and passes only scans to the daemon, where [`scans`] collects them.
//! Every user has a budget ([`ksmith_core::job::UserAllowance`]); [`ksmith_host::accountable`] finds the user with the
//! budget that a peer uses.

mod budget;
mod client;
mod config;
mod peer;
pub mod protocol;
mod ranges;
mod reading_thread;
mod scans;
mod server;

pub use budget::UserBudgets;
pub use client::{UserClient, UserError};
pub use config::{OptinConfig, PassLimit};
pub use peer::UserPeer;
pub use protocol::RefusalKind;
pub use ranges::{RangesAdvice, RangesAdviser, RangesError};
pub use scans::{Done, ScanQueue, UserScan, UserScans};
pub use server::serve;
