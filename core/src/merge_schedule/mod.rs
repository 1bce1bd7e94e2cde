//! Readings of what is really merged in each process: the choice of the next, within a budget of CPU time, and the newest
//! of each. The live reader of page tables and the simulated one both keep to it.

mod message;
mod schedule;

pub use message::{LedgerEntries, MergeReply, MergeRequest, ReadProcess};
pub use schedule::MergeSchedule;
