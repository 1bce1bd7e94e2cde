//! Other controllers of KSM, and the commands to hand over.

use super::{DaemonPresence, Finding, Severity, finding};
use crate::other_controllers::{ControllerConflict, FoundController, HandOver, name::ADVISOR};

/// Returns the finding about a controller; `None` if it neither runs nor starts at boot.
pub(super) fn finding_of(found: &FoundController, daemon: DaemonPresence) -> Option<Finding> {
    if !found.matters() {
        return None;
    }
    let row = found.controller;
    // A daemon that runs has taken over what it can.
    if row.conflict == ControllerConflict::None && daemon != DaemonPresence::Absent {
        return None;
    }
    let (code, severity) = match (row.conflict, found.runs()) {
        (ControllerConflict::Certain, true) => ("controller", Severity::Warning),
        (ControllerConflict::Certain, false) => ("controller-at-boot", Severity::Warning),
        (ControllerConflict::Possible, _) => ("controller-perhaps", Severity::Note),
        (ControllerConflict::AtStart, _) => ("controller-at-start", Severity::Note),
        (ControllerConflict::InPlaceOfKsm, _) => ("uksm", Severity::Note),
        (ControllerConflict::None, _) if row.name == ADVISOR => ("advisor", Severity::Note),
        (ControllerConflict::None, _) => ("controller-at-start", Severity::Note),
    };
    let meaning = match (row.conflict, found.runs()) {
        (ControllerConflict::Certain, true) => "also controls KSM: two controllers undo each other's settings",
        (ControllerConflict::Certain, false) => "does not run now, but controls KSM after the next boot",
        (ControllerConflict::Possible, _) => "may control KSM too",
        (ControllerConflict::AtStart, _) => "switches KSM at boot",
        (ControllerConflict::InPlaceOfKsm, _) => "merges pages here",
        (ControllerConflict::None, _) => "controls KSM",
    };
    let settings = match row.settings {
        [] => String::new(),
        settings => format!("; it writes {}", settings.join(", ")),
    };
    let what = format!("{found} {meaning}. What it does: {}{settings}; {}", row.does, when(found));
    Some(finding(code, severity, what, remedy(found)))
}

fn when(found: &FoundController) -> String {
    if !found.files.is_empty() {
        return "it does so after each boot".to_owned();
    }
    let now = if found.runs() { "it runs now" } else { "it does not run now" };
    match (found.states.is_empty(), found.starts_at_boot()) {
        (true, _) => now.to_owned(),
        (false, true) => format!("{now}, and starts at boot"),
        (false, false) => format!("{now}, and does not start at boot"),
    }
}

fn remedy(found: &FoundController) -> String {
    let list = |commands: Vec<String>| {
        commands.iter().map(|command| format!("`{command}`")).collect::<Vec<_>>().join(", then ")
    };
    let row = found.controller;
    if row.hand_over == HandOver::Nothing {
        return "`ksmith daemon` takes over and gives back; pages_to_scan can't be set by hand meanwhile"
            .to_owned();
    }
    let mut said = vec![format!("hand over: {}", list(found.commands_over()))];
    if found.is_handed_over_by_setup() {
        said.push("or `ksmith setup`, and `ksmith setup --undo` hands back".to_owned());
    }
    said.push(format!("hand back: {}", list(found.commands_back())));
    if row.can_be_paused && !found.pids.is_empty() {
        said.push("to pause it while ksmith runs: `ksmith daemon --take-over`".to_owned());
    }
    said.extend(found.hand_over_note().map(str::to_owned));
    said.join("; ")
}
