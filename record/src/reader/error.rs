//! Why a history can't be read.

use ksmith_core::guest::NotOne;
use std::path::{Path, PathBuf};

use crate::fault::is_damage;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such file, or it may not be read.
    #[error("there is no history to read at {path}: {why}")]
    Absent {
        /// The file.
        path: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
    /// The file is no history of ksmith, or of a later one.
    #[error("{path} is no history that this ksmith can read: {why}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        why: String,
    },
    /// The file is damaged.
    #[error("{path} is damaged ({why}); a running daemon sets it aside and begins anew")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        why: String,
    },
    /// The question names a figure that is not recorded.
    #[error("the history has no figure {name}; it has {known}")]
    NoColumn {
        /// The name.
        name: String,
        /// All names.
        known: String,
    },
    /// The question names no guest that was recorded, or several.
    #[error("the history: {0}")]
    NoGuest(#[from] NotOne),
    /// SQLite refuses an operation.
    #[error("{path}: {source}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        source: rusqlite::Error,
    },
}

/// The error for what SQLite said of the file.
pub(super) fn fault(path: &Path, error: rusqlite::Error) -> ReadError {
    let path = path.to_owned();
    if is_damage(&error) {
        return ReadError::Damaged { path, why: error.to_string() };
    }
    ReadError::Sqlite { path, source: error }
}
