//! Faults of the store, by what is to be done about them.

use std::io;
use std::path::PathBuf;

use rusqlite::ffi::ErrorCode;

/// What is to be done about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The file is damaged, or no history: it is set aside, and a new one is begun.
    Corrupt,
    /// The disk is full, read-only or fails, or the file is locked: it is tried again later.
    Passing,
}

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite refuses an operation.
    #[error("{path}: {source}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        source: rusqlite::Error,
    },
    /// The file or its directory can't be made, renamed or looked at.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's words.
        source: io::Error,
    },
    /// The file is one of another program, or of a later ksmith.
    #[error("{path} {what}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is, as the rest of a sentence.
        what: String,
    },
    /// A reader keeps the write-ahead log from being taken over, and it is as large as it may be.
    #[error("{path}: a program that reads it keeps its write-ahead log at {bytes} bytes; end that program")]
    HeldByReader {
        /// The file.
        path: PathBuf,
        /// The size of the log.
        bytes: u64,
    },
}

impl StoreError {
    /// What is to be done about it.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Sqlite { source, .. } if is_damage(source) => Fault::Corrupt,
            Self::Sqlite { .. } | Self::File { .. } | Self::Foreign { .. } | Self::HeldByReader { .. } => {
                Fault::Passing
            }
        }
    }
}

/// Whether SQLite says that the file's contents are wrong.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
