//! Errors of the undo store.

use std::io;
use std::path::PathBuf;

/// An error of the undo store.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The directory is missing and can't be created, or others can write to it.
    #[error("{path} can't be used as the undo store: {source}", path = .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The file can't be read.
    #[error("can't read the undo store {path}: {source}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The file can't be written or removed.
    #[error("can't write the undo store {path}: {source}; nothing was changed", path = .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The list of switched-off guests could not be opened when the daemon started.
    #[error("the list of switched-off guests could not be read when the daemon started: restart it")]
    NoList,
    /// The file is not a valid undo store. It stays until the operator has looked at it.
    #[error("the undo store {path} is damaged ({why}), so what it said can't be restored and no ksmith starts: \
             compare it with /sys/kernel/mm/ksm and correct what differs; give guests the memory that they lack \
             (restart them, or use virsh setmem, QMP's balloon, mconsole's config mem=+SIZE, a cgroup's \
             memory.high); then discard the store with `ksmith restore --discard`",
            path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}
