//! The web server of ksmith: figures as a page, as JSON and as metrics, from an unprivileged process.
//!
//! The daemon opens no network socket. This process polls it through the read-only socket ([`FigureSource`]), and answers GET
//! requests. [`api`] has the routes, [`guard`] rejects disallowed requests, and [`connections`] bounds the cost of
//! clients. [`poller`] polls the daemon at most once a second for all clients, and only while there are clients.
//! [`metrics`] renders the table of figures as OpenMetrics; [`peers`] polls other hosts.

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

pub use history::{HistoryBackend, HistoryError, HistoryQuery};
pub use options::{ClientLimits, ServeOptions};
pub use peers::PeerUrl;
pub use server::{ServeError, run};
pub use source::{FigureSource, ModelRenderer, SourceUnavailable};
