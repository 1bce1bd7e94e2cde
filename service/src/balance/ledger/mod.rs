//! The memory that was taken from guests, in the undo store before it is taken.
//!
//! An entry never says that a guest has more than it has: it is lowered before the guest is told to shrink, and raised
//! after the guest was seen to have grown. So a ksmith that reads it after a kill at any point gives back enough, and
//! giving more than was taken is harmless: every actuator stops at the whole.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use ksmith_core::guest::GuestKind;
use ksmith_core::sample::ProcessId;
use serde::{Deserialize, Serialize};

use ksmith_host::guests::{LibvirtUri, has_ended};
use ksmith_host::root::Root;
use ksmith_host::undo::{self, KeptEntries, StateDir, UndoError};

/// Mount points of the unified cgroup hierarchy: by itself, or beside version 1.
pub(super) const MOUNTS: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

/// The device of QEMU by which memory was taken from a guest, and by which it is given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerDevice {
    /// The virtio balloon.
    VirtioBalloon,
    /// The virtio-mem at this path in QEMU's object tree.
    VirtioMem(String),
}

/// One guest that has less than its whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// The key of the guest in balance.
    pub key: String,
    /// The guest's name.
    pub name: String,
    /// The kind of guest.
    pub kind: GuestKind,
    /// Its first process: a guest that was started anew is another one. All zeros for a cgroup.
    pub process: ProcessId,
    /// The memory that it was started with.
    pub whole_bytes: u64,
    /// The memory that it has at least.
    pub given_bytes: u64,
    /// The libvirt that manages the guest; `None` for a cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libvirt: Option<LibvirtUri>,
    /// The device of a guest of QEMU; `None` for other guests, and in an entry that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<LedgerDevice>,
    /// For a cgroup, what to put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<OriginalCgroup>,
}

impl LedgerEntry {
    /// Returns true if the entry is for this guest.
    fn is_of(&self, key: &str, process: ProcessId) -> bool {
        self.process == process && (process.pid != 0 || self.key == key)
    }

    /// Describes the memory that it still lacks.
    pub(super) fn left(&self) -> String {
        let (given, whole) = (self.given_bytes >> 20, self.whole_bytes >> 20);
        format!("{} has {given} of its {whole} MiB; later: ksmith restore", self.name)
    }
}

/// The state of a cgroup before its first resize.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginalCgroup {
    /// Its path below the mount point.
    pub path: String,
    /// Its inode: a cgroup of the same path that was made later is another one.
    pub inode: u64,
    /// `memory.high`, as it was before.
    pub high: String,
}

impl OriginalCgroup {
    /// Returns true if this cgroup has certainly ended: its path is gone, or names another cgroup.
    pub(super) fn has_ended(&self, root: &Root) -> bool {
        let relative = self.path.trim_start_matches('/');
        MOUNTS.iter().all(|mount| match fs::metadata(root.path(PathBuf::from(mount).join(relative))) {
            Ok(found) => found.ino() != self.inode,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        })
    }
}

impl undo::UndoEntry for LedgerEntry {
    const KIND: undo::EntryKind = undo::EntryKind::GuestMemory;
}

/// The guests from which memory was taken. Clones share one ledger, also between threads.
#[derive(Debug, Clone)]
pub struct MemoryLedger(KeptEntries<LedgerEntry>);

impl MemoryLedger {
    /// Reads the ledger from the undo store.
    ///
    /// # Errors
    /// The store can't be read or is damaged.
    pub fn open(directory: &StateDir) -> Result<Self, UndoError> {
        KeptEntries::open(directory).map(Self)
    }

    /// Reads the sound part of the ledger, with a sentence for each fault. The rest stays in the store.
    pub fn open_to_restore(directory: &StateDir) -> (Self, Vec<String>) {
        let (kept, faults) = KeptEntries::open_to_restore(directory);
        (Self(kept), faults)
    }

    /// Opens the ledger for a process that changes nothing and so need not hold the lock: the store stays as it is.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_to_read(directory: &StateDir) -> Result<Self, UndoError> {
        KeptEntries::open_to_read(directory).map(Self)
    }

    /// Writes the entries anew, as into a directory that was removed.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn write_anew(&self) -> Result<(), UndoError> {
        self.0.write_anew()
    }

    /// Returns true if this process only reads the ledger, and so resizes no guest.
    pub fn is_to_read(&self) -> bool {
        !self.0.is_written()
    }

    /// Returns the guests that have less than they were started with.
    pub fn entries(&self) -> Vec<LedgerEntry> {
        self.0.entries()
    }

    /// Returns the entry of this very guest under any key: a guest may be found before its name is known.
    pub fn entry(&self, key: &str, process: ProcessId) -> Option<LedgerEntry> {
        self.entries().into_iter().find(|entry| entry.is_of(key, process))
    }

    /// Records the memory of a guest. One that has its whole needs no entry.
    ///
    /// # Errors
    /// The store can't be written. Then nothing may be taken.
    pub fn record_entry(&self, entry: LedgerEntry) -> Result<(), UndoError> {
        self.0.change(|entries| {
            let is_settled = entry.given_bytes >= entry.whole_bytes && entry.cgroup.is_none();
            // A guest that was started anew under an old key has no entry for the one before it.
            match entries.iter_mut().find(|known| known.key == entry.key || known.is_of(&entry.key, entry.process))
            {
                Some(known) if !is_settled => *known = entry,
                None if !is_settled => entries.push(entry),
                _ => entries.retain(|known| known.key != entry.key && !known.is_of(&entry.key, entry.process)),
            }
        })
    }

    /// Removes a guest that has all its memory again, or has ended.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn strike(&self, key: &str) -> Result<(), UndoError> {
        self.0.change(|entries| entries.retain(|entry| entry.key != key))
    }

    /// Removes guests that have ended.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn strike_ended(&self, root: &Root) -> Result<(), UndoError> {
        let is_over = |entry: &LedgerEntry| match &entry.cgroup {
            Some(was) => was.has_ended(root),
            None => entry.process.pid != 0 && has_ended(root, entry.process),
        };
        self.0.change(|entries| entries.retain(|entry| !is_over(entry)))
    }
}

#[cfg(test)]
pub(super) mod tests;
