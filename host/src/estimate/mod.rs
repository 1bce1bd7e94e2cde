//! What KSM would save here, from reading memory as it is: without turning KSM on and without disturbing a process.
//!
//! [`crate::memory`] chooses processes and reads their memory, one of [`exact`], [`sketch`] and [`sample`] decides how
//! much to read and to remember, and [`run`] puts the [`report`] together. The estimators are in [`ksmith_core::sketch`]; how they work and what
//! they cost is in `docs/how-to/estimate.md`.

mod exact;
mod job;
mod places;
mod report;
mod run;
mod sample;
mod sketch;
mod sums;

pub use crate::memory::error::{EstimateError, Unreadable};
pub use crate::memory::target::{By, Selection};
pub use report::{GuestReport, MatrixReport, Report, SkippedReport};
pub use run::{Mode, Options, estimate};
