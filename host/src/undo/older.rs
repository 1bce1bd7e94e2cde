//! Files of an older build: `journal.json`, `guests.json` and `balance.json`.

use std::path::{Path, PathBuf};

use ksmith_core::sample::ProcessId;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::boot::Boot;
use super::entries::{Entries, Kind, tagged};
use super::read::text_of;
use super::{StateDir, UndoError};

/// Settings, paused processes and ksmd's CPUs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Journal {
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
const NAMES: [&str; 3] = ["journal.json", "guests.json", "balance.json"];

/// The paths of the files.
pub(super) fn paths(directory: &StateDir) -> [PathBuf; 3] {
    NAMES.map(|name| directory.path().join(name))
}

/// Adds what the files say, unless the entry is there already.
pub(super) fn add(directory: &StateDir, boot: &Boot, entries: &mut Entries) -> Result<(), UndoError> {
    for path in paths(directory) {
        let Some(text) = text_of(&path)? else { continue };
        let found = parse(&path, &text, boot).map_err(|why| UndoError::Damaged { path, why })?;
        entries.owner = entries.owner.or(found.owner);
        for entry in found.all {
            let is_same = |known: &&Value| **known == entry || is_same_knob(known, &entry);
            if !entries.all.iter().any(|known| is_same(&known)) {
                entries.all.push(entry);
            }
        }
    }
    Ok(())
}

fn is_same_knob(one: &Value, other: &Value) -> bool {
    let knob = |entry: &Value| entry.get("knob").cloned();
    knob(one).is_some() && knob(one) == knob(other)
}

fn parse(path: &Path, text: &[u8], boot: &Boot) -> Result<Entries, String> {
    if !path.ends_with(NAMES[0]) {
        let kind = if path.ends_with(NAMES[1]) { Kind::SwitchedOff } else { Kind::GuestMemory };
        let all: Vec<Value> = serde_json::from_slice(text).map_err(|why| why.to_string())?;
        return Ok(Entries { owner: None, all: all.into_iter().map(|entry| tagged(kind, entry)).collect() });
    }
    let journal: Journal = serde_json::from_slice(text).map_err(|why| why.to_string())?;
    if journal.version != 1 {
        return Err(format!("version {}, this ksmith knows 1", journal.version));
    }
    if boot.is_another(journal.boot_id.as_deref()) {
        return Ok(Entries::default());
    }
    let settings =
        journal.originals.into_iter().map(|(knob, was)| (Kind::Setting, json!({ "knob": knob, "original": was })));
    let paused = journal.paused.into_iter().map(|process| (Kind::Paused, process));
    let cpus = journal.ksmd_cpus.map(|cpus| (Kind::KsmdCpus, json!({ "cpus": cpus })));
    let all = settings.chain(paused).chain(cpus).map(|(kind, entry)| tagged(kind, entry)).collect();
    let owner = ProcessId { pid: journal.pid, start_ticks: journal.start_ticks };
    Ok(Entries { owner: Some(owner), all })
}
