//! The entries of the undo store that are about KSM: original values, paused processes, ksmd's CPUs.

use std::path::PathBuf;

use ksmith_core::knobs::{Knob, Knobs, UnknownKnob};
use ksmith_core::sample::ProcessId;
use serde::{Deserialize, Serialize};

use super::pause::Paused;
use crate::undo::{Entries, Entry, Kind, StateDir, UndoError, UndoStore, identity};

/// A setting that was changed, with its original value as the kernel showed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    knob: String,
    original: String,
}

impl Entry for Setting {
    const KIND: Kind = Kind::Setting;
}

impl Entry for Paused {
    const KIND: Kind = Kind::Paused;
}

/// The CPUs that ksmd could use before it was bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KsmdCpus {
    cpus: String,
}

impl Entry for KsmdCpus {
    const KIND: Kind = Kind::KsmdCpus;
}

/// What is to be undone about KSM, as noted in the undo store.
#[derive(Debug)]
pub struct Journal {
    store: UndoStore,
    owner: Option<ProcessId>,
    noted: Noted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Noted {
    originals: Knobs,
    paused: Vec<Paused>,
    ksmd_cpus: Option<String>,
}

impl Journal {
    /// Reads what is noted. Entries from before the last boot are void, since the settings that they name are gone.
    ///
    /// # Errors
    /// The store can't be read, or is damaged.
    pub fn open(directory: &StateDir) -> Result<Self, UndoError> {
        let store = UndoStore::new(directory);
        let entries = store.read()?;
        let noted = Noted::of(&entries).map_err(|why| UndoError::Damaged { path: store.path(), why })?;
        Ok(Self { store, owner: entries.owner(), noted })
    }

    /// Where it is noted.
    pub fn path(&self) -> PathBuf {
        self.store.path()
    }

    /// Whether there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        let Noted { originals, paused, ksmd_cpus } = &self.noted;
        originals.is_empty() && paused.is_empty() && ksmd_cpus.is_none()
    }

    /// Whether the ksmith that wrote the store last still runs.
    pub fn is_owner_alive(&self) -> bool {
        self.owner.is_some_and(identity::is_alive)
    }

    /// The process that wrote the store last.
    pub fn owner(&self) -> Option<ProcessId> {
        self.owner
    }

    /// The original values of all knobs that were changed.
    pub fn originals(&self) -> &Knobs {
        &self.noted.originals
    }

    /// Processes that were stopped.
    pub fn paused(&self) -> &[Paused] {
        &self.noted.paused
    }

    /// The CPUs that ksmd could use before it was bound.
    pub fn ksmd_cpus(&self) -> Option<&str> {
        self.noted.ksmd_cpus.as_deref()
    }

    /// Notes the CPUs that ksmd can use before it is bound; those that are noted already stay.
    pub(super) fn note_ksmd_cpus(&mut self, cpus: String) -> Result<(), UndoError> {
        let ksmd_cpus = self.noted.ksmd_cpus.clone().or(Some(cpus));
        self.save(Noted { ksmd_cpus, ..self.noted.clone() })
    }

    /// Removes the note of ksmd's CPUs: it can use them again.
    pub(super) fn forget_ksmd_cpus(&mut self) -> Result<(), UndoError> {
        self.save(Noted { ksmd_cpus: None, ..self.noted.clone() })
    }

    /// Notes original values; a knob that is noted already keeps its first one.
    pub(super) fn note(&mut self, originals: impl IntoIterator<Item = (Knob, u64)>) -> Result<(), UndoError> {
        let mut noted = self.noted.clone();
        for (knob, value) in originals {
            if noted.originals.get(knob).is_none() {
                noted.originals.set(knob, value);
            }
        }
        self.save(noted)
    }

    /// Notes a process that is about to be stopped.
    pub(super) fn note_paused(&mut self, process: Paused) -> Result<(), UndoError> {
        let mut noted = self.noted.clone();
        noted.paused.retain(|known| *known != process);
        noted.paused.push(process);
        self.save(noted)
    }

    /// Keeps only what is still to be undone.
    pub(super) fn keep(&mut self, originals: Knobs, paused: Vec<Paused>) -> Result<(), UndoError> {
        self.save(Noted { originals, paused, ..self.noted.clone() })
    }

    fn save(&mut self, noted: Noted) -> Result<(), UndoError> {
        if noted == self.noted {
            return Ok(());
        }
        self.store.change(|entries| noted.put_into(entries))?;
        self.noted = noted;
        self.owner = identity::own().ok();
        Ok(())
    }
}

impl Noted {
    fn of(entries: &Entries) -> Result<Self, String> {
        let wrong = |why: serde_json::Error| why.to_string();
        let mut originals = Knobs::none();
        for Setting { knob: name, original } in entries.of().map_err(wrong)? {
            let knob: Knob = name.parse().map_err(|why: UnknownKnob| why.to_string())?;
            // The kernel may have held a value outside the range that it documents; it goes back as it was.
            let value = match knob {
                Knob::AdvisorMode => knob.parse_value(&original).ok(),
                _ => original.parse().ok(),
            };
            originals.set(knob, value.ok_or_else(|| format!("{name} can't be {original:?}"))?);
        }
        let ksmd_cpus = entries.of::<KsmdCpus>().map_err(wrong)?.into_iter().next().map(|noted| noted.cpus);
        Ok(Self { originals, paused: entries.of().map_err(wrong)?, ksmd_cpus })
    }

