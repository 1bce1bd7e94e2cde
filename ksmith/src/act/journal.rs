//! What must be undone, on disk before it is done: original values and paused processes.
//!
//! The file is JSON that a person can act upon: `{"originals": {"run": "0", …}, …}`. It is replaced whole
//! (written aside, synced, renamed), so whoever reads it sees one state or the other.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ksmith_core::knobs::{Knob, Knobs};
use ksmith_core::sample::ProcessId;
use serde::{Deserialize, Serialize};

use super::StateDir;
use super::identity;
use super::pause::Paused;

/// What went wrong with the journal itself.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The directory is missing and can't be made, or others can write to it.
    #[error("{path} can't be used to keep the original settings: {source}", path = .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It can't be read.
    #[error("can't read the journal {path}: {source}", path = .path.display())]
    Read {
        /// The journal.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It can't be written or removed.
    #[error("can't write the journal {path}: {source}; nothing was changed", path = .path.display())]
    Write {
        /// The journal.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is there and is no journal. It stays until somebody has looked at it.
    #[error("the journal {path} is damaged ({why}), so what it said can't be restored and no ksmith starts: compare \
             it with /sys/kernel/mm/ksm, put right what differs, then give it up by: ksmith restore --discard",
            path = .path.display())]
    Damaged {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Far more than any journal needs.
const LONGEST: usize = 1 << 20;

/// The file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    version: u32,
    pid: u32,
    start_ticks: u64,
    boot_id: Option<String>,
    originals: BTreeMap<String, String>,
    #[serde(default)]
    paused: Vec<Paused>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ksmd_cpus: Option<String>,
}

const VERSION: u32 = 1;

/// The journal of one state directory.
#[derive(Debug)]
pub struct Journal {
    directory: StateDir,
    boot_id: Option<String>,
    owner: Option<ProcessId>,
    originals: Knobs,
    paused: Vec<Paused>,
    ksmd_cpus: Option<String>,
}

