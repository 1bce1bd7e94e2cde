//! Programs that opt in to merging.
//!
//! Of a job that `ksmith run` started: how its program opts in, when its start is over, and its accounting. Of users
//! that ask the daemon: their allowances, and which of their memory is worth merging.

mod accounting;
mod allowance;
mod fold_schedule;
mod giant;
mod method;
mod program;
mod settled;
mod window;
mod worth;

pub use accounting::{Accounting, JobTotals, Moment, ProcessTotals, Seen, saved_bytes};
pub use allowance::Allowance;
pub use fold_schedule::{FoldSchedule, FoldWhen, UnknownFoldWhen};
pub use giant::{JUMPS_OVER_HOLES, is_sparse_giant, names_a_sanitizer};
pub use method::{Asked, Method, Ranges, Refusal, Support, choose};
pub use program::Program;
pub use settled::Settled;
pub use window::Window;
pub use worth::{Census, Stretch, Tally, worth};
