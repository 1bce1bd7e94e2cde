//! `ksmith run`: starts a program with mergeable memory and watches it until it ends.
//!
//! [`launch`] recognises the kind of program, decides how it opts in, and starts it. [`wait`] passes signals on
//! and reaps children. [`watch`] samples the job's processes from a thread of its own, into
//! [`ksmith_core::job::JobAccounting`]. [`fold`] folds them from another thread. [`guided`] reads the progress of
//! libksmith, [`offers`] what a scan would merge, [`copies`] measures the cost of a broken page, and [`report`] presents the result.
//! Jobs that a launcher starts many of are told apart by [`rank`], and have one report by [`ranks`]; [`presence`] tells the last.

mod copies;
mod fold;
mod guided;
mod launch;
mod offers;
mod presence;
mod rank;
mod ranks;
mod report;
mod tree;
mod wait;
mod watch;

pub use copies::nanoseconds_per_copy;
pub use fold::{JobFoldReport, JobFoldSettings, JobFolder};
pub use guided::GuidedProgress;
pub use launch::{LaunchError, LaunchPlan, LaunchRequest, StartedProgram, library, support};
pub use offers::MemoryOffers;
pub use presence::RankPresence;
pub use rank::{JobRank, is_first_of_node};
pub use ranks::{RankFigures, RankReport, RankedReport, parts_directory, prepare_part};
pub use report::{JobReport, ProcessReport};
pub use wait::{BlockedSignals, ProgramEnd, block_signals, wait};
pub use watch::{JobNotice, JobWatch, WatchError, WatchOutcome};
