//! Restoring from the journal: at exit, at the next start, or by hand.

use std::fmt;
use std::ops::ControlFlow;

use ksmith_core::knobs::{Knob, KnobSettings};

use super::plan::{RestoreStep, plan};
use super::safe_sequence::safe_sequence_of;
use super::{ActError, KnobChange, KnobWriter, KsmJournal, PauseError, UndoError, UnmergeError, UnmergeOptions};
use super::{affinity, identity, unmerge};

/// The outcome of restoring.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RestoreOutcome {
    /// Settings that were restored, in this order.
    pub changes: Vec<KnobChange>,
    /// Messages for the operator.
    pub notes: Vec<String>,
    /// Settings that have to wait, since they need everything unmerged and memory or time is short. They stay in the
    /// journal for the next time.
    pub left: KnobSettings,
}

/// An error from restoring. The journal is still there, and restoring can be tried again.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The ksmith that wrote the store still runs.
    #[error("ksmith (pid {pid}) is running and restores the settings when it ends: end it, or force this")]
    OwnerAlive {
        /// Its PID.
        pid: u32,
    },
    /// Some settings or processes could not be restored.
    #[error("not everything was restored: {list}; the rest is recorded, and `ksmith restore` tries it \
        again", list = FailureList(.knobs, .processes, .store))]
    Incomplete {
        /// The partial outcome.
        restored: Box<RestoreOutcome>,
        /// Settings that failed.
        knobs: Vec<ActError>,
        /// Paused processes that could not be continued.
        processes: Vec<PauseError>,
        /// Errors from removing the restored entries from the undo store.
        store: Vec<UndoError>,
    },
}

struct FailureList<'a>(&'a [ActError], &'a [PauseError], &'a [UndoError]);

impl fmt::Display for FailureList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let knobs = self.0.iter().map(ToString::to_string);
        let processes = self.1.iter().map(ToString::to_string);
        let store = self.2.iter().map(|why| format!("what was restored is still recorded: {why}"));
        let all: Vec<String> = knobs.chain(processes).chain(store).collect();
        f.write_str(&all.join("; "))
    }
}

/// Restores what the journal of `writer` holds, continues paused processes, and removes the journal once nothing is
/// left to do. It is idempotent. A writer without a journal has nothing to restore.
///
/// A setting that another program has changed since stays as it is, with a message. One failure keeps nothing else from
/// being restored.
///
/// # Errors
/// `force` is not set and another living ksmith owns the journal; or something could not be put back.
pub fn restore(writer: &mut KnobWriter, force: bool) -> Result<RestoreOutcome, RestoreError> {
    restore_within(writer, force, UnmergeOptions::default())
}

/// Restores as [`restore`] does, with options for the unmerging that a setting may need.
///
/// # Errors
/// As [`restore`].
pub fn restore_within(
    writer: &mut KnobWriter,
    force: bool,
    how: UnmergeOptions,
) -> Result<RestoreOutcome, RestoreError> {
    writer.end_lease();
    let Some(journal) = writer.journal().filter(|journal| !journal.is_empty()) else {
        return Ok(RestoreOutcome::default());
    };
    refuse_living_owner(journal, force)?;
    let paused = journal.paused().to_vec();
    let now: KnobSettings =
        Knob::ALL.into_iter().filter_map(|knob| Some((knob, writer.get(knob).ok()??))).collect();
    let (ours, others) = ours_and_others(journal, &now);

    let mut restoring =
        RestoreRun { how, restored: RestoreOutcome::default(), errors: Vec::new(), kept: Vec::new() };
    restoring.restored.notes = others;
    let mut store = Vec::from_iter(put_ksmd_back(writer, &mut restoring.restored).err());
    for step in plan(&ours, &now) {
        restoring.run_step(step, writer);
    }
    let RestoreRun { mut restored, errors: knobs, mut kept, .. } = restoring;
    kept.extend(restored.left.iter().map(|(knob, _)| knob));
    let mut processes = Vec::new();
    let mut still_paused = Vec::new();
    for process in paused.into_iter().filter(|_| !writer.is_dry_run()) {
        match process.go_on() {
            Ok(true) => restored.notes.push(format!("{} (pid {}) continues", process.what, process.pid)),
            Ok(false) => {}
            Err(error) => {
                processes.push(error);
                still_paused.push(process);
            }
        }
    }
    let is_dry_run = writer.is_dry_run();
    if let Some(journal) = writer.journal_mut().filter(|_| !is_dry_run) {
        store.extend(journal.keep(&kept, still_paused).err());
    }
    if knobs.is_empty() && processes.is_empty() && store.is_empty() {
        return Ok(restored);
    }
    Err(RestoreError::Incomplete { restored: Box::new(restored), knobs, processes, store })
}

