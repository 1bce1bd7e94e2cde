//! The history: the daemon's samples and decisions, in a SQLite file.
//!
//! [`Store`] writes it and keeps it within its bounds, [`Reader`] runs queries over a time range. The columns come from
//! the one table of figures ([`columns`]), so that a new figure is recorded from the next start on.
//!
//! Times are whole milliseconds since 1970 (UTC) by the host's wall clock. The file has three tiers: raw samples, one
//! row for each minute, and one for each hour.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod bounds;
pub mod columns;
mod fault;
mod moment;
mod owner;
mod query;
mod reader;
mod rollup;
mod schema;
mod space;
mod store;
mod summary;
mod tier;
pub mod times;

pub use bounds::Bounds;
pub use fault::{Fault, StoreError};
pub use moment::{DecisionMade, Event, EventKind, FOLD_POLICY, GuestFigures, Life, Moment};
pub use query::{Query, Resolution};
pub use reader::{DecisionRow, EventRow, GuestLife, HistoryReport, ReadError, Reader, Saver};
pub use schema::reference;
pub use store::{Opened, Store};
pub use summary::{Episode, Summary, episodes, summary};
pub use tier::Tier;
