//! What was taken from whom, on disk before it is taken.
//!
//! An entry never says that a guest has more than it has: it is lowered before the guest is told to shrink, and raised
//! after the guest was seen to have grown. So whoever reads it after a kill at any point gives back enough, and giving
//! more than was taken is harmless: every actuator stops at the whole.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ksmith_core::guest::Kind;
use ksmith_core::sample::ProcessId;
use serde::{Deserialize, Serialize};

use super::{Actuator, ActuatorError, GivenBack, Lacking};
use super::{actuators, cgroup};
use crate::act::StateDir;
use crate::guests::{Guests, Uri, has_ended};
use crate::root::Root;

/// One guest that has less than its whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// By which balance knows it.
    pub key: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its first process: a guest that was started anew is another one. All zeros for a cgroup.
    pub process: ProcessId,
    /// What it was started with.
    pub whole_bytes: u64,
    /// What it has at least.
    pub given_bytes: u64,
    /// For a cgroup, what to put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<CgroupWas>,
}

impl Entry {
    /// Whether it is about this guest.
    fn is_of(&self, key: &str, process: ProcessId) -> bool {
        self.process == process && (process.pid != 0 || self.key == key)
    }

    /// What it lacks still, in words.
    pub(super) fn left(&self) -> String {
        let (given, whole) = (self.given_bytes >> 20, self.whole_bytes >> 20);
        format!("{} has {given} of its {whole} MiB; later: ksmith restore", self.name)
    }
}

/// A cgroup as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupWas {
    /// Its path below the mount point.
    pub path: String,
    /// Its inode: a cgroup of the same path that was made later is another one.
    pub inode: u64,
    /// `memory.high`, as it was before.
    pub high: String,
}

