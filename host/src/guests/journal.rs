//! The guests that the daemon switched off, in the undo store before it does so.

use ksmith_core::sample::ProcessId;
use serde::{Deserialize, Serialize};

use super::Guests;
use crate::hypervisor::{SwitchError, Target, Uri};
use crate::process::has_ended;
use crate::root::Root;
use crate::undo::{Entry, Kept, Kind, StateDir, UndoError};

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
    /// The guest's name.
    pub name: String,
    /// The reason of the switch.
    #[serde(default)]
    pub why: Why,
}

impl Entry for SwitchedOff {
    const KIND: Kind = Kind::SwitchedOff;
}

/// The guests that the daemon switched off. Clones are the same list.
#[derive(Debug, Clone)]
pub struct OffList(Kept<SwitchedOff>);

impl OffList {
    /// Reads the list from the undo store.
    ///
    /// # Errors
    /// The store can't be read or is damaged.
    pub fn open(directory: &StateDir) -> Result<Self, UndoError> {
        Kept::open(directory).map(Self)
    }

    /// All guests on the list.
    pub fn guests(&self) -> Vec<SwitchedOff> {
        self.0.entries()
    }

    /// The guests that are on the list for this reason.
    pub fn listed(&self, why: Why) -> Vec<SwitchedOff> {
        self.guests().into_iter().filter(|guest| guest.why == why).collect()
    }

    /// Notes a guest that is about to be switched off.
    ///
    /// # Errors
    /// The store can't be written. Then the guest must not be switched off: no ksmith would switch it on again.
    pub fn note(&self, target: &Target, why: Why) -> Result<(), UndoError> {
        self.0.change(|guests| {
            guests.retain(|guest| guest.process != target.id.process());
            guests.push(SwitchedOff { process: target.id.process(), name: target.name.clone(), why });
        })
    }

    /// Changes the reason of a guest on the list: it is outside the domain that may merge. Returns whether that is new.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn claim(&self, process: ProcessId) -> Result<bool, UndoError> {
        let mut is_new = false;
        self.0.change(|guests| {
            for guest in guests.iter_mut().filter(|guest| guest.process == process && guest.why == Why::Prune) {
                (guest.why, is_new) = (Why::Domain, true);
            }
        })?;
        Ok(is_new)
    }

    /// Removes a guest that is on again or has ended.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn strike(&self, process: ProcessId) -> Result<(), UndoError> {
        self.0.change(|guests| guests.retain(|guest| guest.process != process))
    }

    /// Switches on the guests that are on the list for this reason, and says what came of it. Ended guests are removed.
    pub fn restore(&self, root: &Root, libvirt: &Uri, why: Why, dry_run: bool) -> Vec<String> {
        let mut notes = Vec::new();
        for guest in self.listed(why) {
            let outcome = match Guests::new(root.clone(), libvirt.clone()).target_by_id(guest.process.into()) {
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

    /// Removes guests that have ended.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn forget_the_gone(&self, root: &Root) -> Result<(), UndoError> {
        self.0.change(|guests| guests.retain(|guest| !has_ended(root, guest.process)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_noted_guest_is_there_for_the_next_ksmith_until_removed() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        let own = ksmith_core::kernel::PidStat::parse(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        let id = ProcessId { pid: std::process::id(), start_ticks: own.start_ticks };
        let target = Guests::new(Root::host(), Uri::default()).target_by_id(id.into()).unwrap();
        let list = OffList::open(&directory).unwrap();
        assert!(list.guests().is_empty());
        assert!(!list.claim(id).unwrap());
        assert!(list.guests().is_empty(), "a guest that is not switched off is not claimed");
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
        assert!(!directory.undo().exists());
        assert!(OffList::open(&directory).unwrap().guests().is_empty());
    }

    #[test]
    fn an_ended_guest_of_an_older_build_is_removed_without_a_word() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        directory.make().unwrap();
        fs::write(
            directory.path().join("guests.json"),
            r#"[{"process":{"pid":1,"start_ticks":999999},"name":"old"}]"#,
        )
        .unwrap();
        let list = OffList::open(&directory).unwrap();
        assert_eq!(list.restore(&Root::host(), &Uri::default(), Why::Domain, false), [""; 0]);
        assert_eq!(OffList::open(&directory).unwrap().guests().len(), 1, "it is listed for another reason");
        assert_eq!(list.restore(&Root::host(), &Uri::default(), Why::Prune, false), [""; 0]);
        assert!(OffList::open(&directory).unwrap().guests().is_empty());
        assert!(!directory.path().join("guests.json").exists());
    }

    #[test]
    fn a_file_that_is_no_list_is_an_error() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path());
        fs::write(directory.path().join("guests.json"), "{").unwrap();
        assert!(OffList::open(&directory).unwrap_err().to_string().contains("guests.json"));
    }
}
