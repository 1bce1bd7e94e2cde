//! Scans: a job is carried out by ksmd, within the CPU that it may use, and its outcome is reported.
//!
//! A [`ScanJob`] says which pages are visited, how often, and when the scan may stop. The [`Scanner`] turns it into
//! settings for ksmd: how large batches are, how long ksmd sleeps, when `smart_scan` is off, and where ksmd is stopped.
//! A policy only decides which job to start, or none.
//!
//! ```text
//! Sample, History, Limits -> Ksmd -> Scan::observe -> Report
//!                                 -> Scanner::settings -> Settings
//! ```

mod count;
mod duty;
mod job;
mod ksmd;
mod pass_end;
mod progress;
mod scanner;
mod share;

pub use job::{Coverage, Outcome, Report, ScanJob, Status};
pub use ksmd::Ksmd;
pub use progress::Scan;
pub use scanner::{Scanner, Settings};
