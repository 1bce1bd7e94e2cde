//! The settings of KSM and khugepaged for a test: the kernel's defaults while it runs, and what was there before put back afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use ksmith_core::knobs::Knob;
use ksmith_core::sample::ProcessId;
use ksmith_host::act::KsmJournal;
use ksmith_host::undo::StateDir;

use super::UNDO;

/// Settings in the order in which they can be written back, after the advisor was switched off and nothing is merged.
const KNOBS: [&str; 17] = [
    "max_ptes_shared",
    "max_ptes_none",
    "khugepaged_pages_to_scan",
    "khugepaged_scan_sleep_millisecs",
    "advisor_mode",
    "advisor_max_cpu",
    "advisor_min_pages_to_scan",
    "advisor_max_pages_to_scan",
    "advisor_target_scan_time",
    "smart_scan",
    "use_zero_pages",
    "merge_across_nodes",
    "max_page_sharing",
    "stable_node_chains_prune_millisecs",
    "pages_to_scan",
    "sleep_millisecs",
    "run",
];

/// The kernel's defaults (`mm/ksm.c`, `mm/khugepaged.c`) of what the tests rely on.
const DEFAULTS: [(&str, &str); 12] = [
    ("max_ptes_shared", "256"),
    ("max_ptes_none", "511"),
    ("khugepaged_pages_to_scan", "4096"),
    ("khugepaged_scan_sleep_millisecs", "10000"),
    ("run", "0"),
    ("pages_to_scan", "100"),
    ("sleep_millisecs", "20"),
    ("smart_scan", "1"),
    ("advisor_mode", "none"),
    ("use_zero_pages", "0"),
    ("merge_across_nodes", "1"),
    ("max_page_sharing", "256"),
];

/// The value of each setting that the kernel has.
pub type Settings = BTreeMap<&'static str, String>;

/// The machine's settings before the tests, with ksmith's journal of what it must undo. Put back when dropped.
pub struct SavedSettings(Settings);

/// The place of ksmith's journal while a test runs, so that the journal outlives a test that is killed.
const UNDO_BEFORE: &str = "/run/ksmith/undo.json.before-tests";

impl SavedSettings {
    /// Saves the settings and changes them to the kernel's defaults. What a killed experiment has left so harms no
    /// test.
    #[allow(clippy::disallowed_methods, reason = "the harness swallows what a test that passes says by eprintln")]
    pub fn with_defaults_set() -> Self {
        let mut before = Self(now());
        if !fs::exists(UNDO_BEFORE).unwrap_or(false) {
            let _ = fs::rename(UNDO, UNDO_BEFORE);
        }
        // Only a ksmith that was killed can have left ksmd running, see `in_use`.
        before.0.insert("run", "0".to_owned());
        let others = not_default(&before.0);
        if !others.is_empty() {
            let _ = writeln!(
                std::io::stderr(),
                "KSM had {} before this test, and has it again afterwards. What a killed ksmith has left, `ksmith restore` restores.",
                others.iter().map(|knob| format!("{knob}={}", before.0[knob])).collect::<Vec<_>>().join(" ")
            );
        }
        let _ = fs::remove_file(UNDO);
        let mut defaults = before.0.clone();
        for (knob, default) in DEFAULTS {
            // Those that this kernel has.
            defaults.entry(knob).and_modify(|value| default.clone_into(value));
        }
        write_all(&defaults);
        before
    }
}

impl Drop for SavedSettings {
    fn drop(&mut self) {
        // Of a daemon that a test has killed: its guests end with that test, and its settings are put back here.
        let _ = fs::remove_file(UNDO);
        write_all(&self.0);
        // Without one nothing is to be undone.
        let _ = fs::rename(UNDO_BEFORE, UNDO);
    }
}

fn path(knob: &str) -> &'static str {
    knob.parse().map(Knob::path).expect("a knob")
}

/// Writes all settings after everything was unmerged, without which some can't be written.
fn write_all(settings: &Settings) {
    let write = |knob: &str, text: &str| {
        let _ = fs::write(path(knob), text);
    };
    write("run", "2");
    write("advisor_mode", "none");
    for knob in KNOBS.iter().filter(|knob| **knob != "advisor_mode") {
        if let Some(text) = settings.get(knob) {
            write(knob, text);
        }
    }
    if let Some(mode) = settings.get("advisor_mode") {
        write("advisor_mode", mode);
    }
}

/// Returns the reason why KSM belongs to another program. `None` if it is unused, or if a ksmith that was killed has
/// left it running.
pub fn in_use(settings: &Settings) -> Option<String> {
    let journal = KsmJournal::open_to_restore(&StateDir::at(Path::new(UNDO).parent()?));
    let owner = journal.owner();
    match owner.filter(|_| journal.is_owner_alive()) {
        Some(ProcessId { pid, .. }) => Some(format!("ksmith {pid} is in charge of KSM")),
        None if owner.is_none() && settings.get("run").is_some_and(|run| run == "1") => {
            Some("KSM is in use (run=1). Stop what controls it".to_owned())
        }
        None => None,
    }
}

/// The settings that are not the kernel's defaults, of those that tests rely on.
pub fn not_default(settings: &Settings) -> Vec<&'static str> {
    let departs = |(knob, default): &(&str, &str)| settings.get(knob).is_some_and(|value| value != default);
    DEFAULTS.into_iter().filter(departs).map(|(knob, _)| knob).collect()
}

/// The settings as they are.
pub fn now() -> Settings {
    let text = |knob: &&'static str| {
        let text = fs::read_to_string(path(knob)).ok()?;
        // The advisor's mode is shown as a list with the chosen one in brackets.
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(mode, _)| mode);
        Some((*knob, chosen.unwrap_or(&text).trim().to_owned()))
    };
    KNOBS.iter().filter_map(text).collect()
}
