//! Estimates of what KSM would save here, from reading memory: without turning KSM on and without disturbing a process.
//!
//! [`crate::memory`] chooses processes and reads their memory. One of [`exact`], [`sketch`] and [`sample`] decides how
//! much to read and to remember, and [`run`] composes the [`report`]. The estimators are in [`ksmith_core::sketch`];
//! their method and cost are in `docs/internals/estimate.md`. [`images`] reads memory from files.

mod exact;
mod images;
mod job;
mod places;
mod report;
mod run;
mod running;
mod sample;
mod sketch;
mod sums;

pub use crate::memory::error::{EstimateError, UnreadableProcess};
pub use crate::memory::target::{GuestGrouping, TargetSelection};
#[cfg(fuzzing)]
pub use images::fuzzing as image_fuzzing;
pub use images::{ImageError, ImageOptions, estimate_images};
pub use report::{
    EstimateReport, GuestReport, HugePagesReport, JobAdvice, MatrixReport, RunningReport, SkippedReport,
};
pub use run::{EstimateMode, EstimateOptions, estimate};
