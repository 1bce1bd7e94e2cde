//! What KSM would save here, from reading memory as it is: without turning KSM on and without disturbing anybody.
//!
//! [`target`] chooses processes, [`process`] sorts their memory into what KSM could merge and what not,
//! [`scan`] reads it, one of [`exact`], [`sketch`] and [`sample`] decides how much to read and to remember, and
//! [`run`] puts the [`report`] together. The estimators are in [`ksmith_core::sketch`]; how they work and what
//! they cost is in `docs/estimate.md`.

pub(crate) mod entries;
mod error;
mod exact;
pub(crate) mod frames;
mod heat_map;
pub(crate) mod pace;
pub(crate) mod pinned;
mod places;
pub(crate) mod process;
mod progress;
mod report;
mod run;
pub(crate) mod salt;
mod sample;
pub(crate) mod scan;
mod sketch;
pub(crate) mod target;
pub(crate) mod work;

pub use error::{EstimateError, Unreadable};
pub use heat_map::{HeatMapError, write as write_heat_map};
pub use report::{GuestReport, MatrixReport, Report, SkippedReport};
pub use run::{Mode, Options, estimate};
pub use target::{By, Selection};
