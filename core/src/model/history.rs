//! The state of the history that a daemon records.

use serde::{Deserialize, Serialize};

/// The state of the history in a daemon's status.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HistoryStatus {
    /// The path of the file.
    pub path: String,
    /// Bytes of the file and its write-ahead log.
    pub bytes: u64,
    /// Moments that this daemon recorded.
    pub recorded: u64,
    /// Moments that this daemon lost: the disk refused them, or was too slow.
    pub lost: u64,
    /// The reason why nothing can be recorded now, in a sentence.
    pub problem: Option<String>,
}
