//! Permanent changes of settings.

use std::ops::ControlFlow;

use ksmith_core::knobs::Knob;

use super::control::restore_leftovers;
use super::{
    ActError, ControlError, KnobChange, KnobWriter, KsmJournal, KsmLock, StateDir, UndoError, UnmergeOptions,
    safe_sequence,
};
use crate::root::Root;

/// Exclusive right to make permanent changes: no other ksmith runs, and none will undo them later. What a killed ksmith
/// left is restored first.
#[derive(Debug)]
pub struct LastingControl {
    writer: KnobWriter,
    journal: Option<KsmJournal>,
    notes: Vec<String>,
    _lock: Option<KsmLock>,
}

impl LastingControl {
    /// Takes the lock, and restores what a killed ksmith left. In a dry run nothing is locked or restored.
    ///
    /// # Errors
    /// Another ksmith runs, or what a killed one left can't be restored.
    pub fn acquire(root: &Root, directory: &StateDir, dry_run: bool) -> Result<Self, ControlError> {
        let writer = KnobWriter::new(root, dry_run);
        if dry_run {
            return Ok(Self { writer, journal: None, notes: Vec::new(), _lock: None });
        }
        let lock = KsmLock::acquire(directory)?;
        let mut restoring = KnobWriter::new(root, false).with_journal(KsmJournal::open_to_restore(directory));
        let notes = restore_leftovers(&mut restoring)?;
        // Opened anew: settings that wait for memory are still in it.
        Ok(Self { writer, journal: Some(KsmJournal::open(directory)?), notes, _lock: Some(lock) })
    }

    /// Messages for the operator about what was restored.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the writer of permanent changes.
    pub fn writer(&mut self) -> &mut KnobWriter {
        &mut self.writer
    }

