//! The journal of the guests that the daemon switches off: written to the undo store before each switch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ksmith_core::decide::domains::OnExit;
use ksmith_core::guest::{Guest, SwitchOffReason};
use ksmith_core::sample::ProcessId;
use ksmith_core::units::TimeSpan;
use serde::{Deserialize, Serialize};

use super::GuestTracker;
use crate::hypervisor::{GuestTarget, LibvirtUri, SwitchError};
use crate::pool::each_within;
use crate::process::has_ended;
use crate::root::Root;
use crate::undo::{EntryKind, KeptEntries, StateDir, UndoEntry, UndoError};

/// The deadline to switch all guests on: systemd kills the daemon if its stop takes too long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A guest that was switched off, with all data to switch it on without the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchedOff {
    /// The guest's first process. A restarted guest is another one.
    pub process: ProcessId,
    /// The guest's name.
    pub name: String,
    /// The reason of the switch.
    pub why: SwitchOffReason,
    /// URI of the libvirt to query about the guest.
    pub libvirt: LibvirtUri,
    /// The action for a guest outside the domain when the daemon ends; `None` for a pruned guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exit: Option<OnExit>,
}

impl UndoEntry for SwitchedOff {
    const KIND: EntryKind = EntryKind::SwitchedOff;
}

/// The list of guests that the daemon switched off. Clones share one list.
#[derive(Debug, Clone)]
pub struct OffList(KeptEntries<SwitchedOff>);

impl OffList {
    /// Reads the list from the undo store.
    ///
    /// # Errors
    /// The store can't be read or is damaged.
    pub fn open(directory: &StateDir) -> Result<Self, UndoError> {
        KeptEntries::open(directory).map(Self)
    }

    /// Reads the valid entries of the list, and returns the faults of the others, which stay in the store.
    pub fn open_to_restore(directory: &StateDir) -> (Self, Vec<String>) {
        let (kept, faults) = KeptEntries::open_to_restore(directory);
        (Self(kept), faults)
    }

