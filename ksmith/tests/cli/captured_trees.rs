//! The output for captured trees: of kernels without KSM, of unreadable files, of guests and their names.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::{code, err, json, ksmith, out, schema, tree};

#[test]
fn a_kernel_without_ksm_is_said_so() {
    let tree = tree("no-ksm");
    let output = ksmith(&["--root", &tree, "status"]);
    let expected =
        "Look: this kernel shows no KSM: no memory can be merged here\nKSM: this kernel has none\n".to_owned();
    assert_eq!((code(&output), out(&output)), (0, expected));
    let status = json(&ksmith(&["--root", &tree, "status", "--json"]));
    assert_eq!(
        (&status["run"], &status["saved_bytes"], &status["errors"]),
        (&Value::Null, &Value::Null, &Value::Array(vec![]))
    );
    let output = ksmith(&["--root", &tree, "doctor"]);
    assert_eq!(code(&output), 6);
    assert!(out(&output).contains("CONFIG_KSM=y"), "{}", out(&output));
}

#[test]
fn what_can_not_be_read_is_unknown_and_not_zero() {
    for name in ["hostile", "no-ksm"] {
        let tree = tree(name);
        let status = json(&ksmith(&["--root", &tree, "status", "--json"]));
        for key in ["saved_bytes", "profit_bytes", "exposure_bytes", "overhead_bytes", "tracked_bytes"] {
            assert!(status.as_object().unwrap().contains_key(key) && status[key].is_null(), "{name}: {key}");
        }
        let guests = json(&ksmith(&["--root", &tree, "guests", "--json"]));
        assert!(guests["saved_bytes"].is_null() && guests["profit_bytes"].is_null(), "{name}: {guests}");
        for guest in guests["guests"].as_array().unwrap() {
            assert!(guest["saved_bytes"].is_null() && guest["rss_bytes"].is_u64(), "{name}: {guest}");
        }
        assert!(json(&ksmith(&["--root", &tree, "--json"]))["saved_bytes"].is_null(), "{name}");
        for command in ["status", "guests"] {
            let text = out(&ksmith(&["--root", &tree, command]));
            assert!(!text.contains("saved 0 B") && !text.contains("saved     0 B"), "{name}: {text}");
        }
    }
    let known = json(&ksmith(&["--root", &tree("linux-6.18"), "status", "--json"]));
    assert!(known["saved_bytes"].is_u64() && known["profit_bytes"].is_i64(), "{known}");
}

/// A copy of a captured tree in which one guest has another's name.
fn twins() -> (tempfile::TempDir, String) {
    let copy = tempfile::tempdir().unwrap();
    let to = copy.path().join("tree");
    assert!(Command::new("cp").args(["-r", &tree("linux-6.18")]).arg(&to).status().unwrap().success());
    for pid in ["13466", "13467"] {
        fs::write(to.join(format!("proc/{pid}/cmdline")), "qemu-system-x86_64\0-name\0web\0").unwrap();
    }
    let tree = to.display().to_string();
    (copy, tree)
}

#[test]
fn a_name_of_two_guests_lists_both_and_a_pid_chooses_one() {
    let (_copy, tree) = twins();
    for name in ["web", "qemu:web"] {
        let output = ksmith(&["doctor", name, "--root", &tree]);
        assert_eq!((code(&output), out(&output).as_str()), (4, ""), "{}", err(&output));
        for part in ["2 guests are called", "qemu:web pid 13466", "qemu:web pid 13467", "by its PID or UUID"] {
            assert!(err(&output).contains(part), "{part}: {}", err(&output));
        }
    }
    // What this tree lacks is said of the one that was chosen.
    let chosen = ksmith(&["doctor", "13467", "--root", &tree]);
    assert!(err(&chosen).contains("the captured tree has no proc/13467/smaps"), "{}", err(&chosen));
}

#[test]
fn guests_that_are_named_are_shown_alone() {
    let tree = tree("linux-6.18");
    let names = |arguments: &[&str]| {
        let output = ksmith(&[&["guests", "--json", "--root", &tree], arguments].concat());
        let report = json(&output);
        let guests = report["guests"].as_array().unwrap().iter();
        let mut pids: Vec<u64> = guests.map(|guest| guest["pids"][0].as_u64().unwrap()).collect();
        pids.sort_unstable();
        pids
    };
    assert!(names(&[]).len() > 2);
    assert_eq!(names(&["13466"]), [13466]);
    assert_eq!(names(&["13466", "13467", "13467"]), [13466, 13467]);
    assert_eq!(names(&["alpha"]).len(), 1);
    let refused = ksmith(&["guests", "13466", "alhpa", "--root", &tree]);
    assert_eq!((code(&refused), out(&refused)), (4, String::new()));
    assert!(err(&refused).contains("(did you mean \"alpha\"?)"), "{}", err(&refused));
    let (_copy, twins) = twins();
    let both = json(&ksmith(&["guests", "web", "--json", "--root", &twins]));
    assert_eq!(both["guests"].as_array().unwrap().len(), 2, "{both}");
}

