//! The requests to the reader and its replies.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fold::{FoldEntry, ZeroReading};
use crate::sample::{MergeReading, ProcessId};

/// The entries of an account of freed zeros and split huge pages.
pub type LedgerEntries = BTreeMap<ProcessId, FoldEntry>;

/// A request to the reader.
#[derive(Debug, Clone, PartialEq)]
pub struct MergeRequest {
    /// The processes, the most urgent one first.
    pub processes: Vec<ProcessId>,
    /// The time since boot.
    pub at: Duration,
    /// Seconds of CPU time after which no further process is read.
    pub cpu_seconds: f64,
    /// Bytes in a page.
    pub page_size: u64,
    /// The account to write to its file. `None`: it has hardly changed since the last time.
    pub account: Option<LedgerEntries>,
}

/// The outcome of reading one process.
#[derive(Debug)]
pub struct ReadProcess {
    /// Its PID and start.
    pub id: ProcessId,
    /// Time since boot.
    pub at: Duration,
    /// `None`: it can't be read, or the kernel lacks the figures.
    pub reading: Option<MergeReading>,
    /// Its memory that maps the zero page, and its huge pages. `None` alike.
    pub zeros: Option<ZeroReading>,
    /// The PID of its parent, if both have one memory map. Then nothing was read: the parent's reading has it all.
    pub twin_of: Option<u32>,
}

/// The processes that were read, with the CPU time that it took.
#[derive(Debug)]
pub struct MergeReply {
    /// The processes.
    pub processes: Vec<ReadProcess>,
    /// The CPU time, in seconds.
    pub cpu_seconds: f64,
}
