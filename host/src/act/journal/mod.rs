//! The entries of the undo store that are about KSM: settings, paused processes, ksmd's CPUs.

mod setting;

use std::collections::BTreeMap;
use std::path::PathBuf;

use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::lease::is_leased;
use ksmith_core::sample::ProcessId;
use serde::{Deserialize, Serialize};

use self::setting::JournaledSetting;
use super::KnobChange;
use super::pause::PausedProcess;
use crate::undo::{EntryKind, StateDir, UndoEntries, UndoEntry, UndoError, UndoStore, WriteDurability, identity};

impl UndoEntry for PausedProcess {
    const KIND: EntryKind = EntryKind::Paused;
}

/// The CPUs that ksmd could use before it was bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KsmdCpus {
    cpus: String,
}

impl UndoEntry for KsmdCpus {
    const KIND: EntryKind = EntryKind::KsmdCpus;
}

/// Recorded values of `pages_to_scan` at most. Beyond this, new values replace the old ones.
const MOST_BATCHES: usize = 256;

/// The undo store's entries about KSM itself.
///
/// Each setting has its original value and the values that the file may hold if only ksmith has written to it. The new
/// value is added before the write, and the old one removed after it. So after a kill at any point the file holds one
/// of these values, unless another program has written: then that program's value stays.
///
/// All written values of `pages_to_scan` stay recorded. In a burst it changes many times a second between few values
/// ([`ksmith_core::lease::BatchParts`]), and each change would otherwise write the store twice.
#[derive(Debug)]
pub struct KsmJournal {
    store: UndoStore,
    owner: Option<ProcessId>,
    noted: JournalState,
    /// True if the recorded written values on disk are exact. Otherwise all originals are restored.
    is_exact: bool,
    faults: Vec<UndoError>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct JournalState {
    settings: BTreeMap<Knob, JournaledSetting>,
    paused: Vec<PausedProcess>,
    ksmd_cpus: Option<String>,
}

impl KsmJournal {
    /// Reads the entries. Those from before the last boot are void, since the settings that they name are gone.
    ///
    /// # Errors
    /// The store can't be read, or is damaged.
    pub fn open(directory: &StateDir) -> Result<Self, UndoError> {
        let mut journal = Self::open_to_restore(directory);
        match journal.take_faults().into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(journal),
        }
    }

    /// Reads the entries that can be read. The others stay in the store; their errors are in
    /// [`faults`](Self::take_faults).
    pub fn open_to_restore(directory: &StateDir) -> Self {
        let store = UndoStore::new(directory);
        let (entries, mut faults) = match store.read() {
            Ok(entries) => (entries, Vec::new()),
            Err(error) => (UndoEntries::default(), vec![error]),
        };
        let (noted, not_understood) = JournalState::from_entries(&entries);
        let path = store.path();
        faults.extend(not_understood.into_iter().map(|why| UndoError::Damaged { path: path.clone(), why }));
        Self { owner: entries.owner(), is_exact: entries.is_exact(), store, noted, faults }
    }

    /// Returns the path of the undo store.
    pub fn path(&self) -> PathBuf {
        self.store.path()
    }

