//! One job, started by `ksmith run`: whether its program can opt in, when its start is over, and its books.

mod books;
mod giant;
mod method;
mod program;
mod settled;

pub use books::{Books, JobTotals, Moment, ProcessTotals, Seen};
pub use giant::{JUMPS_OVER_HOLES, is_sparse_giant, names_a_sanitizer};
pub use method::{Asked, Method, Ranges, Refusal, Support, choose};
pub use program::Program;
pub use settled::Settled;
