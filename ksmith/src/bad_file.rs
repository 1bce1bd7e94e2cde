//! What may be wrong with a file that an operator has written.

use std::io;
use std::path::PathBuf;

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum BadFile {
    /// It can't be read.
    #[error("can't read the {what} {}: {source}", path.display())]
    Unreadable {
        /// What it would be: `configuration`.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It says something that has no meaning. The message has line and column.
    #[error("{}: {message}", path.display())]
    Meaningless {
        /// Which file.
        path: PathBuf,
        /// What and where.
        message: String,
    },
}
