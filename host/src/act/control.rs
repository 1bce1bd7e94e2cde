//! Temporary control of KSM: every change is undone at the end.

use std::fmt;

use ksmith_core::knobs::Knob;

use super::affinity::{self, AffinityError};
use super::pause::PausedProcess;
use super::restore::restore;
use super::{
    ActError, KnobWriter, KsmJournal, KsmLock, LockError, PauseError, RestoreError, RestoreOutcome, StateDir,
    UndoError,
};
use crate::other_controllers::{ControllerProcess, find};
use crate::root::Root;
use ksmith_core::other_controllers::ControllerConflict;

/// An error from taking control of KSM.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another ksmith holds the lock, or the lock can't be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The undo store can't be used, so changes could not be undone.
    #[error(transparent)]
    Journal(#[from] UndoError),
    /// Settings that a killed ksmith left could not be restored.
    #[error("a ksmith that was killed left settings behind, and they could not be restored: {0}")]
    Stale(#[source] RestoreError),
    /// Other programs control KSM.
    #[error(transparent)]
    Held(#[from] ControlledByOthers),
    /// Another program could not be paused.
    #[error(transparent)]
    Pause(#[from] PauseError),
}

/// The error for other programs that control KSM.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ControlledByOthers(pub Vec<ControllerProcess>);

/// `KSM is controlled by ksmtuned (pid 812): hand over to ksmith (systemctl disable --now ksmtuned; …`
impl fmt::Display for ControlledByOthers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        let mut remedies: Vec<String> = self.0.iter().map(ControllerProcess::remedy).collect();
        remedies.dedup();
        let pause = if self.0.iter().any(ControllerProcess::can_be_paused) {
            "to pause it while ksmith runs"
        } else {
            "all the same"
        };
        write!(
            f,
            "KSM is controlled by {}: hand over to ksmith ({}; or `ksmith setup`), or start with --take-over {pause}",
            names.join(" and "),
            remedies.join("; "),
        )
    }
}

/// A state directory that was removed while this process had control.
#[derive(Debug, Default, thiserror::Error)]
#[error("the lock in the state directory was removed or replaced, and a second ksmith could start beside this one{}",
        .unwritten.as_ref().map_or_else(String::new, |why| format!("; after a kill nothing can be restored: {why}")))]
pub struct LostState {
    /// The reason why the journal could not be written anew.
    unwritten: Option<UndoError>,
}

/// Exclusive control of KSM. Dropping it (on return, on an error or on a panic) restores what was changed through
/// [`KsmControl::writer`] and continues paused processes. After SIGKILL the next [`KsmControl::take`] or [`restore`] does so.
#[derive(Debug)]
pub struct KsmControl {
    writer: KnobWriter,
    notes: Vec<String>,
    // Dropped after `drop` has restored: the next ksmith starts from restored settings.
    lock: Option<KsmLock>,
}

impl KsmControl {
    /// Takes control of KSM: locks out other ksmiths, restores what a killed one left, and fails if another program
    /// controls KSM. With `take_over`, programs that can be paused are paused until restoring.
    ///
    /// In a dry run nothing is locked, restored or paused; [`notes`](Self::notes) say what would be.
    ///
    /// # Errors
    /// See [`ControlError`]; nothing has been changed then, except that a killed ksmith's changes may be undone.
    pub fn acquire(
        root: &Root,
        directory: &StateDir,
        dry_run: bool,
        take_over: bool,
    ) -> Result<Self, ControlError> {
        let mut control = if dry_run {
            Self { writer: KnobWriter::new(root, true), notes: Vec::new(), lock: None }
        } else {
            let lock = KsmLock::acquire(directory)?;
            let writer = KnobWriter::new(root, false).with_journal(KsmJournal::open_to_restore(directory));
            Self { writer, notes: Vec::new(), lock: Some(lock) }
        };
        control.restore_leftovers()?;
        control.handle_controllers(find(root), take_over)?;
        Ok(control)
    }

    /// Messages for the operator about how control was taken.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the controlled host.
    pub fn root(&self) -> &Root {
        self.writer.root()
    }

    /// Returns the writer of settings.
    pub fn writer(&mut self) -> &mut KnobWriter {
        &mut self.writer
    }

