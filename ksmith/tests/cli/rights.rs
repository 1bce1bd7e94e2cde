//! Acting commands are refused to users without rights, and on captured trees.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::{ACTING, PROGRAM, code, commands, err, json, ksmith, out, tree};
use crate::support::{copy_program, skipped};

#[test]
fn what_acts_refuses_a_captured_tree() {
    let tree = tree("linux-6.18");
    for arguments in ACTING.into_iter().chain([&["demo"][..]]) {
        let output = ksmith(&[arguments, &["--root", &tree]].concat());
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(err(&output).contains("this command acts on a live kernel"), "{arguments:?}: {}", err(&output));
    }
}

/// The program where any user may run it, and a user that is not root.
struct UnprivilegedProgram {
    _directory: tempfile::TempDir,
    program: PathBuf,
}

impl UnprivilegedProgram {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let program = directory.path().join("ksmith");
        copy_program(Path::new(PROGRAM), &program);
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let user = Self { _directory: directory, program };
        if !user.run(&["--version"]).status.success() {
            skipped("no program can be run as another user here (setpriv)");
            return None;
        }
        Some(user)
    }

    /// Makes a key of a fleet that only this user may read.
    fn own_file(&self, name: &str) -> PathBuf {
        let path = self.program.with_file_name(name);
        fs::write(&path, "0123456789abcdef0123456789abcdef").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
        }
        path
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(&self.program);
            command
        } else {
            Command::new(&self.program)
        };
        command.args(arguments).current_dir("/").stdin(Stdio::null()).output().unwrap()
    }
}

#[test]
fn without_root_nothing_is_changed_and_everything_that_can_be_is_shown() {
    if !Path::new("/sys/kernel/mm/ksm/run").exists() {
        skipped("this kernel has no KSM");
        return;
    }
    let Some(user) = UnprivilegedProgram::new() else { return };
    for arguments in ACTING {
        let output = user.run(arguments);
        assert_eq!(code(&output), 5, "{arguments:?}: {}", err(&output));
        assert_eq!(err(&output), "ksmith: changing KSM's settings needs root: run it with sudo\n", "{arguments:?}");
    }

    let output = user.run(&["status"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let hint = "do not show their KSM figures to this user; run as root to see all";
    assert!(out(&output).contains(hint), "{}", out(&output));
    let status = json(&user.run(&["status", "--json"]));
    assert!(status["run"].is_u64() && status["hidden_processes"].as_u64().unwrap() > 0, "{status}");
    assert!(status["errors"].as_array().unwrap().iter().any(|error| error.as_str().unwrap().contains(hint)));

    let findings = json(&user.run(&["doctor", "--json"]));
    let codes: Vec<&str> =
        findings["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap()).collect();
    assert!(!codes.contains(&"nothing-mergeable"), "what can't be seen is not said to be absent: {codes:?}");

    let output = user.run(&["demo"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("needs root: sudo ksmith demo"), "{}", out(&output));
    assert_eq!(json(&user.run(&["demo", "--json", "--size", "4"]))["mode"], "simulated");
}

/// The words in the help of each command that takes a guest.
const NAMES_A_GUEST: &str = "kind:name or VMID";

/// Returns the commands whose help says that they take a guest.
fn commands_with_a_guest() -> Vec<String> {
    let names_a_guest = |command: &String| out(&ksmith(&[command, "--help"])).contains(NAMES_A_GUEST);
    commands().into_iter().filter(names_a_guest).collect()
}

#[test]
fn every_command_that_takes_a_guest_says_that_this_user_may_not_see_it() {
    const NONE: &str = "no-such-guest";
    let rows: [(&[&str], &str); 11] = [
        (&["doctor", NONE], "this user sees no guest"),
        (&["guests", NONE], "this user sees no guest"),
        (&["estimate", NONE], "this user sees no guest"),
        (&["estimate", "1", NONE], "this user sees no guest"),
        (&["fold", NONE, "--dry-run"], "this user sees no guest"),
        (&["merge", "on", NONE], "this user sees no guest"),
        (&["merge", "off", NONE, "--dry-run"], "this user sees no guest"),
        (&["hold", NONE], "needs root"),
        (&["give", NONE, "1M"], "needs root"),
        (&["take", NONE, "1M", "--dry-run"], "needs root"),
        (&["sketch", NONE, "--out", "/dev/null", "--secret", "KEY"], "this user sees no guest"),
    ];
    // The history is a file: who may read it sees all of its guests.
    let mut known: Vec<&str> = rows.iter().map(|(arguments, _)| arguments[0]).chain(["history"]).collect();
    known.sort_unstable();
    known.dedup();
    let mut found = commands_with_a_guest();
    found.sort_unstable();
    assert_eq!(found, known, "a command that takes a guest has a row");
    let Some(user) = UnprivilegedProgram::new() else { return };
    let key = user.own_file("fleet.key");
    for (arguments, why) in rows {
        let key = key.display().to_string();
        let arguments: Vec<&str> = arguments.iter().map(|word| if *word == "KEY" { &key } else { *word }).collect();
        let output = user.run(&arguments);
        assert_eq!(code(&output), 5, "{arguments:?}: {}", err(&output));
        assert!(err(&output).contains(why) && err(&output).contains("root"), "{arguments:?}: {}", err(&output));
    }
}

#[test]
fn root_and_a_captured_tree_hide_no_guest() {
    let tree = tree("linux-6.18");
    let output = ksmith(&["doctor", "no-such-guest", "--root", &tree]);
    assert_eq!(code(&output), 4, "{}", err(&output));
    if rustix::process::geteuid().is_root() {
        for arguments in
            [&["doctor", "no-such-guest"][..], &["estimate", "no-such-guest"], &["merge", "on", "no-such-guest"]]
        {
            let output = ksmith(arguments);
            assert_eq!(code(&output), 4, "{arguments:?}: {}", err(&output));
        }
    }
}

#[test]
fn estimate_tells_root_not_to_become_root() {
    let output = ksmith(&["estimate", "1"]);
    if rustix::process::geteuid().is_root() {
        assert!(!err(&output).contains("run ksmith as root"), "{}", err(&output));
    } else {
        assert_eq!(code(&output), 5, "{}", err(&output));
    }
}
