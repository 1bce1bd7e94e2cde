//! A program that is started with its memory mergeable, watched until it ends: `ksmith run`.
//!
//! [`launch`] finds out what kind of program it is and how it can opt in, and starts it; [`wait`] passes signals on
//! and collects whatever ends; [`watch`] looks at the job's processes from a thread of its own and keeps the books
//! ([`ksmith_core::job::Books`]); [`guided`] sees how far libksmith is;
//! [`copies`] measures what a broken page costs; [`report`] says what came of it.

mod copies;
mod guided;
mod launch;
mod report;
mod tree;
mod wait;
mod watch;

pub use copies::nanoseconds_per_copy;
pub use guided::Followed;
pub use launch::{Launch, LaunchError, Plan, Started, library, support};
pub use report::{JobReport, ProcessReport};
pub use wait::{Ended, Signals, block_signals, wait};
pub use watch::{Notice, Outcome, Watch, WatchError, ksm_now};