    /// Sets `knob` to `value` by [`safe_sequence`]. Meanwhile the journal holds the value of `run`: after SIGKILL in
    /// between, [`restore`](super::restore) starts ksmd again.
    ///
    /// # Errors
    /// As [`safe_sequence`], or the journal can't be written.
    pub fn set(
        &mut self,
        knob: Knob,
        value: u64,
        how: UnmergeOptions,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Vec<KnobChange>, Vec<ActError>> {
        let fail = |error| vec![error];
        let unnoted = |source: UndoError| vec![ActError::Journal { knob, source }];
        let run = self.writer.get(Knob::Run).map_err(fail)?;
        let before = self.journal.as_ref().map(KsmJournal::originals);
        if let (Some(journal), Some(run), true) = (&mut self.journal, run, knob.needs_nothing_merged()) {
            // On its way back from 2 or 0 it may be either, or what it was.
            let meanwhile = [2, 0, run].map(|new| KnobChange { knob: Knob::Run, old: run, new });
            journal.note_changes(&meanwhile).map_err(unnoted)?;
        }
        let outcome = safe_sequence(&mut self.writer, knob, value, how, progress);
        let is_settled = outcome.is_ok() || self.writer.get(Knob::Run).is_ok_and(|now| now == run);
        if let (Some(journal), Some(before), true) = (&mut self.journal, before, is_settled) {
            // A setting that waited to be restored does so no more once a person has chosen its value.
            let chosen = outcome.is_ok().then_some(knob);
            let left: Vec<Knob> =
                before.iter().map(|(noted, _)| noted).filter(|noted| Some(*noted) != chosen).collect();
            let paused = journal.paused().to_vec();
            journal.keep(&left, paused).map_err(unnoted)?;
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use ksmith_core::knobs::KnobSettings;

    use super::super::writer::tests::whole_tree;
    use super::super::{KsmControl, restore};
    use super::*;

    fn go_on(_: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn acquire_lasting(tree: &Path) -> LastingControl {
        let root = Root::at(tree);
        LastingControl::acquire(&root, &StateDir::from_root(&root), false).unwrap()
    }

    fn journal(tree: &Path) -> KsmJournal {
        KsmJournal::open(&StateDir::from_root(&Root::at(tree))).unwrap()
    }

    #[test]
    fn what_a_killed_one_left_is_restored_before_and_not_after() {
        let tree = whole_tree();
        let root = Root::at(tree.path());
        KnobWriter::new(&root, false).with_journal(journal(tree.path())).set(Knob::SleepMillisecs, 5).unwrap();
        let mut lasting = acquire_lasting(tree.path());
        assert!(lasting.notes().contains(&"restored sleep_millisecs 5 -> 20".to_owned()), "{:?}", lasting.notes());
        lasting.set(Knob::SleepMillisecs, 77, UnmergeOptions::default(), go_on).unwrap();
        drop(lasting);
        let restored =
            restore(&mut KnobWriter::new(&root, false).with_journal(journal(tree.path())), false).unwrap();
        assert!(restored.changes.is_empty(), "{restored:?}");
        assert_eq!(KnobWriter::new(&root, true).get(Knob::SleepMillisecs).unwrap(), Some(77));
    }

    #[test]
    fn run_is_not_touched_for_another_setting_unless_it_is_noted() {
        let tree = whole_tree();
        let mut lasting = acquire_lasting(tree.path());
        lasting.writer().set(Knob::Run, 1).unwrap();
        fs::create_dir_all(tree.path().join("run/ksmith/undo.json.new")).unwrap();
        let errors = lasting.set(Knob::MaxPageSharing, 16, UnmergeOptions::default(), go_on).unwrap_err();
        assert!(matches!(errors[..], [ActError::Journal { .. }]), "{errors:?}");
        assert_eq!(lasting.writer().get(Knob::Run).unwrap(), Some(1));
        assert_eq!(lasting.writer().get(Knob::MaxPageSharing).unwrap(), Some(256));
        assert_eq!(lasting.set(Knob::PagesToScan, 7, UnmergeOptions::default(), go_on).unwrap().len(), 1);
        fs::remove_dir(tree.path().join("run/ksmith/undo.json.new")).unwrap();
        let changes = lasting.set(Knob::MaxPageSharing, 16, UnmergeOptions::default(), go_on).unwrap();
        assert_eq!(changes.len(), 3);
        assert!(journal(tree.path()).is_empty());
    }

    #[test]
    fn a_setting_that_waited_for_memory_gives_way_to_the_one_chosen_now() {
        let tree = whole_tree();
        let root = Root::at(tree.path());
        let sharing = tree.path().join("sys/kernel/mm/ksm/pages_sharing");
        KnobWriter::new(&root, false).with_journal(journal(tree.path())).set(Knob::MaxPageSharing, 16).unwrap();
        fs::write(&sharing, "9\n").unwrap();
        let mut lasting = acquire_lasting(tree.path());
        assert_eq!(journal(tree.path()).originals(), KnobSettings::none().with(Knob::MaxPageSharing, 256));
        lasting.set(Knob::SleepMillisecs, 77, UnmergeOptions::default(), go_on).unwrap();
        assert_eq!(journal(tree.path()).originals(), KnobSettings::none().with(Knob::MaxPageSharing, 256));
        fs::write(&sharing, "0\n").unwrap();
        lasting.set(Knob::MaxPageSharing, 32, UnmergeOptions::default(), go_on).unwrap();
        assert!(journal(tree.path()).is_empty());
    }

    #[test]
    fn a_dry_run_locks_nothing() {
        let tree = whole_tree();
        let root = Root::at(tree.path());
        let directory = StateDir::from_root(&root);
        let control = KsmControl::acquire(&root, &directory, false, false).unwrap();
        let mut dry = LastingControl::acquire(&root, &directory, true).unwrap();
        assert_eq!(dry.set(Knob::Run, 1, UnmergeOptions::default(), go_on).unwrap().len(), 1);
        assert!(matches!(LastingControl::acquire(&root, &directory, false), Err(ControlError::Lock(_))));
        drop(control);
    }
}
