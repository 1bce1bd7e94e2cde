//! `ksmith run`: starts a program with mergeable memory and watches it until it ends.
//!
//! [`launch`] recognises the kind of program, decides how it opts in, and starts it. [`wait`] passes signals on
//! and reaps children. [`watch`] samples the job's processes from a thread of its own, into
//! [`ksmith_core::job::Accounting`]. [`fold`] folds them from another thread. [`guided`] reads the progress of
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
pub use fold::{FoldReport, JobFoldSettings, JobFolder};
pub use guided::Followed;
pub use launch::{Launch, LaunchError, Plan, Started, library, support};
pub use report::{JobReport, ProcessReport};
pub use wait::{Ended, Signals, block_signals, wait};
pub use watch::{Notice, Outcome, Watch, WatchError};
