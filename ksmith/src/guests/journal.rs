//! The guests that the daemon switched off, on disk before it does so: whoever restores switches them on again.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ksmith_core::sample::ProcessId;
use serde::{Deserialize, Serialize};

use super::{Guests, SwitchError, Target, Uri, has_ended};
use crate::act::{StateDir, replace};
use crate::root::Root;

/// Why a guest was switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// It cost more than it brought.
    #[default]
    Prune,
    /// It is outside the trust domain that may merge. Then it is not switched on again as long as ksmd may scan.
    Domain,
}

/// A guest that was switched off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchedOff {
    /// Its first process. A guest that was started anew is another one.
    pub process: ProcessId,
    /// Its name.
    pub name: String,
    /// Why.
    #[serde(default)]
    pub why: Why,
}

/// What went wrong with the file.
#[derive(Debug, thiserror::Error)]
#[error("the list of guests that were switched off, {path}, can't be used: {source}", path = .path.display())]
pub struct ListError {
    path: PathBuf,
    source: io::Error,
}

/// The list, in `guests.json` of the state directory. Clones are the same list.
#[derive(Debug, Clone)]
pub struct OffList {
    directory: StateDir,
    guests: Arc<Mutex<Vec<SwitchedOff>>>,
}

impl OffList {
    /// Reads the list; that there is none is no error.
    ///
    /// # Errors
    /// It can't be read, or is no such list.
    pub fn open(directory: &StateDir) -> Result<Self, ListError> {
        let path = directory.guests();
        let guests: Vec<SwitchedOff> = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|why| ListError { path, source: why.into() })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(ListError { path, source }),
        };
        Ok(Self { directory: directory.clone(), guests: Arc::new(Mutex::new(guests)) })
    }

    /// Who is on it.
    pub fn guests(&self) -> Vec<SwitchedOff> {
        self.lock().clone()
    }

    /// Who is on it for this reason.
    pub fn listed(&self, why: Why) -> Vec<SwitchedOff> {
        self.lock().iter().filter(|guest| guest.why == why).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SwitchedOff>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a guest that is about to be switched off.
    ///
    /// # Errors
    /// The file can't be written: then nobody will know that the guest must be switched on again.
    pub fn note(&self, target: &Target, why: Why) -> Result<(), ListError> {
        self.change(|guests| {
            guests.retain(|guest| guest.process != target.id);
            guests.push(SwitchedOff { process: target.id, name: target.name.clone(), why });
        })
    }

    /// Notes of a guest that is on the list that it is outside the domain that may merge, whatever else it was. Returns
    /// whether that is new.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn claim(&self, process: ProcessId) -> Result<bool, ListError> {
        let mut is_new = false;
        self.change(|guests| {
            for guest in guests.iter_mut().filter(|guest| guest.process == process && guest.why == Why::Prune) {
                (guest.why, is_new) = (Why::Domain, true);
            }
        })?;
        Ok(is_new)
    }

    /// Strikes out a guest that is on again or gone. With nobody left the file goes.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn strike(&self, process: ProcessId) -> Result<(), ListError> {
        self.change(|guests| guests.retain(|guest| guest.process != process))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<SwitchedOff>)) -> Result<(), ListError> {
        let mut kept = self.lock();
        let mut guests = kept.clone();
        change(&mut guests);
        if guests == *kept {
            return Ok(());
        }
        let path = self.directory.guests();
        let write = || -> io::Result<()> {
            if guests.is_empty() {
                return fs::remove_file(&path);
            }
            self.directory.make()?;
            replace(&path, &serde_json::to_vec_pretty(&guests)?)
        };
        match write() {
            Err(source) if source.kind() != io::ErrorKind::NotFound || !guests.is_empty() => {
                Err(ListError { path, source })
            }
            _ => {
                *kept = guests;
                Ok(())
            }
        }
    }

    /// Switches on again who is on it for this reason, and says what came of it. Who is gone is struck out.
    pub fn restore(&self, root: &Root, libvirt: &Uri, why: Why, dry_run: bool) -> Vec<String> {
        let mut notes = Vec::new();
        for guest in self.listed(why) {
            let outcome = match Guests::new(root.clone(), libvirt.clone()).target_by_id(guest.process) {
                Some(target) => target.switch(root, true, dry_run).map(|_| true),
                None => Ok(false),
            };
            let is_settled = match outcome {
                Ok(true) => {
                    let verb = if dry_run { "would be" } else { "is" };
                    notes.push(format!("merging of {} (pid {}) {verb} on again", guest.name, guest.process.pid));
                    true
                }
                Ok(false) | Err(SwitchError::Gone { .. }) => true,
                Err(error) => {
                    notes.push(format!("{error}; it stays switched off"));
                    false
                }
            };
            if is_settled
                && !dry_run
                && let Err(error) = self.strike(guest.process)
            {
                notes.push(error.to_string());
            }
        }
        notes
    }

    /// Strikes out who is gone.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn forget_the_gone(&self, root: &Root) -> Result<(), ListError> {
        self.change(|guests| guests.retain(|guest| !has_ended(root, guest.process)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_noted_is_there_for_the_next_ksmith_until_struck_out() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        let own = ksmith_core::kernel::PidStat::parse(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        let id = ProcessId { pid: std::process::id(), start_ticks: own.start_ticks };
        let target = Guests::new(Root::host(), Uri::default()).target_by_id(id).unwrap();
        let list = OffList::open(&directory).unwrap();
        assert!(list.guests().is_empty());
        assert!(!list.claim(id).unwrap());
        assert!(list.guests().is_empty(), "who is not switched off is not claimed");
        list.note(&target, Why::Prune).unwrap();
        list.note(&target, Why::Prune).unwrap();
        let next = OffList::open(&directory).unwrap();
        assert_eq!(next.guests(), [SwitchedOff { process: id, name: target.name.clone(), why: Why::Prune }]);
        assert!(next.claim(id).unwrap() && !next.claim(id).unwrap());
        assert!(next.clone().listed(Why::Prune).is_empty(), "clones are one list");
        assert_eq!(OffList::open(&directory).unwrap().listed(Why::Domain).len(), 1);
        next.forget_the_gone(&Root::host()).unwrap();
        assert_eq!(next.guests().len(), 1, "it is there");
        next.strike(id).unwrap();
        assert!(!directory.guests().exists());
        assert!(OffList::open(&directory).unwrap().guests().is_empty());
    }

    #[test]
    fn who_is_gone_is_struck_out_without_a_word() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        directory.make().unwrap();
        fs::write(directory.guests(), r#"[{"process":{"pid":1,"start_ticks":999999},"name":"old"}]"#).unwrap();
        let list = OffList::open(&directory).unwrap();
        assert_eq!(list.restore(&Root::host(), &Uri::default(), Why::Domain, false), [""; 0]);
        assert!(directory.guests().exists(), "it is listed for another reason");
        assert_eq!(list.restore(&Root::host(), &Uri::default(), Why::Prune, false), [""; 0]);
        assert!(!directory.guests().exists());
    }

    #[test]
    fn a_file_that_is_no_list_is_an_error() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path());
        fs::write(directory.guests(), "{").unwrap();
        assert!(OffList::open(&directory).unwrap_err().to_string().contains("guests.json"));
    }
}
