//! Faults of the configuration, each with its place.

use std::fs;

use std::path::Path;
use std::process::Command;

use ksmith_core::figures::FigureScalar;
use ksmith_record::{HistoryBounds, HistorySnapshot, HistoryStore, columns};

use super::{PROGRAM, code, err, json, ksmith, out, schema, tree};
use crate::support::skipped;

#[test]
fn ten_mistakes_in_a_configuration_are_refused_ten_times_with_line_and_column() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ksmith.toml");
    let path = file.display().to_string();
    for (text, place, why) in [
        ("polcy = 1\n", ":1:1: ", "there is no key \"polcy\" at the top of the file: did you mean \"policy\"?"),
        ("[policy]\nkind = \"best\"\n", ":2:8: ", "kind takes \"profit\", \"score\""),
        ("[policy.profit]\nprice = 1\n", ":2:1: ", "there is no key \"price\" in [policy.profit]"),
        (
            "[policy.profit]\ngrowth_mib = \"4\"\n",
            ":2:14: ",
            "growth_mib takes a number of MiB, or a text with its unit",
        ),
        ("[limits]\nmax_cpu = \"120%\"\n", ":2:11: ", "is not a percentage"),
        (
            "[limits]\nmax_pages_to_scan = -1\n",
            ":2:21: ",
            "max_pages_to_scan takes a whole number from 0 to 4294967295, not -1",
        ),
        ("[policy.fixed]\nsettings = { pages_shared = 1 }\n", ":2:12: ", "pages_shared"),
        ("[daemon]\ncontrol_socket = \"/a\"\ncontrol_socket = \"/b\"\n", ":3:1: ", "duplicate key"),
        ("[limits\nmax_cpu = \"20%\"\n", ":1:8: ", "unclosed table"),
        ("# fine\n\n[policy.fixed]\npreset = \"slow\"\n", ":4:10: ", "there is no preset \"slow\""),
    ] {
        fs::write(&file, text).unwrap();
        // Every command that goes by the configuration refuses it, not only the one that checks.
        for command in [&["config", "check"][..], &["status"], &["doctor"]] {
            let output = ksmith(&[command, &["--config", &path]].concat());
            assert_eq!(code(&output), 2, "{text:?}");
            assert_eq!(out(&output), "", "{text:?}");
            let message = err(&output);
            assert!(message.starts_with(&format!("ksmith: {path}:")), "{message}");
            assert!(message.contains(place) && message.contains(why), "{text:?} gave {message}");
        }
    }
    fs::write(&file, "[policy]\nkind = \"score\"\n[limits]\nmax_cpu = \"20%\"\n").unwrap();
    let output = ksmith(&["config", "check", "--config", &path]);
    assert_eq!(
        (code(&output), out(&output)),
        (0, format!("{path}: good; policy score, ksmd up to 20 % of a CPU\n"))
    );
}

#[test]
fn all_faults_of_a_configuration_are_told_at_once_as_text_and_as_json() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ksmith.toml");
    let path = file.display().to_string();
    fs::write(&file, "[limits]\nmax_cpu = 50\n[balance]\nlow_percent = 30\n").unwrap();
    let output = ksmith(&["config", "check", &path]);
    assert_eq!(code(&output), 2);
    let lines: Vec<String> = err(&output).lines().map(|line| line.trim_start().to_owned()).collect();
    assert_eq!(
        lines,
        [
            format!("ksmith: {path}:2:11: max_cpu: a percentage is a text with its sign, not 50: write \"50%\""),
            format!("{path}:4:15: low_percent (30) must be less than high_percent (20)"),
        ]
    );
    let output = ksmith(&["config", "check", &path, "--json"]);
    assert_eq!(code(&output), 2);
    let document = json(&output);
    assert!(schema("config check").is_valid(&document), "{document}");
    assert_eq!(document["faults"][1]["line"], 4);
}

#[test]
fn a_file_that_the_policy_needs_is_checked_too() {
    let directory = tempfile::tempdir().unwrap();
    let (file, theirs) = (directory.path().join("ksmith.toml"), directory.path().join("ksmtuned.conf"));
    let text = format!("[policy]\nkind = \"ksmtuned\"\n[policy.ksmtuned]\nfile = {:?}\n", theirs.display());
    fs::write(&file, text).unwrap();
    let check = || ksmith(&["config", "check", "--config", &file.display().to_string()]);
    assert_eq!(code(&check()), 0, "that it is not there means the script's defaults");
    fs::write(&theirs, "KSM_SLEEP_MSEC=10\nKSM_NPAGES_MAX=many\n").unwrap();
    let output = check();
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains(&format!("{}: line 2: KSM_NPAGES_MAX", theirs.display())), "{}", err(&output));
}

