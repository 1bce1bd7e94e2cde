//! The state of the sketch file that a daemon keeps.

use serde::{Deserialize, Serialize};

/// The state of the sketch file in a daemon's status.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SketchStatus {
    /// The path of the file.
    pub path: String,
    /// Bytes of the file as it was last written.
    pub bytes: u64,
    /// Guests with a sketch.
    pub guests: u64,
    /// Guests that are not in the file: not read yet, or they can't be read.
    pub missing: u64,
    /// Files that this daemon wrote.
    pub written: u64,
    /// CPU time that reading and writing took, in seconds.
    pub cpu_seconds: f64,
    /// Memory of all sketches.
    pub memory_bytes: u64,
    /// The reason why no file is written now, in a sentence.
    pub problem: Option<String>,
}