#[test]
fn a_file_that_a_captured_tree_lacks_is_named_and_no_process_is_said_to_have_ended() {
    let (_copy, tree) = twins();
    fs::remove_file(Path::new(&tree).join("proc/13466/maps")).unwrap();
    let output = ksmith(&["doctor", "13466", "--root", &tree]);
    assert_eq!(code(&output), 3, "{}", err(&output));
    assert!(err(&output).contains("the captured tree has no proc/13466/"), "{}", err(&output));
    assert!(!err(&output).contains("has ended"), "{}", err(&output));
}

#[test]
fn a_check_is_one_line_with_the_codes_of_nagios() {
    let check = |name: &str| {
        let output = ksmith(&["doctor", "--check", "--root", &tree(name)]);
        assert_eq!(out(&output).lines().count(), 1, "{}", out(&output));
        (code(&output), out(&output))
    };
    let (code_of_none, line) = check("no-ksm");
    assert_eq!(code_of_none, 2);
    assert!(line.starts_with("KSM CRITICAL - this kernel has no KSM") && line.contains(" | problems=1 "), "{line}");
    let (code_of_warnings, line) = check("linux-6.18");
    assert_eq!(code_of_warnings, 1, "{line}");
    assert!(line.starts_with("KSM WARNING - ") && line.contains(" | problems=0 warnings="), "{line}");
    let (unknown, line) = check("there-is-none");
    assert_eq!(unknown, 3);
    assert!(line.starts_with("KSM UNKNOWN - --root "), "{line}");
    let bad = tempfile::NamedTempFile::new().unwrap();
    fs::write(bad.path(), "polcy = 1\n").unwrap();
    let output = ksmith(&["doctor", "--check", "--config", &bad.path().display().to_string()]);
    assert_eq!((code(&output), out(&output).lines().count()), (3, 1), "{}", out(&output));
}

#[test]
fn captured_kernels_have_the_status_written_down() {
    for name in ["linux-6.1", "linux-6.18"] {
        let output = ksmith(&["status", "--json", "--root", &tree(name)]);
        insta::assert_snapshot!(format!("status-{name}"), out(&output));
    }
}

#[test]
fn what_commands_print_of_captured_trees_fits_their_schemas() {
    for name in ["linux-6.1", "linux-6.18", "no-ksm", "hostile"] {
        let tree = tree(name);
        for (command, arguments) in [
            ("status", &["status"][..]),
            ("guests", &["guests"]),
            ("guests", &["guests", "--by", "user"]),
            ("guests", &["guests", "--by", "domain", "--sort", "rss"]),
            ("doctor", &["doctor"]),
            ("overview", &[]),
            ("overview", &["overview"]),
            ("setup", &["setup", "--dry-run"]),
        ] {
            let document = json(&ksmith(&[arguments, &["--json", "--root", &tree]].concat()));
            let faults: Vec<_> = schema(command).iter_errors(&document).map(|fault| fault.to_string()).collect();
            assert!(faults.is_empty(), "{name}: {arguments:?}: {faults:?}");
        }
    }
    for (command, arguments) in [
        ("demo", &["demo", "--simulated", "--size", "4", "--json"][..]),
        ("config check", &["config", "check", "--json"]),
        ("lab list", &["lab", "list", "--json"]),
        ("sim", &["sim", "../scenarios/idle.toml", "--policies", "fixed:still,none", "--json"]),
    ] {
        let document = json(&ksmith(arguments));
        let faults: Vec<_> = schema(command).iter_errors(&document).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{arguments:?}: {faults:?}");
    }
}

#[test]
fn without_a_command_there_is_an_overview_with_the_next_command() {
    for (name, parts) in [
        ("no-ksm", &["this kernel has none", "next      `ksmith doctor`", "`ksmith --help` lists"][..]),
        ("linux-6.18", &["KSM       ", "control   ", "guests    ", "could     save at most", "next      `"]),
        ("hostile", &["KSM       ", "next      `"]),
    ] {
        let output = ksmith(&["--root", &tree(name)]);
        assert_eq!(code(&output), 0, "{name}: {}", err(&output));
        for part in parts {
            assert!(out(&output).contains(part), "{name}: {part} is not in\n{}", out(&output));
        }
    }
}

#[test]
fn guests_are_filtered_ordered_and_limited_in_text_and_json() {
    let tree = tree("linux-6.18");
    let run = |more: &[&str]| ksmith(&[&["guests", "--root", &tree], more].concat());
    let names = |output: &Output| {
        let guests = json(output)["guests"].as_array().unwrap().clone();
        guests.iter().map(|guest| guest["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = run(&["--json"]);
    assert_eq!(names(&all), ["alpha", "beta", "gamma"]);
    let few = run(&["--json", "--filter", "rss>1.1MiB or name~g*", "--sort", "name", "--reverse", "--limit", "2"]);
    assert_eq!(names(&few), ["gamma", "beta"]);
    assert_eq!(json(&few)["saved_bytes"], json(&all)["saved_bytes"]);
    let text = out(&run(&["--filter", "kind=qemu", "--limit", "1"]));
    assert!(text.contains("alpha") && !text.contains("beta"), "{text}");
    assert!(text.contains("… and 1 more\n2 of 3 guests fit the filter\n\nsaved 764 KiB on this host"), "{text}");
    let wrong = run(&["--filter", "kind=qemu and savd>1M"]);
    assert_eq!((code(&wrong), out(&wrong).as_str()), (2, ""));
    assert!(
        err(&wrong).starts_with("ksmith: the filter, at character 15: there is no figure `savd`; known are name,")
    );
}