/// The sentence that a command which only reads begins its warning with.
const WARNING: &str = "the configuration has faults, and defaults stand in for them";

/// Files that no daemon would start with: a key that does not exist, a value out of bounds, and one that is no TOML.
const FAULTY: [&str; 3] =
    ["[limits]\nmax_cpuu = \"20%\"\n", "[guests]\nprune_split_saves_percent = 101\n", "[limits\n"];

/// A captured tree with a configuration and a history of its own.
fn tree_with_history(directory: &Path) -> String {
    let copy = directory.join("tree");
    assert!(Command::new("cp").args(["-r", &tree("linux-6.18")]).arg(&copy).status().unwrap().success());
    fs::create_dir(copy.join("etc")).unwrap();
    let file = copy.join("var/lib/ksmith/history/history.db");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    // A full hour in 2026.
    let time = 1_795_467_600_000;
    let mut store = HistoryStore::open(&file, "boot", time, HistoryBounds::default()).unwrap().store;
    let host = columns::host().iter().map(|_| FigureScalar::Unsigned(1 << 20)).collect();
    store.write(&[HistorySnapshot { time, host, ..HistorySnapshot::default() }]).unwrap();
    copy.display().to_string()
}

#[test]
fn commands_that_only_read_go_on_with_what_is_sound_in_a_faulty_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let tree = tree_with_history(directory.path());
    let report = directory.path().join("report.md").display().to_string();
    let rows: [&[&str]; 10] = [
        &[],
        &["overview"],
        &["status"],
        &["status", "--json"],
        &["guests"],
        &["guests", "--by", "user", "--json"],
        &["doctor"],
        &["metrics"],
        &["history", "--since", "1795467000", "--until", "1795468000"],
        &["report", "--since", "1795467000", "--until", "1795468000", "--out", &report],
    ];
    for arguments in rows {
        let run = || ksmith(&[arguments, &["--root", &tree]].concat());
        let _ = fs::remove_file(Path::new(&tree).join("etc/ksmith.toml"));
        let sound = run();
        assert!(!err(&sound).contains(WARNING), "{arguments:?}: {}", err(&sound));
        assert!([0, 6].contains(&code(&sound)), "{arguments:?}: {}", err(&sound));
        for faulty in FAULTY {
            fs::write(Path::new(&tree).join("etc/ksmith.toml"), faulty).unwrap();
            let read = run();
            assert_eq!(code(&read), code(&sound), "{arguments:?}: {}", err(&read));
            assert_eq!(out(&read), out(&sound), "{arguments:?}");
            assert_eq!(err(&read).matches(WARNING).count(), 1, "{arguments:?}: {}", err(&read));
        }
    }
    // What acts goes by all of the file or by nothing.
    let output = ksmith(&["config", "check", "--root", &tree]);
    assert_eq!(code(&output), 2, "{}", err(&output));
}

#[test]
fn commands_that_read_the_live_host_go_on_too_and_those_that_act_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().display().to_string();
    fs::write(directory.path().join("ksmith.toml"), FAULTY[0]).unwrap();
    for file in ["passwd", "group"] {
        let _ = fs::copy(Path::new("/etc").join(file), directory.path().join(file));
    }
    let here = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        let script = "mount --bind \"$0\" /etc && exec \"$@\"";
        command.args(["--mount", "--propagation=private", "sh", "-c", script, &own, PROGRAM]).args(arguments);
        command.output().unwrap()
    };
    if code(&here(&["--version"])) != 0 {
        return skipped("no /etc of its own can be mounted here (unshare)");
    }
    for (arguments, expected) in [
        (&["status"][..], 0),
        (&["guests"], 0),
        (&["metrics"], 0),
        (&["balance"], 0),
        (&["estimate", "no-such-guest"], 4),
        (&["doctor", "no-such-guest"], 4),
    ] {
        let output = here(arguments);
        assert_eq!(code(&output), expected, "{arguments:?}: {}", err(&output));
        assert_eq!(err(&output).matches(WARNING).count(), 1, "{arguments:?}: {}", err(&output));
    }
    for arguments in
        [&["merge", "off", "no-such-guest"][..], &["scan", "--dry-run"], &["take", "no-such-guest", "1M"]]
    {
        let output = here(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", err(&output));
    }
}
