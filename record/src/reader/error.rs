//! Errors of reading the history.

use ksmith_core::guest::FindGuestError;
use std::path::{Path, PathBuf};

use crate::fault::is_damage;

/// The error of a query, or of opening the history.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is missing or unreadable.
    #[error("there is no history to read at {path}: {why}")]
    Absent {
        /// The file.
        path: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
    /// The file is no history of ksmith, or was written by a later version.
    #[error("{path} is not a history that this ksmith can read: {why}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The writer of the file.
        why: String,
    },
    /// The file is damaged.
    #[error("{path} is damaged ({why}); a running daemon keeps a copy and begins a new one")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's message.
        why: String,
    },
    /// The query names a figure that is not recorded.
    #[error("the history has no figure {name}; it has {known}")]
    NoColumn {
        /// The name.
        name: String,
        /// The names of all recorded figures.
        known: String,
    },
    /// The query names a label that no guest had in that time.
    #[error("no guest had a label {name} in that time; labels then: {known}")]
    NoLabel {
        /// The name.
        name: String,
        /// The names of the labels that guests had then.
        known: String,
    },
    /// The query names an unknown guest, or an ambiguous one.
    #[error("the history: {0}")]
    NoGuest(#[from] FindGuestError),
    /// An SQLite operation failed.
    #[error("{path}: {source}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
}

/// Converts an SQLite error on the file.
pub(super) fn fault(path: &Path, error: rusqlite::Error) -> ReadError {
    let path = path.to_owned();
    if is_damage(&error) {
        return ReadError::Damaged { path, why: error.to_string() };
    }
    ReadError::Sqlite { path, source: error }
}