impl Journal {
    /// Reads the journal, if there is one. One that was left from before the last boot is void, since the
    /// settings it names are gone; it counts as absent.
    ///
    /// # Errors
    /// It can't be read, or is damaged. It stays as it is: who changed settings without it would take a killed
    /// ksmith's settings for the originals.
    pub fn open(directory: &StateDir) -> Result<Self, JournalError> {
        let path = directory.journal();
        let boot_id = identity::boot_id();
        let empty = Self {
            directory: directory.clone(),
            boot_id: boot_id.clone(),
            owner: None,
            originals: Knobs::none(),
            paused: Vec::new(),
            ksmd_cpus: None,
        };
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(empty),
            Err(source) => return Err(JournalError::Read { path, source }),
        };
        let (record, originals) = match parse(&text) {
            Ok(parsed) => parsed,
            Err(why) => return Err(JournalError::Damaged { path, why }),
        };
        if record.boot_id.is_some() && boot_id.is_some() && record.boot_id != boot_id {
            return Ok(empty);
        }
        let owner = Some(ProcessId { pid: record.pid, start_ticks: record.start_ticks });
        Ok(Self { owner, originals, paused: record.paused, ksmd_cpus: record.ksmd_cpus, ..empty })
    }

    /// Gives up what the journal says, sound or damaged: moves it to a free name beside it. Returns that name, or
    /// `None` where there is no journal. To be called under the [`Lock`](super::Lock).
    ///
    /// # Errors
    /// It can't be moved.
    pub fn discard(directory: &StateDir) -> Result<Option<PathBuf>, JournalError> {
        let path = directory.journal();
        let mut names = (1_u32..).map(|n| path.with_extension(format!("json.discarded-{n}")));
        let Some(aside) = names.find(|name| name.symlink_metadata().is_err()) else { return Ok(None) };
        match fs::rename(&path, &aside) {
            Ok(()) => Ok(Some(aside)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(JournalError::Write { path, source }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.directory.journal()
    }

    /// Whether there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.originals.is_empty() && self.paused.is_empty() && self.ksmd_cpus.is_none()
    }

    /// Whether the ksmith that wrote it last still runs.
    pub fn is_owner_alive(&self) -> bool {
        self.owner.is_some_and(identity::is_alive)
    }

    /// Who wrote it last.
    pub fn owner(&self) -> Option<ProcessId> {
        self.owner
    }

    /// The original values of all knobs that were changed.
    pub fn originals(&self) -> &Knobs {
        &self.originals
    }

    /// Processes that were stopped.
    pub fn paused(&self) -> &[Paused] {
        &self.paused
    }

    /// The CPUs that ksmd could use before it was bound.
    pub fn ksmd_cpus(&self) -> Option<&str> {
        self.ksmd_cpus.as_deref()
    }

    /// Notes the CPUs that ksmd can use before it is bound; those that are noted already stay.
    pub(super) fn note_ksmd_cpus(&mut self, cpus: String) -> Result<(), JournalError> {
        if self.ksmd_cpus.is_some() {
            return Ok(());
        }
        self.ksmd_cpus = Some(cpus);
        self.save(&self.originals.clone(), &self.paused.clone()).inspect_err(|_| self.ksmd_cpus = None)
    }

    /// ksmd can use them again.
    pub(super) fn forget_ksmd_cpus(&mut self) -> Result<(), JournalError> {
        self.ksmd_cpus = None;
        self.keep(self.originals.clone(), self.paused.clone())?;
        if self.is_empty() { Ok(()) } else { self.save(&self.originals.clone(), &self.paused.clone()) }
    }

    /// Notes original values; a knob that is noted already keeps its first one.
    pub(super) fn note(&mut self, originals: impl IntoIterator<Item = (Knob, u64)>) -> Result<(), JournalError> {
        let mut all = self.originals.clone();
        for (knob, value) in originals {
            if all.get(knob).is_none() {
                all.set(knob, value);
            }
        }
        if all == self.originals {
            return Ok(());
        }
        self.save(&all, &self.paused.clone())?;
        self.originals = all;
        Ok(())
    }

    /// Notes a process that is about to be stopped.
    pub(super) fn note_paused(&mut self, process: Paused) -> Result<(), JournalError> {
        let mut all = self.paused.clone();
        all.retain(|known| *known != process);
        all.push(process);
        self.save(&self.originals.clone(), &all)?;
        self.paused = all;
        Ok(())
    }

    /// Keeps only what is still to be undone. With nothing left the file goes.
    pub(super) fn keep(&mut self, originals: Knobs, paused: Vec<Paused>) -> Result<(), JournalError> {
        if originals.is_empty() && paused.is_empty() && self.ksmd_cpus.is_none() {
            match fs::remove_file(self.path()) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(JournalError::Write { path: self.path(), source });
                }
                _ => {}
            }
        } else if originals != self.originals || paused != self.paused {
            self.save(&originals, &paused)?;
        }
        (self.originals, self.paused) = (originals, paused);
        Ok(())
    }

    fn save(&mut self, originals: &Knobs, paused: &[Paused]) -> Result<(), JournalError> {
        let path = self.path();
        self.directory
            .make()
            .map_err(|source| JournalError::Directory { path: self.directory.path().to_owned(), source })?;
        let mut write = || {
            let own = identity::own()?;
            let record = Record {
                version: VERSION,
                pid: own.pid,
                start_ticks: own.start_ticks,
                boot_id: self.boot_id.clone(),
                originals: originals
                    .iter()
                    .map(|(knob, value)| (knob.name().to_owned(), knob.text(value)))
                    .collect(),
                paused: paused.to_vec(),
                ksmd_cpus: self.ksmd_cpus.clone(),
            };
            let mut text = serde_json::to_vec_pretty(&record)?;
            text.push(b'\n');
            replace(&path, &text)?;
            self.owner = Some(own);
            Ok(())
        };
        write().map_err(|source| JournalError::Write { path: path.clone(), source })
    }
}

/// Puts `text` in the place of the file at `path`, whole or not at all.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("json.new");
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&new)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| {
        // Best effort: what was begun is of no use, and the error above is the one to report.
        let _ = fs::remove_file(&new);
    })?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

fn parse(text: &[u8]) -> Result<(Record, Knobs), String> {
    if text.len() > LONGEST {
        return Err(format!("{} bytes long", text.len()));
    }
    let record: Record = serde_json::from_slice(text).map_err(|why| why.to_string())?;
    if record.version != VERSION {
        return Err(format!("version {}, this ksmith knows {VERSION}", record.version));
    }
    let mut originals = Knobs::none();
    for (name, text) in &record.originals {
        let knob: Knob = name.parse().map_err(|why: ksmith_core::knobs::UnknownKnob| why.to_string())?;
        // The kernel may have held a value outside the range that it documents; it goes back as it was.
        let value = match knob {
            Knob::AdvisorMode => knob.parse_value(text).ok(),
            _ => text.parse().ok(),
        };
        originals.set(knob, value.ok_or_else(|| format!("{name} can't be {text:?}"))?);
    }
    Ok((record, originals))
}

