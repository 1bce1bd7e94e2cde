//! Other controllers of KSM as JSON.

use ksmith_core::figures::schema::{list, plains, texts};
use ksmith_core::other_controllers::FoundController;
use serde_json::{Value, json};

/// Returns each controller with its effect, its state, and the commands to hand over and back.
pub fn json(found: &[FoundController]) -> Value {
    let one = |found: &FoundController| {
        json!({
            "name": found.controller.name,
            "does": found.controller.does,
            "settings": found.controller.settings,
            "pids": found.pids,
            "profile": found.profile.as_ref().map(|profile| profile.names()),
            "runs": found.runs(),
            "starts_at_boot": found.starts_at_boot(),
            "hand_over": found.commands_over(),
            "hand_back": found.commands_back(),
            "note": found.hand_over_note(),
        })
    };
    found.iter().map(one).collect()
}

/// Returns the schema of [`json()`].
pub fn schema() -> Value {
    let keys = [
        ("name", "string", "Name of the controller."),
        ("does", "string", "What it does, and when."),
        ("profile", "string?", "Profile of tuned that sets KSM."),
        ("runs", "boolean", "True if it runs now."),
        ("starts_at_boot", "boolean", "True if it starts at boot."),
        ("note", "string?", "What else to know before it hands over."),
    ];
    let lists = [
        ("settings", texts("Files below /sys/kernel/mm/ksm that it writes.")),
        ("pids", list("PIDs of its processes.", json!({ "type": "integer" }))),
        ("hand_over", texts("Commands to hand over to ksmith.")),
        ("hand_back", texts("Commands to hand back.")),
    ];
    list("Other controllers that run, start at boot or are installed.", plains(&keys, lists))
}
