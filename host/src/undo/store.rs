//! The file of the undo store: format, versions, writing.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use ksmith_core::sample::ProcessId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::boot::Boot;
use super::entries::{Entries, Kind};
use super::read::text_of;
use super::replace::replace;
use super::{StateDir, UndoError, identity, older};

/// The version of the format.
const VERSION: u32 = 1;

/// The content of the file. A person can act upon it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    owner: ProcessId,
    boot_id: Option<String>,
    entries: Vec<Value>,
}

/// The undo store of a state directory.
///
/// The file is replaced whole, so a reader sees one state or the other. Every change reads the file again under a lock
/// of the directory, so several stores, also in several processes, change it in turn.
#[derive(Debug, Clone)]
pub struct UndoStore {
    directory: StateDir,
    boot: Boot,
}

impl UndoStore {
    /// The store of a directory. Nothing is read or made yet.
    pub fn new(directory: &StateDir) -> Self {
        Self { directory: directory.clone(), boot: Boot(identity::boot_id()) }
    }

    /// Where the file is.
    pub fn path(&self) -> PathBuf {
        self.directory.undo()
    }

    /// All entries, with those in files of an older build. Entries from before the last boot are void.
    ///
    /// # Errors
    /// A file can't be read or is damaged. It stays as it is: a ksmith that changed settings without it would take a
    /// killed one's settings for the originals.
    pub fn read(&self) -> Result<Entries, UndoError> {
        let path = self.path();
        let mut entries = match text_of(&path)? {
            Some(text) => self.parse(&text).map_err(|why| UndoError::Damaged { path, why })?,
            None => Entries::default(),
        };
        older::add(&self.directory, &self.boot, &mut entries)?;
        Ok(entries)
    }

    /// Changes the entries. With none left the file goes; files of an older build go in any case.
    ///
    /// # Errors
    /// The file can't be read or written. Then it is as it was.
    pub fn change(
        &self,
        change: impl FnOnce(&mut Entries) -> Result<(), serde_json::Error>,
    ) -> Result<(), UndoError> {
        let path = self.path();
        self.directory
            .make()
            .map_err(|source| UndoError::Directory { path: self.directory.path().to_owned(), source })?;
        let write = |source| UndoError::Write { path: path.clone(), source };
        let _turn = Turn::take(&self.directory).map_err(write)?;
        let mut entries = self.read()?;
        change(&mut entries).map_err(|why| write(why.into()))?;
        if entries.is_empty() {
            remove(&path).map_err(write)?;
        } else {
            self.write(entries).map_err(write)?;
        }
        // Last: until then they hold what the new file holds by now.
        older::paths(&self.directory).iter().try_for_each(|path| remove(path)).map_err(write)
    }

    /// Gives up what the store says about KSM itself, and damaged files. What is given up is kept in files beside it,
    /// which are returned. What sound files say about guests stays. To be called under the [`Lock`](crate::act::Lock).
    ///
    /// # Errors
    /// A file can't be moved or written.
    pub fn discard(&self) -> Result<Vec<PathBuf>, UndoError> {
        let mut aside = Vec::new();
        loop {
            match self.read() {
                Ok(entries) if Kind::OF_KSM.iter().all(|kind| entries.count(*kind) == 0) => return Ok(aside),
                Ok(entries) => {
                    let kept = free_name(&self.path());
                    let fail = |source| UndoError::Write { path: kept.clone(), source };
                    replace(&kept, &self.text(entries).map_err(fail)?).map_err(fail)?;
                    self.change(|entries| {
                        Kind::OF_KSM.into_iter().for_each(|kind| entries.remove(kind));
                        Ok(())
                    })?;
                    aside.push(kept);
                    return Ok(aside);
                }
                Err(UndoError::Damaged { path, .. }) => aside.push(self.set_aside(&path)?),
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves a file to a free name beside it. Returns that name.
    ///
    /// # Errors
    /// The file can't be moved.
    pub fn set_aside(&self, path: &Path) -> Result<PathBuf, UndoError> {
        let aside = free_name(path);
        let fail = |source| UndoError::Write { path: path.to_owned(), source };
        fs::rename(path, &aside).map_err(fail)?;
        Ok(aside)
    }

    fn parse(&self, text: &[u8]) -> Result<Entries, String> {
        let content: Content = serde_json::from_slice(text).map_err(|why| why.to_string())?;
        if content.version != VERSION {
            return Err(format!("version {}, this ksmith knows {VERSION}", content.version));
        }
        if self.boot.is_another(content.boot_id.as_deref()) {
            return Ok(Entries::default());
        }
        Ok(Entries { owner: Some(content.owner), all: content.entries })
    }

    fn write(&self, entries: Entries) -> io::Result<()> {
        replace(&self.path(), &self.text(entries)?)
    }

    fn text(&self, entries: Entries) -> io::Result<Vec<u8>> {
        let Boot(boot_id) = self.boot.clone();
        let content = Content { version: VERSION, owner: identity::own()?, boot_id, entries: entries.all };
        let mut text = serde_json::to_vec_pretty(&content)?;
        text.push(b'\n');
        Ok(text)
    }
}

/// The right to change the file: a lock of the directory. Given back explicitly, since a child that was forked meanwhile
/// has a copy of the descriptor.
struct Turn(File);

impl Turn {
    fn take(directory: &StateDir) -> io::Result<Self> {
        let file = File::open(directory.path())?;
        file.lock()?;
        Ok(Self(file))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Closing the descriptor unlocks as well.
        let _ = self.0.unlock();
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn free_name(path: &Path) -> PathBuf {
    let mut names = (1_u32..).map(|n| path.with_extension(format!("json.discarded-{n}")));
    names.find(|name| name.symlink_metadata().is_err()).unwrap_or_else(|| path.with_extension("json.discarded"))
}

#[cfg(test)]
mod tests;