    fn put_into(&self, entries: &mut Entries) -> Result<(), serde_json::Error> {
        let setting =
            |(knob, value): (Knob, u64)| Setting { knob: knob.name().to_owned(), original: knob.text(value) };
        entries.set(&self.originals.iter().map(setting).collect::<Vec<_>>())?;
        entries.set(&self.paused)?;
        entries.set(&self.ksmd_cpus.iter().map(|cpus| KsmdCpus { cpus: cpus.clone() }).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn directory() -> (tempfile::TempDir, StateDir) {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        (tree, directory)
    }

    fn paused() -> Paused {
        Paused { pid: 7, start_ticks: 70, what: "ksmtuned".to_owned() }
    }

    #[test]
    fn what_was_noted_is_there_for_the_next_process() {
        let (_tree, directory) = directory();
        let mut journal = Journal::open(&directory).unwrap();
        assert!(journal.is_empty() && !directory.undo().exists());
        journal.note([(Knob::AdvisorMode, 1), (Knob::PagesToScan, 4000)]).unwrap();
        journal.note([(Knob::PagesToScan, 9)]).unwrap();
        journal.note_paused(paused()).unwrap();
        let next = Journal::open(&directory).unwrap();
        assert_eq!(*next.originals(), Knobs::none().with(Knob::AdvisorMode, 1).with(Knob::PagesToScan, 4000));
        assert_eq!(next.paused(), [paused()]);
        assert_eq!(next.owner(), Some(identity::own().unwrap()));
        assert!(next.is_owner_alive());
        let text = fs::read_to_string(directory.undo()).unwrap();
        assert!(text.contains("\"advisor_mode\"") && text.contains("\"scan-time\""), "{text}");
    }

    #[test]
    fn it_goes_when_nothing_is_left_to_undo() {
        let (_tree, directory) = directory();
        let mut journal = Journal::open(&directory).unwrap();
        journal.note([(Knob::Run, 0), (Knob::MaxPageSharing, 256)]).unwrap();
        journal.keep(Knobs::none().with(Knob::MaxPageSharing, 256), Vec::new()).unwrap();
        assert_eq!(*Journal::open(&directory).unwrap().originals(), Knobs::none().with(Knob::MaxPageSharing, 256));
        journal.keep(Knobs::none(), Vec::new()).unwrap();
        assert!(!directory.undo().exists());
        journal.keep(Knobs::none(), Vec::new()).unwrap();
    }

    #[test]
    fn where_ksmd_ran_is_kept_until_it_is_back_there() {
        let (_tree, directory) = directory();
        let mut journal = Journal::open(&directory).unwrap();
        journal.note_ksmd_cpus("0-3".to_owned()).unwrap();
        journal.note_ksmd_cpus("0".to_owned()).unwrap();
        journal.note([(Knob::Run, 0)]).unwrap();
        journal.keep(Knobs::none(), Vec::new()).unwrap();
        let mut next = Journal::open(&directory).unwrap();
        assert_eq!((next.ksmd_cpus(), next.is_empty()), (Some("0-3"), false));
        next.forget_ksmd_cpus().unwrap();
        assert!(!directory.undo().exists());
    }

    #[test]
    fn knobs_and_values_that_do_not_exist_are_refused() {
        let of = |knob: &str, original: &str| {
            let mut entries = Entries::default();
            entries.set(&[Setting { knob: knob.to_owned(), original: original.to_owned() }]).unwrap();
            Noted::of(&entries)
        };
        assert!(of("run", "1").is_ok());
        for (knob, original) in [("../run", "1"), ("run", "-1"), ("advisor_mode", "9"), ("run", "")] {
            assert!(of(knob, original).is_err(), "{knob} {original}");
        }
    }

    #[test]
    fn what_can_not_be_written_is_an_error_and_not_noted() {
        let (_tree, directory) = directory();
        let mut journal = Journal::open(&directory).unwrap();
        fs::create_dir_all(directory.path().join("undo.json.new")).unwrap();
        let error = journal.note([(Knob::Run, 0)]).unwrap_err();
        assert!(matches!(error, UndoError::Directory { .. } | UndoError::Write { .. }), "{error}");
        assert!(journal.is_empty());
    }

    proptest! {
        #[test]
        fn any_values_read_back(values in prop::collection::vec((0_usize..13, any::<u64>()), 0..13)) {
            let (_tree, directory) = directory();
            let originals: Knobs = values
                .into_iter()
                .map(|(i, value)| (Knob::ALL[i], value))
                .map(|(knob, value)| (knob, if knob == Knob::AdvisorMode { value % 2 } else { value }))
                .collect();
            Journal::open(&directory).unwrap().note(originals.iter()).unwrap();
            let journal = Journal::open(&directory).unwrap();
            prop_assert_eq!(journal.originals(), &originals);
        }
    }
}
