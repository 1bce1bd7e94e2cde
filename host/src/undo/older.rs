//! Files of an older build: `journal.json`, `guests.json`, `balance.json` and `holds.json`.

use std::path::{Path, PathBuf};

use ksmith_core::sample::ProcessId;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::boot::BootId;
use super::entries::{EntryKind, UndoEntries, tagged};
use super::read::text_of;
use super::{StateDir, UndoError};

/// Settings, paused processes and ksmd's CPUs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OlderJournal {
    version: u32,
    pid: u32,
    start_ticks: u64,
    boot_id: Option<String>,
    originals: Map<String, Value>,
    #[serde(default)]
    paused: Vec<Value>,
    #[serde(default)]
    ksmd_cpus: Option<String>,
}

/// The names of the files.
const NAMES: [&str; 4] = ["journal.json", "guests.json", "balance.json", "holds.json"];

/// Adds the files' entries that are not there yet. Returns the files that were read, and the errors of the others. One
/// file never keeps another from being read.
pub(super) fn add(
    directory: &StateDir,
    boot: &BootId,
    entries: &mut UndoEntries,
) -> (Vec<PathBuf>, Vec<UndoError>) {
    let (mut read, mut faults) = (Vec::new(), Vec::new());
    for path in NAMES.map(|name| directory.path().join(name)) {
        let found = match text_of(&path) {
            Ok(None) => continue,
            Ok(Some(text)) => {
                parse(&path, &text, boot).map_err(|why| UndoError::Damaged { path: path.clone(), why })
            }
            Err(error) => Err(error),
        };
        match found {
            Ok(found) => {
                entries.owner = entries.owner.or(found.owner);
                for entry in found.all {
                    let is_same = |known: &Value| *known == entry || is_same_knob(known, &entry);
                    if !entries.all.iter().any(is_same) {
                        entries.all.push(entry);
                    }
                }
                read.push(path);
            }
            Err(error) => faults.push(error),
        }
    }
    (read, faults)
}

fn is_same_knob(one: &Value, other: &Value) -> bool {
    let knob = |entry: &Value| entry.get("knob").cloned();
    knob(one).is_some() && knob(one) == knob(other)
}

fn parse(path: &Path, text: &[u8], boot: &BootId) -> Result<UndoEntries, String> {
    if !path.ends_with(NAMES[0]) {
        let all: Vec<Value> = serde_json::from_slice(text).map_err(|why| why.to_string())?;
        let tagged = |entry: Value| {
            if path.ends_with(NAMES[1]) {
                tagged(EntryKind::SwitchedOff, entry)
            } else if path.ends_with(NAMES[2]) {
                tagged(EntryKind::GuestMemory, entry)
            } else {
                tagged(EntryKind::Held, json!({ "guest": entry }))
            }
        };
        return Ok(UndoEntries { all: all.into_iter().map(tagged).collect(), ..UndoEntries::default() });
    }
    let journal: OlderJournal = serde_json::from_slice(text).map_err(|why| why.to_string())?;
    if journal.version != 1 {
        return Err(format!("version {}, this ksmith knows 1", journal.version));
    }
    if boot.is_another(journal.boot_id.as_deref()) {
        return Ok(UndoEntries::default());
    }
    let settings = journal
        .originals
        .into_iter()
        .map(|(knob, was)| (EntryKind::Setting, json!({ "knob": knob, "original": was })));
    let paused = journal.paused.into_iter().map(|process| (EntryKind::Paused, process));
    let cpus = journal.ksmd_cpus.map(|cpus| (EntryKind::KsmdCpus, json!({ "cpus": cpus })));
    let all = settings.chain(paused).chain(cpus).map(|(kind, entry)| tagged(kind, entry)).collect();
    let owner = ProcessId { pid: journal.pid, start_ticks: journal.start_ticks };
    Ok(UndoEntries { owner: Some(owner), all, ..UndoEntries::default() })
}
