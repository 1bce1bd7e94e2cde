//! Atomic replacement of a file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::disk::{self, DiskOperation};

/// Durability of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteDurability {
    /// On disk before the call returns, with errors of the disk reported.
    Synced,
    /// In the kernel's page cache, which outlives the process.
    Cached,
}

/// Returns the path of the temporary file that replaces a file.
pub(super) fn new_of(path: &Path) -> PathBuf {
    path.with_extension("json.new")
}

/// Replaces the file at `path` with `text`, whole or not at all.
///
/// # Errors
/// The new file can't be written, synced or renamed. The old one stays.
pub(crate) fn replace(path: &Path, text: &[u8], durable: WriteDurability) -> io::Result<()> {
    let new = new_of(path);
    let write = || {
        let mut file = disk::run(DiskOperation::Create, || {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&new)
        })?;
        disk::write_all(&mut file, text)?;
        if durable == WriteDurability::Synced {
            disk::run(DiskOperation::Sync, || file.sync_all())?;
        }
        disk::run(DiskOperation::Rename, || fs::rename(&new, path))
    };
    write().inspect_err(|_| {
        // Best effort: the error above is the one to report.
        let _ = disk::run(DiskOperation::Remove, || fs::remove_file(&new));
    })?;
    match path.parent().filter(|_| durable == WriteDurability::Synced) {
        Some(directory) => disk::run(DiskOperation::SyncDirectory, || File::open(directory)?.sync_all()),
        None => Ok(()),
    }
}
