//! The entries of one kind, in memory and in the store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::entries::{UndoEntries, UndoEntry};
use super::store::UndoStore;
use super::{StateDir, UndoError};

/// The entries of one kind, with this process as their only writer. Clones share one list, also across threads.
#[derive(Debug, Clone)]
pub struct KeptEntries<E>(Arc<Mutex<KeptState<E>>>);

#[derive(Debug)]
struct KeptState<E> {
    store: UndoStore,
    entries: Vec<E>,
    /// True if changes are written to the store.
    is_written: bool,
}

impl<E: UndoEntry> KeptEntries<E> {
    /// Reads the entries.
    ///
    /// # Errors
    /// The store can't be read or is damaged.
    pub fn open(directory: &StateDir) -> Result<Self, UndoError> {
        let store = UndoStore::new(directory);
        let entries = store.read()?;
        Self::new(store, &entries, true)
    }

    /// Reads the entries that can be parsed, and returns the errors of the others. These stay in the store. A store that
    /// can't be read has none.
    pub fn open_to_restore(directory: &StateDir) -> (Self, Vec<String>) {
        let store = UndoStore::new(directory);
        // A store that can't be read at all is an error of the journal's.
        let (entries, faults) = store.read().unwrap_or_default().understood();
        (Self(Arc::new(Mutex::new(KeptState { store, entries, is_written: true }))), faults)
    }

    /// Reads the entries for a process that changes nothing and so need not hold the lock. The file stays as it is.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_to_read(directory: &StateDir) -> Result<Self, UndoError> {
        let store = UndoStore::new(directory);
        let entries = store.read()?;
        Self::new(store, &entries, false)
    }

    /// Takes the entries of this kind out of those that were read from `store`.
    ///
    /// # Errors
    /// One of them can't be parsed.
    pub fn new(store: UndoStore, entries: &UndoEntries, is_written: bool) -> Result<Self, UndoError> {
        let entries = entries
            .parse_entries::<E>()
            .map_err(|why| UndoError::Damaged { path: store.path(), why: format!("{}: {why}", E::KIND.name()) })?;
        Ok(Self(Arc::new(Mutex::new(KeptState { store, entries, is_written }))))
    }

    /// Returns true if changes are written. A process that only reads writes none.
    pub fn is_written(&self) -> bool {
        self.lock().is_written
    }

    /// Returns a copy of the entries.
    pub fn entries(&self) -> Vec<E> {
        self.lock().entries.clone()
    }

    /// Changes the entries, first in the store.
    ///
    /// # Errors
    /// The store can't be written, and nothing has changed.
    pub fn change(&self, change: impl FnOnce(&mut Vec<E>)) -> Result<(), UndoError> {
        let mut inner = self.lock();
        let mut entries = inner.entries.clone();
        change(&mut entries);
        if entries == inner.entries {
            return Ok(());
        }
        if inner.is_written {
            inner.store.change(|all| all.set(&entries))?;
        }
        inner.entries = entries;
        Ok(())
    }

    /// Writes all entries anew, as into a directory that was removed.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn write_anew(&self) -> Result<(), UndoError> {
        let inner = self.lock();
        if !inner.is_written || inner.entries.is_empty() {
            return Ok(());
        }
        inner.store.change(|all| all.set(&inner.entries))
    }

    fn lock(&self) -> MutexGuard<'_, KeptState<E>> {
        // The entries are changed last, after the file: a thread that panicked left them whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