/// What went wrong with the file.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// It can't be read or written.
    #[error("the ledger of memory taken from guests, {path}, can't be used: {source}", path = .path.display())]
    File {
        /// The ledger.
        path: PathBuf,
        /// How it fails.
        source: io::Error,
    },
    /// It is there and is no ledger.
    #[error("the ledger {path} is damaged ({why}), so nobody knows what was taken from whom: restart each guest, or give \
             it its memory back by its own means (virsh setmem, QMP's balloon, mconsole's config mem=+SIZE, a cgroup's \
             memory.high), then remove the file",
            path = .path.display())]
    Damaged {
        /// The ledger.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// The ledger, in `balance.json` of the state directory. Its clones are one ledger; threads may share it.
#[derive(Debug, Clone)]
pub struct Ledger(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    directory: StateDir,
    entries: Vec<Entry>,
    is_kept: bool,
}

impl Ledger {
    /// Reads the ledger; that there is none is no error.
    ///
    /// # Errors
    /// It can't be read, or is no ledger.
    pub fn open(directory: &StateDir) -> Result<Self, LedgerError> {
        Self::read(directory, true)
    }

    /// The ledger for who changes nothing, and so need not hold the lock: the file stays as it is, which another ksmith
    /// may be writing.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_to_read(directory: &StateDir) -> Result<Self, LedgerError> {
        Self::read(directory, false)
    }

    fn read(directory: &StateDir, is_kept: bool) -> Result<Self, LedgerError> {
        let path = directory.balance();
        let entries = match fs::read(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).map_err(|why| LedgerError::Damaged { path, why: why.to_string() })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(LedgerError::File { path, source }),
        };
        Ok(Self(Arc::new(Mutex::new(Inner { directory: directory.clone(), entries, is_kept }))))
    }

    /// Who has less than its whole.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.clone()
    }

    /// What is noted of this very guest, under whatever key: a guest may be met before its name is known.
    pub fn entry(&self, key: &str, process: ProcessId) -> Option<Entry> {
        self.lock().entries.iter().find(|entry| entry.is_of(key, process)).cloned()
    }

    /// Notes what a guest has. One that has its whole needs no entry.
    ///
    /// # Errors
    /// The file can't be written: then nothing may be taken.
    pub fn note(&self, entry: Entry) -> Result<(), LedgerError> {
        self.lock().change(|entries| {
            let is_settled = entry.given_bytes >= entry.whole_bytes && entry.cgroup.is_none();
            // A guest that was started anew under an old key owes nothing for the one before it.
            match entries.iter_mut().find(|known| known.key == entry.key || known.is_of(&entry.key, entry.process))
            {
                Some(known) if !is_settled => *known = entry,
                None if !is_settled => entries.push(entry),
                _ => entries.retain(|known| known.key != entry.key && !known.is_of(&entry.key, entry.process)),
            }
        })
    }

    /// Strikes out a guest that has everything again, or is gone. With nobody left the file goes.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn strike(&self, key: &str) -> Result<(), LedgerError> {
        self.lock().change(|entries| entries.retain(|entry| entry.key != key))
    }

    /// Strikes out everybody that has ended.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn strike_ended(&self, root: &Root) -> Result<(), LedgerError> {
        let is_over = |entry: &Entry| match &entry.cgroup {
            Some(was) => cgroup::has_ended(root, was),
            None => entry.process.pid != 0 && has_ended(root, entry.process),
        };
        self.lock().change(|entries| entries.retain(|entry| !is_over(entry)))
    }

    /// Gives everybody everything back, and says what came of it. Who is gone is struck out.
    pub fn restore(&self, root: &Root, libvirt: &Uri, dry_run: bool) -> GivenBack {
        let guests = Guests::new(root.clone(), libvirt.clone());
        self.restore_with(dry_run, |entry| match &entry.cgroup {
            Some(was) if cgroup::has_ended(root, was) => Err(ActuatorError::Gone),
            Some(was) => actuators::cgroup_actuator(root, &was.path, &entry.key, self),
            None => {
                let target =
                    guests.target_by_id(entry.process).ok_or_else(|| match has_ended(root, entry.process) {
                        true => ActuatorError::Gone,
                        false => ActuatorError::Unable("what it is can't be read".to_owned()),
                    })?;
                actuators::actuator(root, &target, &entry.key, self)
            }
        })
    }

    fn restore_with(
        &self,
        dry_run: bool,
        actuator: impl Fn(&Entry) -> Result<Box<dyn Actuator>, ActuatorError> + Sync,
    ) -> GivenBack {
        let entries = self.entries();
        let settle = |entry: &Entry| {
            let mut actuator = actuator(entry)?;
            if dry_run { Ok(entry.whole_bytes) } else { actuator.resize(entry.whole_bytes) }
        };
        // At once: one that hangs must not make the others wait.
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = entries.iter().map(|entry| scope.spawn(|| settle(entry))).collect();
            threads.into_iter().map(|thread| thread.join().ok()).collect()
        });
        let mut all = GivenBack::default();
        for (entry, outcome) in entries.iter().zip(outcomes) {
            let (name, whole) = (&entry.name, entry.whole_bytes >> 20);
            // As its actuator has noted it by now.
            let given = || self.entry(&entry.key, entry.process).map_or(entry.given_bytes, |now| now.given_bytes);
            match outcome {
                Some(Ok(_)) if dry_run => {
                    all.notes.push(format!("{name} would get its {whole} MiB again"));
                    continue;
                }
                Some(Ok(given)) if given >= entry.whole_bytes => {
                    all.notes.push(format!("{name} has its {whole} MiB again"));
                }
                Some(Ok(given)) => {
                    let why = "it takes no more for now: its driver does not follow, or its host has no more";
                    all.lacking.push(Lacking::of(entry, given, why.to_owned()));
                    continue;
                }
                Some(Err(ActuatorError::Gone)) => {}
                Some(Err(error)) => {
                    all.lacking.push(Lacking::for_error(entry, given(), &error));
                    continue;
                }
                None => {
                    all.lacking.push(Lacking::of(entry, given(), "the attempt broke off".to_owned()));
                    continue;
                }
            }
            if !dry_run && let Err(error) = self.strike(&entry.key) {
                all.faults.push(error.to_string());
            }
        }
        all
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What it guards is changed last, after the file: a thread that panicked left it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn change(&mut self, change: impl FnOnce(&mut Vec<Entry>)) -> Result<(), LedgerError> {
        let mut entries = self.entries.clone();
        change(&mut entries);
        if entries == self.entries {
            return Ok(());
        }
        if !self.is_kept {
            self.entries = entries;
            return Ok(());
        }
        let path = self.directory.balance();
        let write = || -> io::Result<()> {
            if entries.is_empty() {
                return match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                };
            }
            self.directory.make()?;
            swap_in(&path, &serde_json::to_vec_pretty(&entries)?)
        };
        write().map_err(|source| LedgerError::File { path: path.clone(), source })?;
        self.entries = entries;
        Ok(())
    }
}

/// Replaces the file whole. Not synced: it is written at every step, and a host that crashes takes its guests along.
fn swap_in(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("json.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&new)?;
    file.write_all(text)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests;