    /// Returns the reason to end control: the state directory was removed, so that a second ksmith could not tell that
    /// this one has control. Before that the journal is written anew, if it can be, for the case of a kill. A call
    /// costs some microseconds.
    pub fn find_lost_state(&self) -> Option<LostState> {
        self.lock.as_ref().filter(|lock| !lock.is_in_place())?;
        let journal = self.writer.journal().filter(|journal| !journal.is_empty());
        Some(LostState { unwritten: journal.and_then(|journal| journal.write_anew().err()) })
    }

    /// Records every setting's value, to be restored whatever program changes it meanwhile. For a program that is
    /// started to change settings, with or without a journal of its own.
    ///
    /// # Errors
    /// A setting can't be read or the journal can't be written.
    pub fn note_all(&mut self) -> Result<(), ActError> {
        let mut now = Vec::new();
        for knob in Knob::ALL {
            now.extend(self.writer.get(knob)?.map(|value| (knob, value)));
        }
        self.writer.note_whatever_comes(&now).map_err(|source| ActError::Journal { knob: Knob::Run, source })
    }

    /// Binds ksmd to a list of CPUs (`0-1`) until restoring. Returns its CPUs before, if they differ.
    ///
    /// # Errors
    /// The list is malformed, ksmd can't be found or the kernel refuses; then ksmd stays where it is.
    pub fn bind_ksmd(&mut self, cpus: &str) -> Result<Option<String>, AffinityError> {
        let wanted = affinity::canonical(cpus)?;
        let before = affinity::now(self.writer.root())?;
        if before == wanted || self.writer.is_dry_run() {
            return Ok((before != wanted).then_some(before));
        }
        if let Some(journal) = self.writer.journal_mut() {
            journal.note_ksmd_cpus(before.clone())?;
        }
        affinity::bind(self.writer.root(), &wanted)?;
        Ok(Some(before))
    }

    /// Restores everything. Returns what was done.
    ///
    /// # Errors
    /// Something could not be put back. The journal is kept, and `ksmith restore` tries again.
    pub fn restore(mut self) -> Result<RestoreOutcome, RestoreError> {
        let outcome = restore(&mut self.writer, false);
        // What has failed now would fail again in `drop`.
        self.writer = KnobWriter::new(self.writer.root(), true);
        outcome
    }

    fn restore_leftovers(&mut self) -> Result<(), ControlError> {
        let notes = restore_leftovers(&mut self.writer).inspect_err(|_| {
            self.writer = KnobWriter::new(self.writer.root(), true);
        })?;
        self.notes.extend(notes);
        Ok(())
    }

    fn handle_controllers(&mut self, holders: Vec<ControllerProcess>, take_over: bool) -> Result<(), ControlError> {
        let (holders, possible): (Vec<ControllerProcess>, Vec<ControllerProcess>) =
            holders.into_iter().partition(|holder| holder.controller.conflict == ControllerConflict::Certain);
        self.notes.extend(
            possible
                .iter()
                .map(|holder| format!("{holder} may write to KSM too: `ksmith doctor` says how to tell")),
        );
        if holders.is_empty() {
            return Ok(());
        }
        if self.writer.is_dry_run() {
            self.notes.push(format!("this would be refused without --take-over: {}", ControlledByOthers(holders)));
            return Ok(());
        }
        if !take_over {
            return Err(ControlledByOthers(holders).into());
        }
        for holder in holders {
            // A PID of a captured tree is another process's here.
            if !holder.can_be_paused() || !self.writer.root().is_host() {
                let why = match holder.can_be_paused() {
                    true => "it is not on this host",
                    false => "it would be ended or hang meanwhile",
                };
                self.notes.push(format!("{holder} is not paused: {why}"));
                continue;
            }
            let process = PausedProcess {
                pid: holder.id.pid,
                start_ticks: holder.id.start_ticks,
                what: holder.name().to_owned(),
            };
            if let Some(journal) = self.writer.journal_mut() {
                journal.note_paused(process.clone())?;
            }
            if process.stop()? {
                self.notes.push(format!("{holder} is paused until the settings are restored"));
            }
        }
        Ok(())
    }
}