/// Returns the original values of what ksmith wrote last, and a message for each setting that another program has
/// changed since.
fn ours_and_others(journal: &KsmJournal, now: &KnobSettings) -> (KnobSettings, Vec<String>) {
    let (mut ours, mut others) = (KnobSettings::none(), Vec::new());
    for (knob, original) in journal.originals().iter() {
        match now.get(knob).filter(|now| !journal.is_ours(knob, *now)) {
            None => ours.set(knob, original),
            Some(now) => {
                let text = |value: u64| knob.text(value);
                let written = journal.written(knob).unwrap_or_default();
                let written: Vec<String> = written.iter().map(|value| text(*value)).collect();
                others.push(format!(
                    "{knob} is {} by another program and stays so; ksmith last wrote {}, and it was {} before ksmith",
                    text(now),
                    written.join(" or "),
                    text(original),
                ));
            }
        }
    }
    (ours, others)
}

/// Restores ksmd's CPUs. If they are offline, only a message is added, and the record stays.
fn put_ksmd_back(writer: &mut KnobWriter, restored: &mut RestoreOutcome) -> Result<(), UndoError> {
    let Some(cpus) = writer.journal().and_then(KsmJournal::ksmd_cpus).map(str::to_owned) else { return Ok(()) };
    if writer.is_dry_run() {
        restored.notes.push(format!("ksmd would be let back on CPUs {cpus}"));
        return Ok(());
    }
    match affinity::bind(writer.root(), &cpus) {
        Ok(()) => {
            restored.notes.push(format!("ksmd is back on CPUs {cpus}"));
            writer.journal_mut().map_or(Ok(()), KsmJournal::forget_ksmd_cpus)
        }
        Err(why) => {
            restored.notes.push(format!("{why}; later: ksmith restore"));
            Ok(())
        }
    }
}

fn refuse_living_owner(journal: &KsmJournal, force: bool) -> Result<(), RestoreError> {
    let Some(owner) = journal.owner().filter(|_| !force) else { return Ok(()) };
    let is_other = identity::own().map_or(true, |own| own != owner);
    if is_other && !identity::has_ended(owner) {
        return Err(RestoreError::OwnerAlive { pid: owner.pid });
    }
    Ok(())
}

struct RestoreRun {
    how: UnmergeOptions,
    restored: RestoreOutcome,
    errors: Vec<ActError>,
    /// Knobs that failed and stay in the journal.
    kept: Vec<Knob>,
}

impl RestoreRun {
    fn run_step(&mut self, step: RestoreStep, writer: &mut KnobWriter) {
        match step {
            RestoreStep::Set(knob, value) => match writer.set(knob, value) {
                Ok(change) => self.restored.changes.extend(change),
                Err(error) => self.fail(knob, error),
            },
            RestoreStep::SetUnmerged(settings) => self.set_unmerged(&settings, writer),
            RestoreStep::Unmerge => {
                if let Err(error) = unmerge_again(writer, self.how, &mut self.restored) {
                    self.fail(Knob::Run, error);
                }
            }
            RestoreStep::Say(text) => self.restored.notes.push(text),
        }
    }

    fn fail(&mut self, knob: Knob, error: ActError) {
        self.errors.push(error);
        self.kept.push(knob);
    }

    fn set_unmerged(&mut self, settings: &[(Knob, u64)], writer: &mut KnobWriter) {
        let (changes, errors) = safe_sequence_of(writer, settings, self.how, |_| ControlFlow::Continue(()));
        self.restored.changes.extend(changes);
        let is_missing = |knob, value| writer.get(knob).map_or(true, |now| now.is_some_and(|now| now != value));
        let missing: Vec<_> = settings
            .iter()
            .copied()
            .filter(|(knob, value)| !errors.is_empty() && is_missing(*knob, *value))
            .collect();
        if !errors.iter().all(must_wait) {
            self.kept.extend(missing.iter().map(|(knob, _)| knob));
            self.errors.extend(errors);
            return;
        }
        let why = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        for (knob, value) in missing {
            let was = knob.text(value);
            self.restored.notes.push(format!(
                "{knob} was {was} and is not restored: {why}; later: ksmith restore --patience SECONDS"
            ));
            self.restored.left.set(knob, value);
        }
    }
}

/// Returns true if a setting waits for memory, or for more time than there was.
fn must_wait(error: &ActError) -> bool {
    let ActError::NeedsUnmerge { source, .. } = error else { return false };
    matches!(source, UnmergeError::NoHeadroom(_) | UnmergeError::Stopped { .. })
}

