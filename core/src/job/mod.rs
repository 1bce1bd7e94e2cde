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

pub use accounting::{JobAccounting, JobMoment, JobProcess, JobTotals, ProcessTotals, saved_bytes};
pub use allowance::UserAllowance;
pub use fold_schedule::{FoldSchedule, FoldWhen, UnknownFoldWhen};
pub use giant::{JUMPS_OVER_HOLES, is_sparse_giant, names_a_sanitizer};
pub use method::{MarkedRanges, OptInMethod, OptInRefusal, OptInRequest, OptInSupport, choose_method};
pub use program::ProgramKind;
pub use settled::StartDetector;
pub use window::UserWindow;
pub use worth::{ContentCensus, MemoryStretch, RangeTally, choose_stretches};
