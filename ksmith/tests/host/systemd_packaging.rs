//! The units as systemd itself reads them: nothing in them is unknown or contradicts itself, and little is left open.
//!
//! `make guest-unit` tries them on a booted system (packaging/tests/unit-checks).

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::skipped;
use crate::support::units::{self, complaints};

const UNIT: &str = include_str!("../../../packaging/systemd/ksmith.service");
const EVENTS: &str = include_str!("../../../packaging/systemd/ksmith-events.socket");

/// The drop-ins for what only some hosts need, by name.
fn options() -> Vec<(String, PathBuf)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd/options");
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path)).collect()
}

/// Runs systemd-analyze on a unit with this text, beside the socket and with these drop-ins.
fn analyze(arguments: &[&str], text: &str, drop_ins: &[PathBuf]) -> Option<Output> {
    let read = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        (format!("ksmith.service.d/{name}"), fs::read_to_string(path).unwrap())
    };
    let drop_ins: Vec<(String, String)> = drop_ins.iter().map(read).collect();
    let own = [("ksmith.service", text), ("ksmith-events.socket", EVENTS)];
    let files = own.into_iter().chain(drop_ins.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    units::analyze(arguments, &files.collect::<Vec<_>>())
}

/// Programs of users may take all threads of the sockets, and processes that look like guests all those for guests.
#[test]
fn the_unit_has_room_for_all_threads_at_once() {
    /// Three sockets: 256 connections of users, 16 of root, 16 for figures, 32 of each that are refused or end, some of
    /// root's own.
    const OF_SOCKETS: usize = 256 + 2 * 16 + 3 * 32 + 3 * 8;
    /// The loop, signals, process events, and threads that live for a moment.
    const OWN: usize = 16;
    let tasks = UNIT.lines().find_map(|line| line.strip_prefix("TasksMax=")).unwrap();
    let tasks: usize = tasks.parse().unwrap();
    let most = OF_SOCKETS + OWN + ksmith_service::GUEST_THREADS;
    assert!(most <= tasks, "TasksMax={tasks}, and there may be {most} threads");
}

#[test]
fn the_unit_and_its_drop_ins_are_such_as_systemd_understands() {
    let Some(sound) = analyze(&["verify"], UNIT, &[]) else { return };
    assert!(sound.status.success() && complaints(&sound).is_empty(), "{sound:?}");
    let all: Vec<PathBuf> = options().into_iter().map(|(_, path)| path).collect();
    let sound = analyze(&["verify"], UNIT, &all).unwrap();
    assert!(sound.status.success() && complaints(&sound).is_empty(), "{sound:?}");
    let broken = UNIT.replace("WatchdogSec=60s", "WatchdogSec=often");
    let said = complaints(&analyze(&["verify"], &broken, &[]).unwrap());
    assert!(said.iter().any(|line| line.contains("often")), "a mistake would be told: {said:?}");
}

#[test]
fn each_drop_in_is_named_where_the_unit_leaves_something_out() {
    for (name, _) in options() {
        assert!(UNIT.contains(&format!("options/{name}")), "{name}");
    }
    assert_eq!(UNIT.matches("options/").count(), options().len());
}

#[test]
fn the_units_exposure_is_one_and_a_half_of_ten() {
    let threshold = ["security", "--offline=true", "--threshold=15"];
    let Some(tight) = analyze(&threshold, UNIT, &[]) else { return };
    let said = String::from_utf8_lossy(&tight.stdout).into_owned();
    if !said.contains("Overall exposure level") {
        return skipped("this systemd-analyze rates no unit offline");
    }
    assert!(tight.status.success(), "{said}");
    for line in ["PrivateNetwork=yes", "ProtectKernelTunables=yes", "SystemCallFilter=~@privileged @resources"] {
        assert!(UNIT.contains(line), "{line}");
        let open = UNIT.replace(line, "");
        assert!(!analyze(&threshold, &open, &[]).unwrap().status.success(), "without {line} it is more");
    }
}

/// Runs the unit's `ExecReload=` with this configuration. Returns its exit code, and true if the daemon was told to read
/// it. A program that waits stands in for the daemon, and SIGTERM for SIGHUP: a test may have been started to ignore that.
fn reload(text: &str) -> (Option<i32>, bool) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, text).unwrap();
    let command = UNIT.lines().find_map(|line| line.strip_prefix("ExecReload=/bin/sh -c '")).unwrap();
    let program = format!("{} --config {}", env!("CARGO_BIN_EXE_ksmith"), file.path().display());
    assert!(command.ends_with("kill -HUP $MAINPID'"), "{command}");
    let command = command.trim_end_matches('\'').replace("/usr/bin/ksmith", &program).replace("-HUP", "-TERM");
    let mut daemon = Command::new("sleep").arg("1000").spawn().unwrap();
    let told =
        Command::new("/bin/sh").args(["-c", &command]).env("MAINPID", daemon.id().to_string()).output().unwrap();
    if !told.status.success() {
        daemon.kill().unwrap();
    }
    let signal = daemon.wait().unwrap().signal();
    (told.status.code(), signal == Some(15))
}

#[test]
fn a_reload_of_what_the_daemon_would_refuse_fails_and_tells_it_nothing() {
    assert_eq!(reload("[policy]\nkind = \"score\"\n"), (Some(0), true));
    for text in [
        "polcy = 1\n",
        "[policy]\nkind = \"score\"\n[limits]\nmax_cpu = \"120%\"\n",
        "[limits\n",
        "[policy]\nkind = \"ksmtuned\"\n[policy.ksmtuned]\nfile = \"/proc\"\n",
    ] {
        let (code, is_told) = reload(text);
        assert!(code.is_some_and(|code| code != 0) && !is_told, "{text}: {code:?}");
    }
}
