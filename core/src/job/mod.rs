//! Programs that opt in. One job, started by `ksmith run`: whether its program can, when its start is over, and its
//! books. Users who ask the daemon: what they may use, and which of their memory is worth merging.

mod allowance;
mod books;
mod giant;
mod method;
mod program;
mod settled;
mod worth;

pub use allowance::Allowance;
pub use books::{Books, JobTotals, Moment, ProcessTotals, Seen, saved_bytes};
pub use giant::{JUMPS_OVER_HOLES, is_sparse_giant, names_a_sanitizer};
pub use method::{Asked, Method, Ranges, Refusal, Support, choose};
pub use program::Program;
pub use settled::Settled;
pub use worth::{Census, Stretch, Tally, worth};
