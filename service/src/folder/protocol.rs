//! The requests to a fold worker and its replies: one line of JSON each.

use ksmith_core::fold::{FoldLook, FoldPass};
use ksmith_host::fold::CollapseTally;
use serde::{Deserialize, Serialize};

/// The action that is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FoldAction {
    /// Read the figures of a process and some of its huge pages.
    Look,
    /// Fold a process, then look at it.
    Fold,
    /// Put its split huge pages together.
    Collapse,
}

/// A request to a fold worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoldRequest {
    /// The PID of the process.
    pub pid: u32,
    /// The start of the process. One that has started at another time is another process.
    pub start_ticks: u64,
    /// The action that is requested.
    pub action: FoldAction,
    /// CPU time after which a pass ends, in seconds.
    pub cpu_limit_seconds: f64,
    /// Least part of a huge page that must be zeros to fold it, and to leave it in small pages, in thousandths.
    pub least_zero_permille: u32,
    /// Huge pages that a look reads.
    pub samples: usize,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FoldOutcome {
    /// The process was looked at.
    Looked(FoldLook),
    /// The process was folded, and looked at afterwards.
    Folded(FoldPass, FoldLook),
    /// Its huge pages were put together, all or for as long as the CPU time lasted.
    Collapsed(CollapseTally),
    /// The process has ended, or its PID is another's.
    Gone,
    /// The process does not let its memory be read.
    Silent,
    /// The process can't be read or folded, and why.
    Failed(String),
    /// This host can't fold any process, and why.
    Hindered(String),
}

/// A reply of a fold worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoldReply {
    /// CPU time that the worker has used since its start, in seconds.
    pub cpu_seconds: f64,
    /// The outcome of the request.
    pub outcome: FoldOutcome,
}
