//! The web server of ksmith: figures as a page, as JSON and as metrics, from a process without privilege.
//!
//! The daemon opens no network socket. This process asks it at the read-only socket ([`Source`]), and answers GET requests:
//! [`api`] has the routes, [`guard`] refuses what may not be asked, [`connections`] bounds what peers can cost. The daemon
//! is asked at most once a second however many clients there are ([`poller`]), and only while there are clients.
//! [`metrics`] makes OpenMetrics of the table of figures; [`peers`] asks other hosts.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub mod assets;
pub mod connections;
pub mod guard;
pub mod history;
pub mod listen;
pub mod metrics;
pub mod options;
pub mod peers;
pub mod poller;
pub mod server;
pub mod source;
pub mod stream;

pub use history::{History, HistoryError, HistoryQuery};
pub use options::{Limits, Options};
pub use peers::PeerUrl;
pub use server::{ServeError, run};
pub use source::{Render, Source, Unavailable};