/// Restores what the journal of `writer` holds. Returns messages for the operator. The caller holds the lock. An entry
/// that can't be read keeps ksmith from starting, but keeps no other entry from being restored.
pub(super) fn restore_leftovers(writer: &mut KnobWriter) -> Result<Vec<String>, ControlError> {
    let damage = writer.journal_mut().and_then(|journal| journal.take_faults().into_iter().next());
    let mut notes = Vec::new();
    if !writer.journal().is_none_or(KsmJournal::is_empty) {
        let restored = restore(writer, false).map_err(ControlError::Stale)?;
        notes.push("a ksmith that was killed had left its settings; they are restored".to_owned());
        notes.extend(restored.changes.iter().map(|change| format!("restored {change}")));
        notes.extend(restored.notes);
    }
    damage.map_or(Ok(notes), |damage| Err(damage.into()))
}

impl Drop for KsmControl {
    fn drop(&mut self) {
        if self.writer.is_dry_run() {
            return;
        }
        match restore(&mut self.writer, false) {
            Ok(restored) => {
                restored.changes.iter().for_each(|change| tracing::info!("restored {change}"));
                restored.notes.iter().for_each(|note| tracing::warn!("{note}"));
            }
            Err(error) => tracing::error!("{error}; try again with: `ksmith restore`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;

    use ksmith_core::knobs::KnobSettings;

    use super::super::writer::tests::whole_tree;
    use super::*;

    fn try_acquire(tree: &Path) -> Result<KsmControl, ControlError> {
        let root = Root::at(tree);
        KsmControl::acquire(&root, &StateDir::from_root(&root), false, false)
    }

    /// As [`take`], where the lock was held a moment ago: a process that another test starts right now has a copy of the
    /// lock's descriptor until it execs.
    fn take_next(tree: &Path) -> KsmControl {
        loop {
            match try_acquire(tree) {
                Err(ControlError::Lock(LockError::Held { .. })) => std::thread::yield_now(),
                taken => return taken.unwrap(),
            }
        }
    }

    fn run(tree: &Path) -> String {
        fs::read_to_string(tree.join("sys/kernel/mm/ksm/run")).unwrap().trim().to_owned()
    }

    fn ksmtuned(tree: &Path) {
        process(tree, "/bin/bash\0/usr/sbin/ksmtuned\0");
    }

    fn process(tree: &Path, command_line: &str) {
        let directory = tree.join("proc/812");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("cmdline"), command_line).unwrap();
        fs::write(directory.join("status"), "Uid:\t0\t0\t0\t0\n").unwrap();
        fs::write(directory.join("stat"), "812 (ksmtuned) S 1 1 1 0 -1 0 0 0 0 0 5 6 0 0 20 0 1 0 900 1000 33 0")
            .unwrap();
    }

    #[test]
    fn a_removed_state_directory_is_noticed_and_the_journal_written_anew() {
        let tree = whole_tree();
        let root = Root::at(tree.path());
        let directory = StateDir::from_root(&root);
        let mut control = KsmControl::acquire(&root, &directory, false, false).unwrap();
        control.writer().set(Knob::Run, 1).unwrap();
        assert!(control.find_lost_state().is_none());
        fs::remove_dir_all(directory.path()).unwrap();
        let lost = control.find_lost_state().unwrap();
        assert!(lost.unwritten.is_none(), "{lost}");
        let journal = KsmJournal::open(&directory).unwrap();
        assert_eq!(journal.original(Knob::Run), Some(0), "a kill now leaves what is to be restored");
        control.restore().unwrap();
        assert!(KsmJournal::open(&directory).unwrap().is_empty());
    }

    #[test]
    fn dropping_restores_on_return_error_and_panic() {
        let tree = whole_tree();
        let mut control = try_acquire(tree.path()).unwrap();
        control.writer().set(Knob::Run, 1).unwrap();
        assert_eq!(run(tree.path()), "1");
        drop(control);
        assert_eq!(run(tree.path()), "0");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut control = take_next(tree.path());
            control.writer().set(Knob::Run, 1).unwrap();
            panic!("in the middle of a burst");
        }));
        assert!(panicked.is_err());
        assert_eq!(run(tree.path()), "0");
    }

    #[test]
    fn what_others_change_is_restored_once_it_is_noted() {
        let tree = whole_tree();
        let mut control = try_acquire(tree.path()).unwrap();
        control.note_all().unwrap();
        fs::write(tree.path().join("sys/kernel/mm/ksm/pages_to_scan"), "4321\n").unwrap();
        fs::write(tree.path().join("sys/kernel/mm/ksm/run"), "1\n").unwrap();
        let changes: Vec<_> = control.restore().unwrap().changes.iter().map(ToString::to_string).collect();
        assert_eq!(changes, ["run 1 -> 0", "pages_to_scan 4321 -> 100"]);
    }

    #[test]
    fn an_explicit_restore_says_what_it_did() {
        let tree = whole_tree();
        let mut control = try_acquire(tree.path()).unwrap();
        control.writer().apply(&KnobSettings::none().with(Knob::SmartScan, 0).with(Knob::Run, 1));
        let changes: Vec<_> = control.restore().unwrap().changes.iter().map(ToString::to_string).collect();
        assert_eq!(changes, ["run 1 -> 0", "smart_scan 0 -> 1"]);
    }

    #[test]
    fn what_a_killed_one_left_is_restored_at_the_next_start() {
        let tree = whole_tree();
        let mut killed = try_acquire(tree.path()).unwrap();
        killed.writer().set(Knob::Run, 1).unwrap();
        // Ends without `drop`, as by SIGKILL, where the kernel lets go of the lock.
        killed.lock = None;
        std::mem::forget(killed);
        let next = take_next(tree.path());
        assert_eq!(run(tree.path()), "0");
        assert!(next.notes().contains(&"restored run 1 -> 0".to_owned()), "{:?}", next.notes());
    }

    #[test]
    fn only_one_ksmith_at_a_time() {
        let tree = whole_tree();
        let _control = try_acquire(tree.path()).unwrap();
        assert!(matches!(try_acquire(tree.path()), Err(ControlError::Lock(LockError::Held { pid: Some(_) }))));
    }

    #[test]
    fn a_handler_that_only_may_write_keeps_no_ksmith_from_starting() {
        let tree = whole_tree();
        process(tree.path(), "virt-handler\0--port\08443\0");
        let control = try_acquire(tree.path()).unwrap();
        let said = "virt-handler (pid 812) may write to KSM too: `ksmith doctor` says how to tell";
        assert_eq!(control.notes(), [said]);
    }

    #[test]
    fn another_controller_is_named_with_what_to_do() {
        let tree = whole_tree();
        ksmtuned(tree.path());
        assert_eq!(
            try_acquire(tree.path()).unwrap_err().to_string(),
            "KSM is controlled by ksmtuned (pid 812): hand over to ksmith (systemctl disable --now ksmtuned; \
             or `ksmith setup`), or start with --take-over to pause it while ksmith runs"
        );
    }

    #[test]
    fn a_process_of_a_captured_tree_is_never_signalled() {
        let tree = whole_tree();
        ksmtuned(tree.path());
        let root = Root::at(tree.path());
        let control = KsmControl::acquire(&root, &StateDir::from_root(&root), false, true).unwrap();
        assert_eq!(control.notes(), ["ksmtuned (pid 812) is not paused: it is not on this host"]);
        assert!(control.writer.journal().unwrap().is_empty());
    }

    #[test]
    fn a_dry_run_needs_no_lock_and_leaves_no_trace() {
        let tree = whole_tree();
        ksmtuned(tree.path());
        let root = Root::at(tree.path());
        let mut control = KsmControl::acquire(&root, &StateDir::from_root(&root), true, false).unwrap();
        assert!(control.notes()[0].contains("would be refused"), "{:?}", control.notes());
        assert!(control.writer().set(Knob::Run, 1).unwrap().is_some());
        drop(control);
        assert!(!tree.path().join("run").exists());
        assert_eq!(run(tree.path()), "0");
    }

    #[test]
    fn without_a_place_for_the_journal_nothing_starts() {
        let tree = whole_tree();
        fs::write(tree.path().join("run"), "a file where the directory should be").unwrap();
        assert!(matches!(try_acquire(tree.path()), Err(ControlError::Lock(LockError::Unusable { .. }))));
    }
}
