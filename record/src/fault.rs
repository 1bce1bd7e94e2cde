//! Errors of the store, and their classes by remedy.

use std::io;
use std::path::PathBuf;

use rusqlite::ffi::ErrorCode;

/// The class of a store error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFault {
    /// The file is damaged, or no history. The remedy is to set it aside and to create a new one.
    Corrupt,
    /// The disk is full, read-only or failing, or the file is locked. The remedy is to retry later.
    Passing,
}

/// The error of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An SQLite operation failed.
    #[error("{path}: {source}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// The file or its directory can't be created, renamed or inspected.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file belongs to another program, or to a later ksmith.
    #[error("{path} {what}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Predicate of the error message, which describes the file.
        what: String,
    },
    /// A reader blocks the checkpoint of the write-ahead log, which has reached its size limit.
    #[error("{path}: a program that reads it keeps its write-ahead log at {bytes} bytes; end that program")]
    HeldByReader {
        /// The file.
        path: PathBuf,
        /// Size of the log.
        bytes: u64,
    },
}

impl StoreError {
    /// Returns the error's class.
    pub fn fault(&self) -> StoreFault {
        match self {
            Self::Sqlite { source, .. } if is_damage(source) => StoreFault::Corrupt,
            Self::Sqlite { .. } | Self::File { .. } | Self::Foreign { .. } | Self::HeldByReader { .. } => {
                StoreFault::Passing
            }
        }
    }
}

/// Returns true if SQLite reports corrupt contents.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
