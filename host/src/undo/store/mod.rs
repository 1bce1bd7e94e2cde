//! The file of the undo store: format, versions, writing.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ksmith_core::sample::ProcessId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::boot::BootId;
use super::disk::{self, DiskOperation};
use super::entries::{EntryKind, UndoEntries};
use super::read::text_of;
use super::replace::{WriteDurability, new_of, replace};
use super::store_lock::StoreLock;
use super::{StateDir, UndoError, identity};

/// The version of the format.
const VERSION: u32 = 1;

/// The content of the file, readable by people.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreContent {
    version: u32,
    /// True if the settings' entries hold the values written last. The field is near the start, where
    /// [`UndoStore::mark_inexact`] can overwrite it.
    #[serde(default)]
    exact: Option<bool>,
    owner: ProcessId,
    boot_id: Option<String>,
    entries: Vec<Value>,
}

/// The undo store of a state directory.
///
/// The file is replaced atomically, so a reader sees one state or the other. Every change reads the file again under a
/// lock beside it, so several stores, also in several processes, change it in turn.
#[derive(Debug, Clone)]
pub struct UndoStore {
    directory: StateDir,
    boot: BootId,
}

impl UndoStore {
    /// Creates the store of a directory. Nothing is read or written yet.
    pub fn new(directory: &StateDir) -> Self {
        Self { directory: directory.clone(), boot: BootId(identity::boot_id()) }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.directory.undo()
    }

    /// Reads all entries. Entries from before the last boot are void.
    ///
    /// # Errors
    /// The file can't be read or is damaged. It stays as it is: a ksmith that changed settings without it would take a
    /// killed one's settings for the originals.
    pub fn read(&self) -> Result<UndoEntries, UndoError> {
        text_of(&self.path())?.map_or_else(|| Ok(UndoEntries::default()), |text| self.parse(&text))
    }

    /// Changes the entries. With none left the file is removed.
    ///
    /// # Errors
    /// The file can't be read or written. Then it is as it was.
    pub fn change(
        &self,
        change: impl FnOnce(&mut UndoEntries) -> Result<(), serde_json::Error>,
    ) -> Result<(), UndoError> {
        self.change_as(WriteDurability::Synced, change)
    }

    /// Changes the entries as [`change`](Self::change) does, with a choice of durability.
    pub(crate) fn change_as(
        &self,
        durable: WriteDurability,
        change: impl FnOnce(&mut UndoEntries) -> Result<(), serde_json::Error>,
    ) -> Result<(), UndoError> {
        let path = self.path();
        self.directory
            .make()
            .map_err(|source| UndoError::Directory { path: self.directory.path().to_owned(), source })?;
        let write = |source| UndoError::Write { path: path.clone(), source };
        let _turn = StoreLock::acquire(&self.directory).map_err(write)?;
        let mut entries = self.read()?;
        change(&mut entries).map_err(|why| write(why.into()))?;
        if entries.count(EntryKind::Setting) == 0 {
            entries.is_exact = true;
        }
        if entries.is_empty() {
            remove(&path).and_then(|()| remove(&new_of(&path))).map_err(write)
        } else {
            replace(&path, &self.text(entries).map_err(write)?, durable).map_err(write)
        }
    }

    /// Marks in place that the settings' entries do not hold the values written last, so that all originals are
    /// restored. This needs no space, so it works on a full disk.
    ///
    /// # Errors
    /// There is no file, or it can't be written.
    pub(crate) fn mark_inexact(&self) -> Result<(), UndoError> {
        let path = self.path();
        let write = |source| UndoError::Write { path: path.clone(), source };
        let _turn = StoreLock::acquire(&self.directory).map_err(write)?;
        let text = text_of(&path)?.unwrap_or_default();
        let (before, after) = (br#""exact": true"#, b"null");
        let Some(at) = text.windows(before.len()).position(|part| part == before) else {
            let is_done = self.parse(&text).is_ok_and(|entries| !entries.is_exact);
            return if is_done { Ok(()) } else { Err(write(io::ErrorKind::InvalidData.into())) };
        };
        let at = (at + before.len() - after.len()) as u64;
        disk::run(DiskOperation::Mark, || {
            let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(&path)?;
            file.write_all_at(after, at)
        })
        .map_err(write)
    }

    /// Discards the entries about KSM itself, or the whole file if it is damaged. Either is kept in a file beside the
    /// store, whose path is returned. In an undamaged file the entries about guests stay. The caller holds the [`KsmLock`](crate::perform_step::KsmLock).
    ///
    /// # Errors
    /// A file can't be moved or written.
    pub fn discard(&self) -> Result<Option<PathBuf>, UndoError> {
        match self.read() {
            Ok(entries) if EntryKind::OF_KSM.iter().all(|kind| entries.count(*kind) == 0) => Ok(None),
            Ok(entries) => {
                let aside = free_name(&self.path());
                let fail = |source| UndoError::Write { path: aside.clone(), source };
                replace(&aside, &self.text(entries).map_err(fail)?, WriteDurability::Synced).map_err(fail)?;
                self.change(|entries| {
                    EntryKind::OF_KSM.into_iter().for_each(|kind| entries.remove(kind));
                    Ok(())
                })?;
                Ok(Some(aside))
            }
            Err(UndoError::Damaged { path, .. }) => {
                let aside = free_name(&path);
                let fail = |source| UndoError::Write { path: path.clone(), source };
                fs::rename(&path, &aside).map_err(fail)?;
                Ok(Some(aside))
            }
            Err(error) => Err(error),
        }
    }

    fn parse(&self, text: &[u8]) -> Result<UndoEntries, UndoError> {
        let damaged = |why| UndoError::Damaged { path: self.path(), why };
        let content: StoreContent = serde_json::from_slice(text).map_err(|why| damaged(why.to_string()))?;
        if content.version != VERSION {
            return Err(damaged(format!("version {}, this ksmith knows {VERSION}", content.version)));
        }
        if self.boot.is_another(content.boot_id.as_deref()) {
            return Ok(UndoEntries::default());
        }
        Ok(UndoEntries { owner: Some(content.owner), is_exact: content.exact == Some(true), all: content.entries })
    }

    fn text(&self, entries: UndoEntries) -> io::Result<Vec<u8>> {
        let BootId(boot_id) = self.boot.clone();
        let content = StoreContent {
            version: VERSION,
            exact: entries.is_exact.then_some(true),
            owner: identity::own()?,
            boot_id,
            entries: entries.all,
        };
        let mut text = serde_json::to_vec_pretty(&content)?;
        text.push(b'\n');
        Ok(text)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    disk::run(DiskOperation::Remove, || fs::remove_file(path))
}

fn free_name(path: &Path) -> PathBuf {
    let mut names = (1_u32..).map(|n| path.with_extension(format!("json.discarded-{n}")));
    names.find(|name| name.symlink_metadata().is_err()).unwrap_or_else(|| path.with_extension("json.discarded"))
}

#[cfg(test)]
mod tests;
