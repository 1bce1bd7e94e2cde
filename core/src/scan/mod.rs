//! Scans: a job is carried out by ksmd, within the CPU that it may use, and its outcome is reported.
//!
//! A [`ScanJob`] says which pages are visited, how often, and when the scan may stop. The [`KsmScanner`] turns it into
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
mod marginal;
mod pass_end;
mod progress;
mod scanner;
mod share;

pub use job::{ScanCoverage, ScanJob, ScanOutcome, ScanReport, ScanStatus};
pub use ksmd::KsmdState;
pub use progress::ScanProgress;
pub use scanner::{KsmScanner, ScanSettings};