    /// Returns true if there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        let JournalState { settings, paused, ksmd_cpus } = &self.noted;
        settings.is_empty() && paused.is_empty() && ksmd_cpus.is_none()
    }

    /// Returns the errors from reading parts of the store, each once.
    pub fn take_faults(&mut self) -> Vec<UndoError> {
        std::mem::take(&mut self.faults)
    }

    /// Returns true if the ksmith that last wrote the store is alive.
    pub fn is_owner_alive(&self) -> bool {
        self.owner.is_some_and(identity::is_alive)
    }

    /// Returns the process that last wrote the store.
    pub fn owner(&self) -> Option<ProcessId> {
        self.owner
    }

    /// Returns the original values of all changed knobs.
    pub fn originals(&self) -> KnobSettings {
        self.noted.settings.iter().map(|(knob, setting)| (*knob, setting.original)).collect()
    }

    /// Returns the values of which ksmith wrote one to a knob last; `None` if they are unknown.
    pub fn written(&self, knob: Knob) -> Option<&[u64]> {
        self.noted.settings.get(&knob)?.written.as_deref().filter(|_| self.is_exact)
    }

    /// Returns true if `now` is a value that ksmith found or wrote. If that is unknown, returns true.
    pub fn is_ours(&self, knob: Knob, now: u64) -> bool {
        let setting = self.noted.settings.get(&knob);
        // The thread that wakes ksmd writes without a note.
        let is_same =
            |written: u64| written == now || knob == Knob::SleepMillisecs && is_leased(written) && is_leased(now);
        setting.is_none_or(|setting| setting.original == now)
            || self.written(knob).is_none_or(|written| written.iter().copied().any(is_same))
    }

    /// Returns the stopped processes.
    pub fn paused(&self) -> &[PausedProcess] {
        &self.noted.paused
    }

    /// Returns the CPUs that ksmd could use before it was bound.
    pub fn ksmd_cpus(&self) -> Option<&str> {
        self.noted.ksmd_cpus.as_deref()
    }

    /// Records the CPUs that ksmd may use before it is bound. An earlier record stays.
    pub(super) fn note_ksmd_cpus(&mut self, cpus: String) -> Result<(), UndoError> {
        let ksmd_cpus = self.noted.ksmd_cpus.clone().or(Some(cpus));
        self.save(WriteDurability::Synced, JournalState { ksmd_cpus, ..self.noted.clone() })
    }

    /// Removes the record of ksmd's CPUs.
    pub(super) fn forget_ksmd_cpus(&mut self) -> Result<(), UndoError> {
        self.save(WriteDurability::Synced, JournalState { ksmd_cpus: None, ..self.noted.clone() })
    }

    /// Records knobs to be restored whatever value they hold then. A recorded original value stays.
    pub(super) fn note_whatever_comes(
        &mut self,
        originals: impl IntoIterator<Item = (Knob, u64)>,
    ) -> Result<(), UndoError> {
        let mut noted = self.noted.clone();
        for (knob, original) in originals {
            noted.settings.entry(knob).or_insert(JournaledSetting { knob, original, written: None }).written = None;
        }
        self.save(WriteDurability::Synced, noted)
    }

    /// Records changes before they are written. A recorded original value stays. After several changes of one knob it
    /// may hold any of the values.
    pub(super) fn note_changes(&mut self, changes: &[KnobChange]) -> Result<(), UndoError> {
        let mut noted = self.noted.clone();
        for (index, KnobChange { knob, old, new }) in changes.iter().copied().enumerate() {
            // Another program's value stays, should the write not come about.
            let is_ours = self.is_ours(knob, old);
            let fresh = JournaledSetting { knob, original: old, written: Some(Vec::new()) };
            let Some(written) = &mut noted.settings.entry(knob).or_insert(fresh).written else { continue };
            let stays = knob == Knob::PagesToScan && is_ours && written.len() < MOST_BATCHES;
            if !stays && changes.get(..index).is_some_and(|before| before.iter().all(|before| before.knob != knob))
            {
                *written = if is_ours { vec![old] } else { Vec::new() };
            }
            if !written.contains(&new) {
                written.push(new);
            }
        }
        let is_new = noted.settings.len() > self.noted.settings.len();
        self.save(if is_new { WriteDurability::Synced } else { WriteDurability::Cached }, noted)
    }

    /// Returns true if a write of this value is recorded.
    pub(super) fn is_noted(&self, knob: Knob, new: u64) -> bool {
        let has = |written: &[u64]| written.contains(&new);
        self.noted.settings.contains_key(&knob) && self.written(knob).is_none_or(has)
    }

    /// Returns the original value of a knob, if it is recorded.
    pub(super) fn original(&self, knob: Knob) -> Option<u64> {
        self.noted.settings.get(&knob).map(|setting| setting.original)
    }

    /// Records that knobs hold these values, which ksmith has written.
    pub(super) fn confirm(&mut self, values: impl IntoIterator<Item = (Knob, u64)>) -> Result<(), UndoError> {
        let mut noted = self.noted.clone();
        for (knob, value) in values.into_iter().filter(|(knob, _)| *knob != Knob::PagesToScan) {
            if let Some(written) = noted.settings.get_mut(&knob).and_then(|setting| setting.written.as_mut()) {
                *written = vec![value];
            }
        }
        if self.is_exact { self.save(WriteDurability::Cached, noted) } else { Ok(()) }
    }

    /// Marks the written values as inexact, without allocating disk space. All originals are then restored.
    pub(super) fn mark_inexact(&mut self) -> Result<(), UndoError> {
        if self.is_exact {
            self.store.mark_inexact()?;
            self.is_exact = false;
        }
        Ok(())
    }

    /// Records a process before it is stopped.
    pub(super) fn note_paused(&mut self, process: PausedProcess) -> Result<(), UndoError> {
        let mut noted = self.noted.clone();
        noted.paused.retain(|known| *known != process);
        noted.paused.push(process);
        self.save(WriteDurability::Synced, noted)
    }

    /// Removes all entries but these, which are still to be undone.
    pub(super) fn keep(&mut self, knobs: &[Knob], paused: Vec<PausedProcess>) -> Result<(), UndoError> {
        let mut noted = JournalState { paused, ..self.noted.clone() };
        noted.settings.retain(|knob, _| knobs.contains(knob));
        self.save(WriteDurability::Synced, noted)
    }

    /// Writes all entries anew, as into a directory that was removed.
    pub(super) fn write_anew(&self) -> Result<(), UndoError> {
        self.store.change_as(WriteDurability::Synced, |entries| self.noted.put_into(entries))
    }

    fn save(&mut self, durable: WriteDurability, noted: JournalState) -> Result<(), UndoError> {
        if noted == self.noted {
            return Ok(());
        }
        self.store.change_as(durable, |entries| noted.put_into(entries))?;
        self.is_exact |= noted.settings.is_empty();
        self.noted = noted;
        self.owner = identity::own().ok();
        Ok(())
    }
}