#[cfg(test)]
mod tests {
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
        assert!(journal.is_empty() && !directory.journal().exists());
        journal.note([(Knob::AdvisorMode, 1), (Knob::PagesToScan, 4000)]).unwrap();
        journal.note([(Knob::PagesToScan, 9)]).unwrap();
        journal.note_paused(paused()).unwrap();
        let next = Journal::open(&directory).unwrap();
        assert_eq!(*next.originals(), Knobs::none().with(Knob::AdvisorMode, 1).with(Knob::PagesToScan, 4000));
        assert_eq!(next.paused(), [paused()]);
        assert_eq!(next.owner(), Some(identity::own().unwrap()));
        let text = fs::read_to_string(directory.journal()).unwrap();
        assert!(text.contains(r#""advisor_mode": "scan-time""#), "{text}");
    }

    #[test]
    fn it_goes_when_nothing_is_left_to_undo() {
        let (_tree, directory) = directory();
        let mut journal = Journal::open(&directory).unwrap();
        journal.note([(Knob::Run, 0), (Knob::MaxPageSharing, 256)]).unwrap();
        journal.keep(Knobs::none().with(Knob::MaxPageSharing, 256), Vec::new()).unwrap();
        assert_eq!(*Journal::open(&directory).unwrap().originals(), Knobs::none().with(Knob::MaxPageSharing, 256));
        journal.keep(Knobs::none(), Vec::new()).unwrap();
        assert!(!directory.journal().exists());
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
        assert!(!directory.journal().exists());
    }

    #[test]
    fn one_from_before_the_boot_is_void() {
        let (_tree, directory) = directory();
        let mut journal = Journal::open(&directory).unwrap();
        journal.boot_id = Some("another".to_owned());
        journal.note([(Knob::Run, 0)]).unwrap();
        assert!(Journal::open(&directory).unwrap().is_empty());
    }

    #[test]
    fn a_damaged_one_stays_until_it_is_given_up() {
        let (_tree, directory) = directory();
        assert_eq!(Journal::discard(&directory).unwrap(), None);
        for (n, bad) in ["", "{", "null", r#"{"version":1}"#].into_iter().enumerate() {
            directory.make().unwrap();
            fs::write(directory.journal(), bad).unwrap();
            for _ in 0..2 {
                let error = Journal::open(&directory).unwrap_err();
                assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
                assert_eq!(fs::read_to_string(directory.journal()).unwrap(), bad);
            }
            let aside = Journal::discard(&directory).unwrap().unwrap();
            assert_eq!(fs::read_to_string(&aside).unwrap(), bad);
            assert!(aside.ends_with(format!("journal.json.discarded-{}", n + 1)));
            assert!(Journal::open(&directory).unwrap().is_empty());
        }
    }

    #[test]
    fn a_journal_cut_anywhere_is_damaged_and_never_half_believed() {
        let (_tree, directory) = directory();
        let mut journal = Journal::open(&directory).unwrap();
        journal.note([(Knob::Run, 0), (Knob::SmartScan, 1)]).unwrap();
        journal.note_paused(paused()).unwrap();
        let text = fs::read(directory.journal()).unwrap();
        for length in 0..text.len() - 1 {
            // Without the closing brace nothing is complete.
            assert!(parse(&text[..length]).is_err() || text[..length].ends_with(b"}"), "{length}");
        }
        assert!(parse(&text).is_ok());
    }

    #[test]
    fn knobs_and_values_that_do_not_exist_are_refused() {
        let text = |originals: &str| {
            format!(r#"{{"version":1,"pid":1,"start_ticks":1,"boot_id":null,"originals":{{{originals}}}}}"#)
        };
        assert!(parse(text(r#""run":"1""#).as_bytes()).is_ok());
        for bad in [r#""../run":"1""#, r#""run":"-1""#, r#""advisor_mode":"9""#, r#""run":1"#] {
            assert!(parse(text(bad).as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_can_not_be_written_is_an_error_and_not_noted() {
        let (_tree, directory) = directory();
        let mut journal = Journal::open(&directory).unwrap();
        fs::create_dir_all(directory.path().join("journal.json.new")).unwrap();
        let error = journal.note([(Knob::Run, 0)]).unwrap_err();
        assert!(matches!(error, JournalError::Directory { .. } | JournalError::Write { .. }), "{error}");
        assert!(journal.is_empty());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&text);
        }

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
