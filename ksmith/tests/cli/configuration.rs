//! Faults of the configuration, each with its place.

use std::fs;

use super::{code, err, json, ksmith, out, schema};

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
