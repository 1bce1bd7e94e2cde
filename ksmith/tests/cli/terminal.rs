//! Output to a terminal, a pipe or a full disk.

use std::fs::{self, OpenOptions};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{PROGRAM, code, err, json, ksmith, out, tree};

#[test]
fn a_hostile_tree_is_shown_without_harm() {
    let tree = tree("hostile");
    for arguments in [&["status"][..], &["status", "--json"], &["doctor"], &["doctor", "--json"]] {
        let output = ksmith(&[arguments, &["--root", &tree]].concat());
        let text = out(&output);
        let control = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{arguments:?}: {text:?}");
        assert_eq!(err(&output), "", "{arguments:?}");
        assert_eq!(code(&output), if arguments[0] == "doctor" { 6 } else { 0 }, "{arguments:?}");
    }
    let status = json(&ksmith(&["--root", &tree, "status", "--json"]));
    let errors: Vec<&str> = status["errors"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
    let files = ["run", "pages_to_scan", "merge_across_nodes", "advisor_mode", "general_profit"]
        .map(|name| format!("/sys/kernel/mm/ksm/{name}: "));
    for file in files.iter().map(String::as_str).chain(["/proc/meminfo: ", "/proc/pressure/memory: "]) {
        assert!(errors.iter().any(|error| error.starts_with(file)), "{file} is not among {errors:?}");
    }
    // One line of /proc/vmstat makes sense, the other does not.
    for key in ["run", "cow_ksm"] {
        assert_eq!(status.get(key), Some(&Value::Null), "{key}: what makes no sense is not a number");
    }
}

#[test]
fn a_process_can_not_write_to_the_terminal_by_its_name() {
    let copy = tempfile::tempdir().unwrap();
    let (from, to) = (tree("linux-6.18"), copy.path().join("tree"));
    assert!(Command::new("cp").args(["-r", &from]).arg(&to).status().unwrap().success());
    let line = "qemu-system-x86_64\0-name\0\u{1b}]0;owned\u{7}\0";
    fs::write(to.join("proc/13466/cmdline"), line).unwrap();
    let output = ksmith(&["status", "--root", &to.display().to_string()]);
    let line = out(&output).lines().find(|line| line.contains("13466")).unwrap().to_owned();
    assert!(line.contains("owned") && !line.contains(char::is_control), "{line:?}");
}

#[test]
fn no_argument_and_no_path_writes_to_the_terminal() {
    let tree = tree("linux-6.18");
    let hostile = "web\u{1b}[2J\u{9b}2J\u{202e}\nksmith: all settings restored";
    for arguments in [
        &["config", "check", "--config", hostile][..],
        &["doctor", hostile, "--root", &tree],
        &["status", "--root", hostile, hostile],
        &[hostile],
    ] {
        let output = ksmith(arguments);
        let (said, lines) = (err(&output), err(&output));
        assert_ne!(code(&output), 0, "{said}");
        // The parser of arguments drops sequences that begin with an escape, of its own accord.
        assert!(said.contains("web") && said.contains("\\u{9b}2J\\u{202e}"), "{said}");
        for line in lines.lines() {
            assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
        }
        // Misuse is said in several lines, with the words of the command line as they are.
        if !said.starts_with("error: ") {
            assert_eq!(lines.lines().filter(|line| line.starts_with("ksmith: ")).count(), 1, "{said}");
        }
    }
}

/// Commands that print and change nothing, on trees and not on this host, so that a daemon's test does not matter.
fn printing() -> Vec<Vec<String>> {
    let with_tree = |words: &[&str]| {
        words.iter().map(ToString::to_string).chain(["--root".to_owned(), tree("linux-6.18")]).collect()
    };
    let bare = |words: &[&str]| words.iter().map(ToString::to_string).collect();
    vec![
        with_tree(&["status"]),
        with_tree(&["status", "--json"]),
        with_tree(&["doctor"]),
        with_tree(&["doctor", "--json"]),
        bare(&["config", "check"]),
        bare(&["completions", "bash"]),
        bare(&["demo", "--simulated", "--size", "4"]),
        bare(&["demo", "--simulated", "--size", "4", "--json"]),
        bare(&["--help"]),
        bare(&["status", "--help"]),
        bare(&["--version"]),
    ]
}

#[test]
fn a_closed_pipe_is_no_error() {
    for arguments in printing() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(PROGRAM).args(&arguments).stdin(Stdio::null()).stdout(writer).output().unwrap();
        assert_eq!(code(&output), 0, "{arguments:?}: {}", err(&output));
        assert!(!err(&output).contains("panicked") && !err(&output).contains("Broken pipe"), "{}", err(&output));
    }
}

#[test]
fn a_result_that_can_not_be_written_is_a_failure() {
    for arguments in printing() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(PROGRAM).args(&arguments).stdin(Stdio::null()).stdout(full).output().unwrap();
        assert_eq!(code(&output), 1, "{arguments:?}: {}", err(&output));
        let said = match arguments.iter().any(|word| word == "--json") {
            true => {
                "{\"error\":{\"code\":1,\"kind\":\"failed\",\"message\":\"can't print the result: No space left on device"
            }
            false => "ksmith: can't print the result: No space left on device",
        };
        assert!(
            err(&output).lines().last().unwrap_or_default().starts_with(said),
            "{arguments:?}: {}",
            err(&output)
        );
    }
}

#[test]
fn colours_are_for_terminals_unless_they_are_asked_for() {
    let tree = tree("linux-6.18");
    for command in ["status", "guests", "doctor"] {
        let run = |more: &[&str]| out(&ksmith(&[&[command, "--root", &tree], more].concat()));
        let (plain, painted) = (run(&[]), run(&["--color", "always"]));
        assert!(!plain.contains('\u{1b}'), "{plain}");
        assert_eq!(run(&["--color", "never"]), plain);
        let without: String = painted
            .split("\u{1b}[")
            .enumerate()
            .map(|(n, part)| match n {
                0 => part.to_owned(),
                _ => part.split_once('m').unwrap().1.to_owned(),
            })
            .collect();
        assert_eq!(without, plain, "a colour changes no text");
    }
    assert!(out(&ksmith(&["doctor", "--root", &tree, "--color", "always"])).contains("\u{1b}[33mwarning\u{1b}[0m"));
}
