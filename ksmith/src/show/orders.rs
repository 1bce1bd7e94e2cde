//! The JSON replies of commands that act.

use ksmith_core::decide::DecisionReason;
use ksmith_core::knobs::KnobSettings;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

/// The reply of `ksmith merge`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MergeReply<'a> {
    /// Name of the guest.
    pub guest: &'a str,
    /// PID of its first process.
    pub pid: u32,
    /// The requested state: `on` or `off`.
    pub merge: &'a str,
    /// Memory backends that were switched.
    pub backends: Vec<&'a str>,
    /// Memory that was unmerged.
    pub unmerged_bytes: u64,
    /// Merged memory that is left.
    pub left_bytes: u64,
    /// True if libvirt's configuration was changed; `null` if that was not requested.
    pub permanent_changed: Option<bool>,
    /// True if nothing was done.
    pub dry_run: bool,
}

/// The reply of `ksmith hold`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HoldReply<'a> {
    /// The guest as it was named.
    pub guest: &'a str,
    /// True if balance leaves it alone.
    pub held: bool,
    /// The outcome, in a sentence.
    pub message: &'a str,
    /// True if nothing was done.
    pub dry_run: bool,
}

/// The reply of `ksmith pause` and `ksmith resume`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PauseReply<'a> {
    /// True if merging is paused.
    pub paused: bool,
    /// Time of the pause; `null` until it is resumed, and after that.
    pub seconds: Option<f64>,
    /// The daemon's answer, in a sentence.
    pub message: &'a str,
}

/// The reply of `ksmith scan --dry-run`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PlannedScan<'a> {
    /// Always true: nothing was done.
    pub dry_run: bool,
    /// Passes that were requested.
    pub passes: u64,
    /// The program that would scan: the daemon, or this command.
    pub by: &'a str,
    /// Settings that would change first.
    pub changes: Vec<String>,
}

/// Returns the reply of `ksmith daemon --dry-run`.
pub fn planned_turn(reason: &DecisionReason, knobs: &KnobSettings) -> Value {
    let settings: serde_json::Map<_, _> =
        knobs.iter().map(|(knob, value)| (knob.name().to_owned(), json!(knob.text(value)))).collect();
    json!({
        "dry_run": true,
        "reason": reason.to_string(),
        "reason_detail": reason.detail,
        "settings": settings,
    })
}
