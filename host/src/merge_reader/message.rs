//! The requests to the thread and its replies.

use std::time::Duration;

use ksmith_core::fold::ZeroReading;
use ksmith_core::sample::{MergeReading, ProcessId};

use super::ledger_file::LedgerEntries;

/// A request to the thread.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MergeRequest {
    /// The processes, the most urgent one first.
    pub(super) processes: Vec<ProcessId>,
    /// The time since boot.
    pub(super) at: Duration,
    /// Seconds of CPU time after which no further process is read.
    pub(super) cpu_seconds: f64,
    /// Bytes in a page.
    pub(super) page_size: u64,
    /// The account to write to its file. `None`: it has hardly changed since the last time.
    pub(super) account: Option<LedgerEntries>,
}

/// The outcome of reading one process.
#[derive(Debug)]
pub(super) struct ReadProcess {
    pub(super) id: ProcessId,
    /// Time since boot.
    pub(super) at: Duration,
    /// `None`: it can't be read, or the kernel lacks the figures.
    pub(super) reading: Option<MergeReading>,
    pub(super) zeros: Option<ZeroReading>,
    /// The PID of its parent, if both have one memory map. Then nothing was read: the parent's reading has it all.
    pub(super) twin_of: Option<u32>,
}

/// The processes that were read, with the CPU time that it took.
#[derive(Debug)]
pub(super) struct MergeReply {
    pub(super) processes: Vec<ReadProcess>,
    pub(super) cpu_seconds: f64,
}
