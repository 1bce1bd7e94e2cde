//! The files that each command reads or writes.

/// A path with its description.
pub type Place = (&'static str, &'static str);

const CONFIG: Place =
    ("/etc/ksmith.toml", "The configuration: ksmith.toml(5). Without it all settings have their defaults.");
const CONTROL: Place = ("/run/ksmith/control", "The socket at which root asks the daemon.");
const VIEW: Place = ("/run/ksmith/view", "The read-only socket, for the group ksmith-view.");
const USER: Place = ("/run/ksmith/user", "The socket for programs of the group ksmith.");
const UNDO: Place =
    ("/run/ksmith/undo.json", "The original value of each setting that was changed, until it is restored.");
const HISTORY: Place = ("/var/lib/ksmith/history/history.db", "The history, which the group ksmith-view may read.");
const SCENARIOS: Place = ("/usr/share/ksmith/scenarios/", "Scenarios of the lab.");
const LIBRARY: Place = ("/usr/lib/ksmith/libksmith.so", "The library that opts a program in from inside.");
const DROP_INS: Place =
    ("/usr/share/ksmith/systemd/", "Drop-ins for ksmith.service, for what only some hosts need.");
const SETUP: Place =
    ("/var/lib/ksmith/setup.json", "State of the host before `ksmith setup`, until that is undone.");

/// Returns the files of the command with these words.
pub fn command_files(words: &str) -> &'static [Place] {
    match words {
        "" => &[CONFIG, CONTROL, VIEW, USER, UNDO, HISTORY, SCENARIOS, LIBRARY, DROP_INS],
        "daemon" => &[CONFIG, CONTROL, VIEW, USER, UNDO, HISTORY, DROP_INS],
        "history" | "report" => &[CONFIG, HISTORY],
        "serve" | "metrics" => &[CONFIG, VIEW, HISTORY],
        "run" => &[CONFIG, USER, LIBRARY],
        "set" | "enable" | "disable" | "restore" | "demo" | "scan" | "unmerge" => &[CONFIG, UNDO],
        "sim calibrate" => &[UNDO],
        "setup" => &[CONFIG, SETUP, DROP_INS],
        "lab run" | "lab list" | "sim" => &[SCENARIOS],
        "lab" | "job" | "job report" | "schema" | "completions" => &[],
        _ => &[CONFIG, CONTROL],
    }
}