impl JournalState {
    /// Returns the entries that can be parsed, and the errors of the others.
    fn from_entries(entries: &UndoEntries) -> (Self, Vec<String>) {
        let (settings, mut faults) = entries.understood::<JournaledSetting>();
        let (paused, more) = entries.understood();
        faults.extend(more);
        let (ksmd_cpus, more) = entries.understood::<KsmdCpus>();
        faults.extend(more);
        let settings = settings.into_iter().map(|setting| (setting.knob, setting)).collect();
        (Self { settings, paused, ksmd_cpus: ksmd_cpus.into_iter().next().map(|noted| noted.cpus) }, faults)
    }

    fn put_into(&self, entries: &mut UndoEntries) -> Result<(), serde_json::Error> {
        entries.set(&self.settings.values().cloned().collect::<Vec<_>>())?;
        entries.set(&self.paused)?;
        entries.set(&self.ksmd_cpus.iter().map(|cpus| KsmdCpus { cpus: cpus.clone() }).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ksmith_core::lease;
    use proptest::prelude::*;

    use super::*;

    fn directory() -> (tempfile::TempDir, StateDir) {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        (tree, directory)
    }

    fn change(knob: Knob, old: u64, new: u64) -> KnobChange {
        KnobChange { knob, old, new }
    }

    fn paused() -> PausedProcess {
        PausedProcess { pid: 7, start_ticks: 70, what: "ksmtuned".to_owned() }
    }

    #[test]
    fn what_was_noted_is_there_for_the_next_process() {
        let (_tree, directory) = directory();
        let mut journal = KsmJournal::open(&directory).unwrap();
        assert!(journal.is_empty() && !directory.undo().exists());
        journal.note_whatever_comes([(Knob::AdvisorMode, 1), (Knob::PagesToScan, 4000)]).unwrap();
        journal.note_changes(&[change(Knob::PagesToScan, 9, 7)]).unwrap();
        journal.note_paused(paused()).unwrap();
        let next = KsmJournal::open(&directory).unwrap();
        assert_eq!(next.originals(), KnobSettings::none().with(Knob::AdvisorMode, 1).with(Knob::PagesToScan, 4000));
        assert_eq!(next.paused(), [paused()]);
        assert_eq!(next.owner(), Some(identity::own().unwrap()));
        assert!(next.is_owner_alive());
        let text = fs::read_to_string(directory.undo()).unwrap();
        assert!(text.contains("\"advisor_mode\"") && text.contains("\"scan-time\""), "{text}");
    }

    #[test]
    fn it_goes_when_nothing_is_left_to_undo() {
        let (_tree, directory) = directory();
        let mut journal = KsmJournal::open(&directory).unwrap();
        journal.note_changes(&[change(Knob::Run, 0, 1), change(Knob::MaxPageSharing, 256, 9)]).unwrap();
        journal.keep(&[Knob::MaxPageSharing], Vec::new()).unwrap();
        assert_eq!(
            KsmJournal::open(&directory).unwrap().originals(),
            KnobSettings::none().with(Knob::MaxPageSharing, 256)
        );
        journal.keep(&[], Vec::new()).unwrap();
        assert!(!directory.undo().exists());
        journal.keep(&[], Vec::new()).unwrap();
    }

    #[test]
    fn where_ksmd_ran_is_kept_until_it_is_back_there() {
        let (_tree, directory) = directory();
        let mut journal = KsmJournal::open(&directory).unwrap();
        journal.note_ksmd_cpus("0-3".to_owned()).unwrap();
        journal.note_ksmd_cpus("0".to_owned()).unwrap();
        journal.note_changes(&[change(Knob::Run, 0, 1)]).unwrap();
        journal.keep(&[], Vec::new()).unwrap();
        let mut next = KsmJournal::open(&directory).unwrap();
        assert_eq!((next.ksmd_cpus(), next.is_empty()), (Some("0-3"), false));
        next.forget_ksmd_cpus().unwrap();
        assert!(!directory.undo().exists());
    }

    #[test]
    fn a_value_is_ours_from_before_its_write_until_after_the_next() {
        let (_tree, directory) = directory();
        let mut journal = KsmJournal::open(&directory).unwrap();
        let ours = |directory: &StateDir| {
            let journal = KsmJournal::open(directory).unwrap();
            (0..9).filter(|value| journal.is_ours(Knob::SleepMillisecs, *value)).collect::<Vec<_>>()
        };
        journal.note_changes(&[change(Knob::SleepMillisecs, 2, 5)]).unwrap();
        assert_eq!(ours(&directory), [2, 5]);
        journal.confirm([(Knob::SleepMillisecs, 5)]).unwrap();
        journal.note_changes(&[change(Knob::SleepMillisecs, 5, 7)]).unwrap();
        assert_eq!(ours(&directory), [2, 5, 7]);
        journal.confirm([(Knob::SleepMillisecs, 7)]).unwrap();
        assert_eq!(ours(&directory), [2, 7], "5 would be another program's");
        journal.note_changes(&[change(Knob::SleepMillisecs, 4, 1)]).unwrap();
        assert_eq!(ours(&directory), [1, 2], "4 was another program's");
        journal.mark_inexact().unwrap();
        assert_eq!(ours(&directory).len(), 9, "it is not known");
        journal.keep(&[], Vec::new()).unwrap();
        journal.note_changes(&[change(Knob::SleepMillisecs, 2, 5)]).unwrap();
        assert_eq!(ours(&directory), [2, 5], "a new store begins anew");
    }

    #[test]
    fn batches_that_come_again_change_nothing_on_disk() {
        let (_tree, directory) = directory();
        let mut journal = KsmJournal::open(&directory).unwrap();
        let ours = |directory: &StateDir| {
            let journal = KsmJournal::open(directory).unwrap();
            (0..9).filter(|value| journal.is_ours(Knob::PagesToScan, *value)).collect::<Vec<_>>()
        };
        for (old, new) in [(2, 5), (5, 7), (7, 5)] {
            journal.note_changes(&[change(Knob::PagesToScan, old, new)]).unwrap();
            journal.confirm([(Knob::PagesToScan, new)]).unwrap();
        }
        assert_eq!(ours(&directory), [2, 5, 7]);
        assert!(journal.is_noted(Knob::PagesToScan, 7));
        journal.note_changes(&[change(Knob::PagesToScan, 4, 1)]).unwrap();
        assert_eq!(ours(&directory), [1, 2], "4 was another program's, and so may be all others");
        for new in 1..2000 {
            journal.note_changes(&[change(Knob::PagesToScan, new, new + 1)]).unwrap();
        }
        assert!(journal.written(Knob::PagesToScan).unwrap().len() <= MOST_BATCHES);
    }

    #[test]
    fn all_sleeps_of_a_lease_are_ours_and_only_while_one_is_noted() {
        let (_tree, directory) = directory();
        let mut journal = KsmJournal::open(&directory).unwrap();
        let first = lease::next_value(20);
        let later = lease::next_value(lease::next_value(first));
        journal.note_changes(&[change(Knob::SleepMillisecs, 20, first)]).unwrap();
        journal.confirm([(Knob::SleepMillisecs, first)]).unwrap();
        let ours = |journal: &KsmJournal| [later, 20, 77].map(|value| journal.is_ours(Knob::SleepMillisecs, value));
        assert_eq!(ours(&KsmJournal::open(&directory).unwrap()), [true, true, false]);
        journal.note_changes(&[change(Knob::SleepMillisecs, later, 5)]).unwrap();
        assert_eq!(
            ours(&KsmJournal::open(&directory).unwrap()),
            [true, true, false],
            "it may not have been written"
        );
        journal.confirm([(Knob::SleepMillisecs, 5)]).unwrap();
        assert_eq!(ours(&KsmJournal::open(&directory).unwrap()), [false, true, false]);
    }

    #[test]
    fn what_is_not_understood_keeps_nothing_else_from_being_read_and_stays() {
        let (_tree, directory) = directory();
        let mut journal = KsmJournal::open(&directory).unwrap();
        journal.note_changes(&[change(Knob::Run, 0, 1), change(Knob::SleepMillisecs, 2, 5)]).unwrap();
        journal.note_paused(paused()).unwrap();
        let text = fs::read_to_string(directory.undo()).unwrap();
        fs::write(directory.undo(), text.replace("sleep_millisecs", "../run")).unwrap();
        assert!(matches!(KsmJournal::open(&directory), Err(UndoError::Damaged { .. })));
        let mut journal = KsmJournal::open_to_restore(&directory);
        assert_eq!((journal.originals(), journal.paused().len()), (KnobSettings::none().with(Knob::Run, 0), 1));
        let faults = journal.take_faults();
        assert!(faults.len() == 1 && faults[0].to_string().contains("../run"), "{faults:?}");
        journal.keep(&[], Vec::new()).unwrap();
        assert!(fs::read_to_string(directory.undo()).unwrap().contains("../run"), "nothing is lost");
    }

    #[test]
    fn what_can_not_be_written_is_an_error_and_not_noted() {
        let (_tree, directory) = directory();
        let mut journal = KsmJournal::open(&directory).unwrap();
        fs::create_dir_all(directory.path().join("undo.json.new")).unwrap();
        let error = journal.note_changes(&[change(Knob::Run, 0, 1)]).unwrap_err();
        assert!(matches!(error, UndoError::Directory { .. } | UndoError::Write { .. }), "{error}");
        assert!(journal.is_empty());
    }

    proptest! {
        #[test]
        fn any_values_read_back(values in prop::collection::vec((0..Knob::ALL.len(), any::<u64>()), 0..13)) {
            let (_tree, directory) = directory();
            let originals: KnobSettings = values
                .into_iter()
                .map(|(i, value)| (Knob::ALL[i], value))
                .map(|(knob, value)| (knob, if knob == Knob::AdvisorMode { value % 2 } else { value }))
                .collect();
            let changes: Vec<_> = originals.iter().map(|(knob, value)| change(knob, value, value / 2)).collect();
            KsmJournal::open(&directory).unwrap().note_changes(&changes).unwrap();
            let journal = KsmJournal::open(&directory).unwrap();
            prop_assert_eq!(journal.originals(), originals);
        }
    }
}
