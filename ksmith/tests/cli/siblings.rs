//! The programs that `ksmith` becomes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{PROGRAM, code, err, out};
use crate::support::{copy_program, skipped};

/// A directory as a package makes it: `ksmith` in bin, and nothing in lib/ksmith.
fn package() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("lib/ksmith")).unwrap();
    fs::create_dir(directory.path().join("bin")).unwrap();
    copy_program(Path::new(PROGRAM), &directory.path().join("bin/ksmith"));
    directory
}

fn run(program: &Path, words: &[&str]) -> std::process::Output {
    Command::new(program).args(words).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_program_that_is_missing_is_named_with_the_remedy() {
    let package = package();
    let program = package.path().join("bin/ksmith");
    for (words, name) in [
        (&["daemon"][..], "ksmithd"),
        (&["serve"], "ksmith-serve"),
        (&["lab", "list"], "ksmith-lab"),
        (&["sim", "idle"], "ksmith-lab"),
        (&["demo", "--simulated"], "ksmith-lab"),
    ] {
        let output = run(&program, words);
        assert_eq!(code(&output), 1, "{words:?}: {}", err(&output));
        let said = err(&output);
        assert!(said.starts_with(&format!("ksmith: {name} is neither in ")), "{said}");
        assert!(said.trim_end().ends_with("install the whole package of ksmith"), "{said}");
    }
    assert_eq!(code(&run(&program, &["daemon", "--help"])), 0, "help needs no other program");
    assert_eq!(code(&run(&program, &["daemon", "--no-such-option"])), 2);
}

#[test]
fn a_program_of_the_package_gets_the_command_line_as_it_is() {
    let package = package();
    let daemon = package.path().join("lib/ksmith/ksmithd");
    // A copy: a file that is open for writing can't be started.
    let written = package.path().join("written");
    fs::write(&written, "#!/bin/sh\nprintf '%s|' \"$@\"\nexit 42\n").unwrap();
    copy_program(&written, &daemon);
    fs::set_permissions(&daemon, Permissions::from_mode(0o755)).unwrap();
    let words = ["-v", "--color", "never", "daemon", "--config", "a b", "--dry-run"];
    let output = run(&package.path().join("bin/ksmith"), &words);
    assert_eq!((code(&output), out(&output)), (42, format!("{}|", words.join("|"))), "{}", err(&output));

    fs::set_permissions(&daemon, Permissions::from_mode(0o644)).unwrap();
    let output = run(&package.path().join("bin/ksmith"), &["daemon"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("can't be run") && err(&output).trim_end().ends_with("chmod 755 it"));
}

#[test]
fn each_program_knows_its_own_commands_only() {
    for (program, own) in [
        (env!("CARGO_BIN_EXE_ksmithd"), "daemon"),
        (env!("CARGO_BIN_EXE_ksmith-serve"), "serve"),
        (env!("CARGO_BIN_EXE_ksmith-lab"), "lab"),
    ] {
        for command in ["daemon", "serve", "lab", "status", "run"] {
            let output = run(Path::new(program), &[command, "--help"]);
            assert_eq!(code(&output), if command == own { 0 } else { 2 }, "{program} {command}");
        }
    }
}

/// What root's daemon never runs is not in its program.
#[test]
fn the_daemons_program_has_no_code_of_lab_server_and_screen() {
    let Ok(listed) = Command::new("nm").arg(env!("CARGO_BIN_EXE_ksmithd")).output() else {
        return skipped("nm is not installed (binutils)");
    };
    let symbols = String::from_utf8_lossy(&listed.stdout);
    assert!(symbols.contains("14ksmith_service"), "the names of crates are in the table of symbols");
    for absent in
        ["5cmaes", "8plotters", "5rayon", "7ratatui", "4axum", "5hyper", "5tokio", "10ksmith_lab", "12ksmith_serve"]
    {
        let found: Vec<&str> = symbols.lines().filter(|line| line.contains(absent)).take(3).collect();
        assert_eq!(found, Vec::<&str>::new(), "{absent}");
    }
}