    /// Writes the list anew, as into a directory that was removed.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn write_anew(&self) -> Result<(), UndoError> {
        self.0.write_anew()
    }

    /// Returns all guests on the list.
    pub fn guests(&self) -> Vec<SwitchedOff> {
        self.0.entries()
    }

    /// Returns the guests that are on the list for this reason.
    pub fn listed(&self, why: SwitchOffReason) -> Vec<SwitchedOff> {
        self.guests().into_iter().filter(|guest| guest.why == why).collect()
    }

    /// Fills in why each of these guests was switched off.
    pub fn mark(&self, guests: &mut [Guest]) {
        let listed: BTreeMap<ProcessId, SwitchOffReason> =
            self.guests().into_iter().map(|guest| (guest.process, guest.why)).collect();
        for guest in guests {
            guest.switched_off = listed.get(&guest.id().process()).copied();
        }
    }

    /// Records a guest before pruning switches it off, for this reason.
    ///
    /// # Errors
    /// The store can't be written. Then the guest must not be switched off: no ksmith would switch it on again.
    pub fn note_pruned(&self, target: &GuestTarget, why: SwitchOffReason) -> Result<(), UndoError> {
        self.record_targets(std::slice::from_ref(target), why, None)
    }

    /// Records guests before they are switched off as outside the domain that may merge. All go into one write, since
    /// each write waits for the disk. If all are recorded already, nothing is written.
    ///
    /// # Errors
    /// As [`note_pruned`](Self::note_pruned), for all of them.
    pub fn note_outside(&self, targets: &[GuestTarget], on_exit: OnExit) -> Result<(), UndoError> {
        self.record_targets(targets, SwitchOffReason::Domain, Some(on_exit))
    }

    fn record_targets(
        &self,
        targets: &[GuestTarget],
        why: SwitchOffReason,
        on_exit: Option<OnExit>,
    ) -> Result<(), UndoError> {
        self.0.change(|guests| {
            let places = guests.iter().enumerate().map(|(at, guest)| (guest.process, at));
            let mut places: BTreeMap<ProcessId, usize> = places.collect();
            for target in targets {
                let (process, name, libvirt) = (target.id.process(), target.name.clone(), target.libvirt().clone());
                let noted = SwitchedOff { process, name, why, libvirt, on_exit };
                let at = *places.entry(process).or_insert(guests.len());
                match guests.get_mut(at) {
                    Some(guest) => *guest = noted,
                    None => guests.push(noted),
                }
            }
        })
    }

    /// Changes the reason of these guests, where listed: they are outside the domain that may merge. Returns those that
    /// changed. The store is written only if some did.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn claim(&self, processes: &[ProcessId], on_exit: OnExit) -> Result<Vec<ProcessId>, UndoError> {
        let pruned = self.guests().into_iter().filter(|guest| guest.why.is_of_pruning());
        let mut new: Vec<ProcessId> = pruned.map(|guest| guest.process).collect();
        new.retain(|process| processes.contains(process));
        if !new.is_empty() {
            self.0.change(|guests| {
                for guest in guests.iter_mut().filter(|guest| new.contains(&guest.process)) {
                    (guest.why, guest.on_exit) = (SwitchOffReason::Domain, Some(on_exit));
                }
            })?;
        }
        Ok(new)
    }

    /// Sets the action at the daemon's end for all guests outside the domain.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn set_on_exit(&self, on_exit: OnExit) -> Result<(), UndoError> {
        self.0.change(|guests| {
            for guest in guests.iter_mut().filter(|guest| guest.why == SwitchOffReason::Domain) {
                guest.on_exit = Some(on_exit);
            }
        })
    }

    /// Removes guests that were switched on or have ended.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn remove_processes(&self, processes: &BTreeSet<ProcessId>) -> Result<(), UndoError> {
        self.0.change(|guests| guests.retain(|guest| !processes.contains(&guest.process)))
    }

    /// Switches on the listed guests that are `wanted`, in parallel, and returns messages on the outcome. Ended guests
    /// are removed. A guest that does not answer stays on the list and delays no other.
    pub fn restore(&self, root: &Root, wanted: impl Fn(&SwitchedOff) -> bool, dry_run: bool) -> Vec<String> {
        let there = root.clone();
        self.restore_with(wanted, dry_run, PATIENCE, move |guest| {
            match GuestTracker::new(there.clone(), guest.libvirt.clone()).target_by_id(guest.process.into()) {
                Some(target) => target.switch(&there, true, dry_run).map(|_| true),
                None if has_ended(&there, guest.process) => Ok(false),
                None => Err(SwitchError::Unreadable { name: guest.name.clone(), pid: guest.process.pid }),
            }
        })
    }

    fn restore_with(
        &self,
        wanted: impl Fn(&SwitchedOff) -> bool,
        dry_run: bool,
        patience: Duration,
        switch: impl Fn(&SwitchedOff) -> Result<bool, SwitchError> + Send + Sync + 'static,
    ) -> Vec<String> {
        let guests: Vec<SwitchedOff> = self.guests().into_iter().filter(wanted).collect();
        let outcomes = each_within(guests.clone(), patience, switch);
        let (mut notes, mut settled) = (Vec::new(), Vec::new());
        for (guest, outcome) in guests.iter().zip(outcomes) {
            let name = format!("{} (pid {})", guest.name, guest.process.pid);
            match outcome {
                Some(Ok(true)) => {
                    let verb = if dry_run { "would be" } else { "is" };
                    notes.push(format!("merging of {name} {verb} on again"));
                    settled.push(guest.process);
                }
                Some(Ok(false) | Err(SwitchError::Gone { .. })) => settled.push(guest.process),
                Some(Err(error)) => notes.push(format!("{error}; it stays switched off; later: ksmith restore")),
                None => notes.push(format!(
                    "{name} did not answer within {}; its merging may stay off; later: ksmith restore",
                    TimeSpan(patience)
                )),
            }
        }
        if !dry_run && let Err(error) = self.0.change(|all| all.retain(|guest| !settled.contains(&guest.process))) {
            notes.push(error.to_string());
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
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_noted_guest_is_there_for_the_next_ksmith_until_removed() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        let own = ksmith_core::kernel::PidStat::parse(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        let id = ProcessId { pid: std::process::id(), start_ticks: own.start_ticks };
        let target = GuestTracker::new(Root::host(), LibvirtUri::default()).target_by_id(id.into()).unwrap();
        let list = OffList::open(&directory).unwrap();
        assert!(list.guests().is_empty());
        assert_eq!(list.claim(&[id], OnExit::Keep).unwrap(), []);
        assert!(list.guests().is_empty(), "a guest that is not switched off is not claimed");
        list.note_pruned(&target, SwitchOffReason::Splits).unwrap();
        list.note_pruned(&target, SwitchOffReason::Prune).unwrap();
        let mut guests = [Guest::plain("one", id), Guest::plain("other", ProcessId { pid: 1, start_ticks: 1 })];
        list.mark(&mut guests);
        assert_eq!(guests.map(|guest| guest.switched_off), [Some(SwitchOffReason::Prune), None]);
        let next = OffList::open(&directory).unwrap();
        let noted = SwitchedOff {
            process: id,
            name: target.name.clone(),
            why: SwitchOffReason::Prune,
            libvirt: LibvirtUri::default(),
            on_exit: None,
        };
        assert_eq!(next.guests(), [noted]);
        assert_eq!(next.claim(&[id], OnExit::Keep).unwrap(), [id]);
        // A write puts a new file in its place, and waits for the disk: each turn asks.
        let file = || fs::metadata(directory.undo()).unwrap().ino();
        let before = file();
        assert_eq!(next.claim(&[id], OnExit::Keep).unwrap(), []);
        assert_eq!(file(), before);
        assert_eq!(next.guests()[0].on_exit, Some(OnExit::Keep));
        next.set_on_exit(OnExit::Restore).unwrap();
        assert_eq!(next.guests()[0].on_exit, Some(OnExit::Restore));
        assert!(next.clone().listed(SwitchOffReason::Prune).is_empty(), "clones are one list");
        assert_eq!(OffList::open(&directory).unwrap().listed(SwitchOffReason::Domain).len(), 1);
        next.forget_the_gone(&Root::host()).unwrap();
        assert_eq!(next.guests().len(), 1, "it is there");
        next.note_outside(&[target.clone(), target.clone()], OnExit::Keep).unwrap();
        let before = file();
        next.note_outside(&[target], OnExit::Keep).unwrap();
        assert_eq!((file(), next.guests().len()), (before, 1), "it is noted already");
        next.remove_processes(&[id].into()).unwrap();
        assert!(!directory.undo().exists());
        assert!(OffList::open(&directory).unwrap().guests().is_empty());
    }

    /// The entry of a guest that has ended.
    const ENDED: &str = r#"{"entry":"switched_off","process":{"pid":1,"start_ticks":999999},"name":"old","why":"prune",
        "libvirt":"qemu:///system"}"#;

    fn put(directory: &StateDir, entries: &[&str]) {
        let entries = entries.join(",");
        let text =
            format!(r#"{{"version":1,"owner":{{"pid":1,"start_ticks":1}},"boot_id":null,"entries":[{entries}]}}"#);
        fs::write(directory.undo(), text).unwrap();
    }

    #[test]
    fn an_ended_guest_is_removed_without_a_word() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        directory.make().unwrap();
        put(&directory, &[ENDED]);
        let list = OffList::open(&directory).unwrap();
        let restore = |wanted| list.restore(&Root::host(), |guest| guest.why == wanted, false);
        assert_eq!(restore(SwitchOffReason::Domain), [""; 0]);
        assert_eq!(OffList::open(&directory).unwrap().guests().len(), 1, "it is listed for another reason");
        assert_eq!(restore(SwitchOffReason::Prune), [""; 0]);
        assert!(OffList::open(&directory).unwrap().guests().is_empty());
        assert!(!directory.undo().exists());
    }

    #[test]
    fn a_guest_that_can_not_be_read_stays_on_the_list() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        directory.make().unwrap();
        put(&directory, &[ENDED]);
        // An error that says nothing of the process, as of one that executes a program and does not answer.
        fs::create_dir_all(tree.path().join("proc/1/stat")).unwrap();
        let list = OffList::open(&directory).unwrap();
        let restore = || list.restore(&Root::at(tree.path()), |_| true, false);
        let notes = restore();
        assert!(notes.len() == 1 && notes[0].contains("process 1 can't be read"), "{notes:?}");
        assert_eq!(OffList::open(&directory).unwrap().guests().len(), 1);
        fs::remove_dir_all(tree.path().join("proc/1")).unwrap();
        assert_eq!(restore(), [""; 0]);
        assert_eq!(OffList::open(&directory).unwrap().guests(), []);
    }

    #[test]
    fn a_guest_that_hangs_stays_on_the_list_and_holds_up_no_other() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        let list = OffList::open(&directory).unwrap();
        let guest = |pid: u32| SwitchedOff {
            process: ProcessId { pid, start_ticks: 1 },
            name: format!("guest-{pid}"),
            why: SwitchOffReason::Prune,
            libvirt: LibvirtUri::default(),
            on_exit: None,
        };
        list.0.change(|all| all.extend((0..8).map(guest))).unwrap();
        let (never, hang) = crossbeam_channel::bounded::<()>(0);
        let notes = list.restore_with(
            |_| true,
            false,
            Duration::from_secs(3),
            move |guest| {
                if guest.process.pid == 3 {
                    let _ = hang.recv();
                }
                Ok(true)
            },
        );
        drop(never);
        let silent: Vec<&String> = notes.iter().filter(|note| note.contains("did not answer within")).collect();
        assert!(silent.len() == 1 && silent[0].starts_with("guest-3 (pid 3)"), "{notes:?}");
        assert_eq!(OffList::open(&directory).unwrap().guests(), [guest(3)]);
    }

    #[test]
    fn an_entry_that_is_not_understood_keeps_no_other_guest_off() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        directory.make().unwrap();
        put(&directory, &[ENDED, r#"{"entry":"switched_off","process":"one"}"#]);
        assert!(OffList::open(&directory).is_err());
        let (list, faults) = OffList::open_to_restore(&directory);
        assert!(faults.len() == 1 && faults[0].starts_with("switched_off: "), "{faults:?}");
        assert_eq!(list.restore(&Root::host(), |_| true, false), [""; 0]);
        assert!(fs::read_to_string(directory.undo()).unwrap().contains("one"), "nothing is lost");
        assert!(OffList::open_to_restore(&directory).0.guests().is_empty());
    }

    #[test]
    fn a_file_that_is_no_list_is_an_error() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path());
        fs::write(directory.undo(), "{").unwrap();
        assert!(OffList::open(&directory).unwrap_err().to_string().contains("undo.json"));
    }
}
