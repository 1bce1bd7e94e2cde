//! The entries of the undo store, by kind.

use ksmith_core::sample::ProcessId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A kind of entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A setting of KSM has another value.
    Setting,
    /// A process is stopped.
    Paused,
    /// The thread ksmd is bound to CPUs.
    KsmdCpus,
    /// Merging of a guest is switched off.
    SwitchedOff,
    /// A guest has less memory than it was started with.
    GuestMemory,
    /// The operator wants a guest left alone. Nothing is undone about it.
    Held,
}

impl EntryKind {
    /// Kinds that are about KSM itself, not about a guest.
    pub const OF_KSM: [Self; 3] = [Self::Setting, Self::Paused, Self::KsmdCpus];

    /// Returns its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Setting => "setting",
            Self::Paused => "paused_process",
            Self::KsmdCpus => "ksmd_cpus",
            Self::SwitchedOff => "switched_off",
            Self::GuestMemory => "guest_memory",
            Self::Held => "held",
        }
    }
}

/// An entry of one kind.
pub trait UndoEntry: Clone + PartialEq + Serialize + DeserializeOwned {
    /// Its kind.
    const KIND: EntryKind;
}

/// All entries of the store. Kinds unknown to this build are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct UndoEntries {
    /// The process that last wrote the file.
    pub(super) owner: Option<ProcessId>,
    /// True if the settings' entries hold the values written last. Otherwise only the original values are certain.
    pub(super) is_exact: bool,
    /// The entries as in the file.
    pub(super) all: Vec<Value>,
}

impl Default for UndoEntries {
    fn default() -> Self {
        Self { owner: None, is_exact: true, all: Vec::new() }
    }
}

impl UndoEntries {
    /// Returns the process that last wrote the store.
    pub fn owner(&self) -> Option<ProcessId> {
        self.owner
    }

    /// Returns true if there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns true if the settings' entries hold the values written last.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Returns the number of entries of a kind.
    pub fn count(&self, kind: EntryKind) -> usize {
        self.all.iter().filter(|entry| is(entry, kind)).count()
    }

    /// Returns the entries of a kind.
    ///
    /// # Errors
    /// One of them can't be parsed.
    pub fn parse_entries<E: UndoEntry>(&self) -> Result<Vec<E>, serde_json::Error> {
        self.each::<E>().collect()
    }

    /// Returns the entries of a kind that can be parsed, and the errors of the others.
    pub fn understood<E: UndoEntry>(&self) -> (Vec<E>, Vec<String>) {
        let (mut understood, mut faults) = (Vec::new(), Vec::new());
        for entry in self.each::<E>() {
            match entry {
                Ok(entry) => understood.push(entry),
                Err(why) => faults.push(format!("{}: {why}", E::KIND.name())),
            }
        }
        (understood, faults)
    }

    fn each<E: UndoEntry>(&self) -> impl Iterator<Item = Result<E, serde_json::Error>> {
        self.all.iter().filter(|entry| is(entry, E::KIND)).map(parse)
    }

    /// Replaces the entries of a kind. Those that can't be parsed stay.
    ///
    /// # Errors
    /// One of them can't be written as JSON.
    pub fn set<E: UndoEntry>(&mut self, entries: &[E]) -> Result<(), serde_json::Error> {
        let new: Vec<Value> = entries
            .iter()
            .map(|entry| Ok(tagged(E::KIND, serde_json::to_value(entry)?)))
            .collect::<Result<_, _>>()?;
        self.all.retain(|entry| !is(entry, E::KIND) || parse::<E>(entry).is_err());
        self.all.extend(new);
        Ok(())
    }

    /// Removes all entries of a kind.
    pub(super) fn remove(&mut self, kind: EntryKind) {
        self.all.retain(|entry| !is(entry, kind));
    }
}

/// The field of an entry that holds its kind. An entry may have a field `kind` of its own.
const KIND: &str = "entry";

fn is(entry: &Value, kind: EntryKind) -> bool {
    entry.get(KIND).and_then(Value::as_str) == Some(kind.name())
}

fn parse<E: UndoEntry>(entry: &Value) -> Result<E, serde_json::Error> {
    let mut entry = entry.clone();
    entry.as_object_mut().map(|fields| fields.remove(KIND));
    serde_json::from_value(entry)
}

/// Returns an entry with its kind as a field.
fn tagged(kind: EntryKind, entry: Value) -> Value {
    let fields = entry.as_object().cloned().unwrap_or_default();
    std::iter::once((KIND.to_owned(), kind.name().into())).chain(fields).collect::<serde_json::Map<_, _>>().into()
}
