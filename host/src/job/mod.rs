//! `ksmith run`: starts a program with mergeable memory and watches it until it ends.
//!
//! [`launch`] recognises the kind of program, decides how it opts in, and starts it. [`wait`] passes signals on
//! and reaps children. [`watch`] samples the job's processes from a thread of its own, into
//! [`ksmith_core::job::JobAccounting`]. [`fold`] folds them from another thread. [`guided`] reads the progress of
//! libksmith, [`copies`] measures the cost of a broken page, and [`report`] presents the result.

mod copies;
mod fold;
mod guided;
mod launch;
mod report;
mod tree;
mod wait;
mod watch;

pub use copies::nanoseconds_per_copy;
pub use fold::{JobFoldReport, JobFoldSettings, JobFolder};
pub use guided::GuidedProgress;
pub use launch::{LaunchError, LaunchPlan, LaunchRequest, StartedProgram, library, support};
pub use report::{JobReport, ProcessReport};
pub use wait::{BlockedSignals, ProgramEnd, block_signals, wait};
pub use watch::{JobNotice, JobWatch, WatchError, WatchOutcome};
