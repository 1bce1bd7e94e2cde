//! What commands that act print as JSON: what was done, or would be.

use ksmith_core::knobs::Knobs;
use serde::Serialize;
use serde_json::{Value, json};

/// The answer of `ksmith merge`.
#[derive(Debug, Serialize)]
pub struct Merged<'a> {
    /// Name of the guest.
    pub guest: &'a str,
    /// PID of its first process.
    pub pid: u32,
    /// What was asked: `on` or `off`.
    pub merge: &'a str,
    /// Memory backends that were switched.
    pub backends: Vec<&'a str>,
    /// Memory that was unmerged.
    pub unmerged_bytes: u64,
    /// Merged memory that is left.
    pub left_bytes: u64,
    /// Whether libvirt's configuration was changed. `None`: that was not asked.
    pub permanent_changed: Option<bool>,
    /// Whether nothing was done.
    pub dry_run: bool,
}

/// The answer of `ksmith hold`.
#[derive(Debug, Serialize)]
pub struct Held<'a> {
    /// The guest as it was named.
    pub guest: &'a str,
    /// Whether balance leaves it alone now.
    pub held: bool,
    /// What was done, in a sentence.
    pub message: &'a str,
    /// Whether nothing was done.
    pub dry_run: bool,
}

/// The answer of `ksmith scan --dry-run`.
#[derive(Debug, Serialize)]
pub struct PlannedScan<'a> {
    /// Whether nothing was done, which is so.
    pub dry_run: bool,
    /// Passes that were asked for.
    pub passes: u64,
    /// The program that would scan.
    pub by: &'a str,
    /// Settings that would change first.
    pub changes: Vec<String>,
}

/// The answer of `ksmith daemon --dry-run`.
pub fn planned_turn(reason: &str, knobs: &Knobs) -> Value {
    let settings: serde_json::Map<_, _> =
        knobs.iter().map(|(knob, value)| (knob.name().to_owned(), json!(knob.text(value)))).collect();
    json!({ "dry_run": true, "reason": reason, "settings": settings })
}