/// Restores `run` = 2: everything unmerged, ksmd stopped. Without the memory for it, ksmd is only stopped.
fn unmerge_again(
    writer: &mut KnobWriter,
    how: UnmergeOptions,
    restored: &mut RestoreOutcome,
) -> Result<(), ActError> {
    let Some(old) = writer.get(Knob::Run)? else { return Ok(()) };
    match unmerge(writer, how, |_| ControlFlow::Continue(())) {
        Ok(_) if old == 2 => {}
        Ok(_) => restored.changes.push(KnobChange { knob: Knob::Run, old, new: 2 }),
        Err(why) => {
            restored.changes.extend(writer.set(Knob::Run, 0)?);
            restored.notes.push(format!(
                "run was 2 (everything unmerged) and is 0 now, so that what is merged stays: {why}; \
                 later: ksmith unmerge"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::writer::tests::{tree, whole_tree};
    use super::super::{PausedProcess, StateDir};
    use super::*;
    use crate::root::Root;

    fn writer(tree: &Path) -> KnobWriter {
        let root = Root::at(tree);
        let journal = KsmJournal::open(&StateDir::from_root(&root)).unwrap();
        KnobWriter::new(&root, false).with_journal(journal)
    }

    fn contents(tree: &Path) -> Vec<(Knob, u64)> {
        let writer = writer(tree);
        Knob::ALL.into_iter().filter_map(|knob| Some((knob, writer.get(knob).unwrap()?))).collect()
    }

    fn change_much(writer: &mut KnobWriter) {
        let wanted = KnobSettings::none()
            .with(Knob::AdvisorMode, 0)
            .with(Knob::SmartScan, 0)
            .with(Knob::PagesToScan, 12)
            .with(Knob::SleepMillisecs, 3)
            .with(Knob::Run, 1);
        assert!(writer.apply(&wanted).1.is_empty());
    }

    #[test]
    fn another_process_puts_everything_back_and_doing_it_again_does_nothing() {
        let tree = whole_tree();
        let before = contents(tree.path());
        change_much(&mut writer(tree.path()));
        assert_ne!(contents(tree.path()), before);
        let mut next = writer(tree.path());
        let restored = restore(&mut next, false).unwrap();
        assert_eq!(contents(tree.path()), before);
        assert_eq!(restored.changes.first().unwrap().to_string(), "run 1 -> 0");
        assert_eq!(restore(&mut next, false).unwrap(), RestoreOutcome::default());
        assert!(!tree.path().join("run/ksmith/undo.json").exists());
    }

    #[test]
    fn a_dry_run_leaves_the_journal() {
        let tree = whole_tree();
        change_much(&mut writer(tree.path()));
        let changed = contents(tree.path());
        let root = Root::at(tree.path());
        let mut dry =
            KnobWriter::new(&root, true).with_journal(KsmJournal::open(&StateDir::from_root(&root)).unwrap());
        assert_eq!(restore(&mut dry, false).unwrap().changes.len(), 4);
        assert_eq!(contents(tree.path()), changed);
        assert!(!KsmJournal::open(&StateDir::from_root(&root)).unwrap().is_empty());
    }

    #[test]
    fn what_fails_keeps_the_journal_and_the_rest_is_restored() {
        let tree = whole_tree();
        let before = contents(tree.path());
        change_much(&mut writer(tree.path()));
        let smart_scan = tree.path().join("sys/kernel/mm/ksm/smart_scan");
        fs::write(&smart_scan, "what?").unwrap();
        let error = restore(&mut writer(tree.path()), false).unwrap_err();
        assert!(error.to_string().contains("smart_scan makes no sense"), "{error}");
        fs::write(&smart_scan, "0").unwrap();
        restore(&mut writer(tree.path()), false).unwrap();
        assert_eq!(contents(tree.path()), before);
    }

    #[test]
    fn what_another_program_has_set_since_stays_and_is_said() {
        let tree = whole_tree();
        let before = contents(tree.path());
        change_much(&mut writer(tree.path()));
        fs::write(tree.path().join("sys/kernel/mm/ksm/sleep_millisecs"), "77\n").unwrap();
        let restored = restore(&mut writer(tree.path()), false).unwrap();
        let said = "sleep_millisecs is 77 by another program and stays so; ksmith last wrote 3, and it was 20 before ksmith";
        assert_eq!(restored.notes, [said]);
        let repaired: Vec<_> = before
            .into_iter()
            .map(|(knob, value)| (knob, if knob == Knob::SleepMillisecs { 77 } else { value }))
            .collect();
        assert_eq!(contents(tree.path()), repaired);
        assert!(!tree.path().join("run/ksmith/undo.json").exists());
    }

    #[test]
    fn what_failed_alone_stays_in_the_journal() {
        let tree = whole_tree();
        change_much(&mut writer(tree.path()));
        let smart_scan = tree.path().join("sys/kernel/mm/ksm/smart_scan");
        fs::write(&smart_scan, "what?").unwrap();
        restore(&mut writer(tree.path()), false).unwrap_err();
        assert_eq!(
            writer(tree.path()).journal().unwrap().originals(),
            KnobSettings::none().with(Knob::SmartScan, 1)
        );
    }

    #[test]
    fn a_living_owner_is_not_disturbed_unless_forced() {
        let tree = whole_tree();
        change_much(&mut writer(tree.path()));
        let journal = tree.path().join("run/ksmith/undo.json");
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let owner = *identity::read_id(&Root::host(), child.id()).value().unwrap();
        let own = identity::own().unwrap();
        let text = fs::read_to_string(&journal).unwrap();
        // By their keys: soon after a boot the ticks are so few digits that the boot's id may have them too.
        let text = text.replace(&format!(r#""pid": {}"#, own.pid), &format!(r#""pid": {}"#, owner.pid)).replace(
            &format!(r#""start_ticks": {}"#, own.start_ticks),
            &format!(r#""start_ticks": {}"#, owner.start_ticks),
        );
        fs::write(&journal, &text).unwrap();
        let error = restore(&mut writer(tree.path()), false).unwrap_err();
        assert!(matches!(error, RestoreError::OwnerAlive { pid } if pid == owner.pid), "{error}");
        restore(&mut writer(tree.path()), true).unwrap();
        assert!(!journal.exists());
        fs::write(&journal, &text).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        restore(&mut writer(tree.path()), false).unwrap();
    }

    #[test]
    fn what_needs_unmerging_waits_for_memory_in_the_journal() {
        let tree = whole_tree();
        let ksm = tree.path().join("sys/kernel/mm/ksm");
        writer(tree.path()).set(Knob::MaxPageSharing, 16).unwrap();
        fs::write(ksm.join("pages_sharing"), "9\n").unwrap();
        let restored = restore(&mut writer(tree.path()), false).unwrap();
        assert_eq!(restored.left, KnobSettings::none().with(Knob::MaxPageSharing, 256));
        assert!(restored.notes[0].contains("max_page_sharing was 256 and is not restored"), "{restored:?}");
        fs::write(ksm.join("pages_sharing"), "0\n").unwrap();
        let restored = restore(&mut writer(tree.path()), false).unwrap();
        assert_eq!(restored.changes.last().unwrap().to_string(), "max_page_sharing 16 -> 256");
        assert!(writer(tree.path()).journal().unwrap().is_empty());
    }

    #[test]
    fn a_host_that_was_unmerged_is_unmerged_again_if_memory_suffices() {
        for (sharing, run, notes) in [("0\n", 2, 0), ("9\n", 0, 1)] {
            let tree = whole_tree();
            let ksm = tree.path().join("sys/kernel/mm/ksm");
            fs::write(ksm.join("run"), "2\n").unwrap();
            writer(tree.path()).set(Knob::Run, 1).unwrap();
            fs::write(ksm.join("pages_sharing"), sharing).unwrap();
            let restored = restore(&mut writer(tree.path()), false).unwrap();
            assert_eq!(writer(tree.path()).get(Knob::Run).unwrap(), Some(run));
            assert_eq!(restored.notes.len(), notes);
            assert!(writer(tree.path()).journal().unwrap().is_empty());
        }
    }

    #[test]
    fn without_a_journal_nothing_is_written() {
        let tree = tree(&[("run", "1\n")]);
        assert_eq!(restore(&mut writer(tree.path()), false).unwrap(), RestoreOutcome::default());
        let mut lasting = KnobWriter::new(&Root::at(tree.path()), false);
        lasting.set(Knob::Run, 0).unwrap();
        assert_eq!(restore(&mut lasting, false).unwrap(), RestoreOutcome::default());
        assert_eq!(lasting.get(Knob::Run).unwrap(), Some(0));
    }

    #[test]
    fn a_paused_process_that_is_gone_is_no_error() {
        let tree = whole_tree();
        let mut first = writer(tree.path());
        let gone = PausedProcess { pid: 0, start_ticks: 1, what: "ksmtuned".to_owned() };
        first.journal_mut().unwrap().note_paused(gone).unwrap();
        assert_eq!(restore(&mut writer(tree.path()), false).unwrap(), RestoreOutcome::default());
        assert!(writer(tree.path()).journal().unwrap().is_empty());
    }
}
