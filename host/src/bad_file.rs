//! Errors of files that an operator writes.

use std::io;
use std::path::PathBuf;

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum BadFile {
    /// The file can't be read.
    #[error("can't read the {what} {}: {source}", path.display())]
    Unreadable {
        /// Kind of the file, such as `configuration`.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The content is not valid. The message has line and column.
    #[error("{}: {message}", path.display())]
    Meaningless {
        /// Path of the file.
        path: PathBuf,
        /// The fault, with line and column.
        message: String,
    },
}
