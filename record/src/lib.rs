//! The history: the daemon's samples and decisions, in a SQLite file.
//!
//! [`HistoryStore`] writes it and keeps it within its bounds, [`HistoryReader`] runs queries over a time range. The columns come from
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

pub use bounds::HistoryBounds;
pub use fault::{StoreError, StoreFault};
pub use moment::{
    DecisionMade, EventKind, FOLD_POLICY, GuestFigures, GuestIdentity, HistoryEvent, HistorySnapshot, PRUNE_POLICY,
};
pub use query::{ReportQuery, ReportResolution};
pub use reader::{
    DecisionRow, EventRow, GuestLife, HistoryReader, HistoryReport, LabelSeries, ReadError, SavingGuest,
};
pub use schema::reference;
pub use store::{HistoryStore, OpenedStore};
pub use summary::{DecisionEpisode, HistorySummary, episodes, summary};
pub use tier::HistoryTier;
