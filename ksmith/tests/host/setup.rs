//! `ksmith setup` as an administrator runs it, on trees of hosts with stand-ins for systemctl, groupadd and groupdel.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A tree of a host.
struct SetupHost {
    tree: TempDir,
    calls: PathBuf,
    _calls: TempDir,
}

impl SetupHost {
    /// A Debian host with systemd and ksmith's package, without groups and configuration.
    fn new() -> Self {
        let calls = tempfile::tempdir().unwrap();
        let host = Self { tree: tempfile::tempdir().unwrap(), calls: calls.path().join("calls"), _calls: calls };
        host.put("sys/kernel/mm/ksm/run", "0\n");
        host.put("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\n");
        host.put("proc/cpuinfo", "vendor_id\t: AuthenticAMD\n");
        host.put("etc/group", "root:x:0:\n");
        host.put("run/systemd/system/.keep", "");
        host.put("var/lib/.keep", "");
        host.put("etc/systemd/system/multi-user.target.wants/.keep", "");
        host.put("run/systemd/units/.keep", "");
        host.put("lib/systemd/system/ksmith.service", "[Service]\n");
        host.put("lib/systemd/system/ksmith-serve.socket", "[Socket]\n");
        host
    }

    /// Creates the same host with Debian's ksmtuned, which runs.
    fn with_ksmtuned() -> Self {
        let host = Self::new();
        for unit in ["ksm.service", "ksmtuned.service"] {
            host.put(&format!("lib/systemd/system/{unit}"), "[Service]\n");
            host.link(
                &format!("etc/systemd/system/multi-user.target.wants/{unit}"),
                &format!("/lib/systemd/system/{unit}"),
            );
            host.link(&format!("run/systemd/units/invocation:{unit}"), "0123456789abcdef");
        }
        host
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.tree.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The process of tuned.
    fn put_tuned(&self) {
        self.put("proc/40/cmdline", "/usr/bin/python3\0-Es\0/usr/sbin/tuned\0-l\0-P\0");
        self.put("proc/40/status", "Name:\ttuned\nUid:\t0\t0\t0\t0\nNSpid:\t40\n");
        self.put("proc/40/stat", "40 (tuned) S 1 1 1 0 -1 4194560 0 0 0 0 5 6 0 0 20 0 1 0 400 1000 33 0");
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.tree.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn setup(&self, arguments: &[&str]) -> Output {
        self.setup_with("FAIL", "", arguments)
    }

    /// Runs `ksmith setup`, with one command of systemctl that fails (`FAIL`) or that ends ksmith by SIGKILL (`KILL`).
    fn setup_with(&self, what: &str, command: &str, arguments: &[&str]) -> Output {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/programs");
        Command::new(env!("CARGO_BIN_EXE_ksmith"))
            .args(["--root", &self.tree.path().display().to_string(), "setup"])
            .args(arguments)
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("CALLS", &self.calls)
            .env(what, command)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// The calls of programs since the last time.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.calls).unwrap_or_default();
        let _ = fs::remove_file(&self.calls);
        text.lines().map(str::to_owned).collect()
    }

    /// Returns all files and links with their content, without directories.
    fn content(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.tree.path().to_owned()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).unwrap().flatten() {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                let content = match () {
                    () if kind.is_dir() => {
                        open.push(path);
                        continue;
                    }
                    () if kind.is_symlink() => format!("-> {}", fs::read_link(&path).unwrap().display()),
                    () => fs::read_to_string(&path).unwrap(),
                };
                found.insert(path.strip_prefix(self.tree.path()).unwrap().to_owned(), content);
            }
        }
        found
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_host_with_ksmtuned_is_set_up_and_is_as_before_after_the_undo() {
    let host = SetupHost::with_ksmtuned();
    let before = host.content();
    let shown = host.setup(&["--dry-run"]);
    assert_eq!((code(&shown), host.content(), host.calls()), (0, before.clone(), vec![]), "{}", err(&shown));
    let done = host.setup(&["--yes", "--serve"]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    let calls = [
        "groupadd --force --system ksmith",
        "groupadd --force --system ksmith-view",
        "systemctl disable --now ksmtuned.service",
        "systemctl disable --now ksm.service",
        "systemctl enable --now ksmith.service",
        "systemctl enable --now ksmith-serve.socket",
    ];
    assert_eq!(host.calls(), calls);
    // What is shown is what is done.
    for command in &calls[2..5] {
        assert!(
            out(&shown).contains(command) && out(&done).contains(&format!("done: {command}")),
            "{}",
            out(&done)
        );
    }
    let config = fs::read_to_string(host.tree.path().join("etc/ksmith.toml")).unwrap();
    assert!(config.contains("kind = \"profit\""), "{config}");
    let notes = host.tree.path().join("var/lib/ksmith/setup.json");
    assert_eq!(fs::metadata(&notes).unwrap().permissions().mode() & 0o777, 0o600);

    let again = host.setup(&["--yes"]);
    assert!(out(&again).contains("there is nothing to do"), "{}", out(&again));
    assert_eq!((code(&again), host.calls()), (0, vec![]));

    let undone = host.setup(&["--undo", "--yes"]);
    assert_eq!(code(&undone), 0, "{}", err(&undone));
    assert_eq!(
        host.calls(),
        [
            "systemctl disable ksmith-serve.socket",
            "systemctl stop ksmith-serve.socket",
            "systemctl disable ksmith.service",
            "systemctl stop ksmith.service",
            "systemctl enable ksm.service",
            "systemctl start ksm.service",
            "systemctl enable ksmtuned.service",
            "systemctl start ksmtuned.service",
            "groupdel ksmith-view",
            "groupdel ksmith",
        ]
    );
    assert_eq!(host.content(), before);
    let nothing = host.setup(&["--undo", "--yes"]);
    assert_eq!((code(&nothing), host.calls()), (0, vec![]), "a package's removal script may call it at any time");
    assert!(out(&nothing).contains("nothing to undo"));
}

#[test]
fn a_service_that_was_off_stays_off_after_the_undo() {
    for (is_enabled, is_active, over, back) in [
        (true, false, "systemctl disable ksmtuned.service", "systemctl enable ksmtuned.service"),
        (false, true, "systemctl stop ksmtuned.service", "systemctl start ksmtuned.service"),
    ] {
        let host = SetupHost::new();
        host.put("lib/systemd/system/ksmtuned.service", "[Service]\n");
        if is_enabled {
            let wants = "etc/systemd/system/multi-user.target.wants/ksmtuned.service";
            host.link(wants, "/lib/systemd/system/ksmtuned.service");
        }
        if is_active {
            host.link("run/systemd/units/invocation:ksmtuned.service", "0123456789abcdef");
        }
        let before = host.content();
        assert_eq!(code(&host.setup(&["--yes"])), 0);
        assert!(host.calls().contains(&over.to_owned()));
        assert_eq!(code(&host.setup(&["--undo", "--yes"])), 0);
        let calls = host.calls();
        assert!(calls.contains(&back.to_owned()), "{calls:?}");
        assert_eq!(calls.iter().filter(|call| call.contains("ksmtuned")).count(), 1, "{calls:?}");
        assert_eq!(host.content(), before);
    }
}

#[test]
fn without_a_terminal_nothing_happens_unasked() {
    let host = SetupHost::with_ksmtuned();
    let before = host.content();
    let output = host.setup(&[]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("--yes does it without asking"), "{}", err(&output));
    assert_eq!((host.content(), host.calls()), (before, vec![]));
}

#[test]
fn a_controller_that_no_command_of_ours_stops_is_named_before_anything_changes() {
    let host = SetupHost::new();
    host.put("etc/tuned/active_profile", "rt\n");
    host.put("usr/lib/tuned/rt/tuned.conf", "[script]\nscript=${i:PROFILE_DIR}/script.sh\n");
    host.put("usr/lib/tuned/rt/script.sh", "disable_ksm\n");
    host.put_tuned();
    let before = host.content();
    let output = host.setup(&["--yes"]);
    assert_eq!(code(&output), 3);
    assert!(err(&output).contains("nothing was changed") && err(&output).contains("tuned-adm profile OTHER"));
    assert_eq!((host.content(), host.calls()), (before, vec![]));
}

#[test]
fn tuned_gets_a_profile_that_leaves_ksm_alone_and_momd_is_masked_and_both_are_as_before_after_the_undo() {
    for directory in ["tuned", "tuned/profiles"] {
        let host = SetupHost::new();
        host.put("etc/tuned/active_profile", "rt\n");
        host.put("etc/tuned/profile_mode", "manual\n");
        host.put(&format!("usr/lib/{directory}/rt/tuned.conf"), "[sysfs]\n/sys/kernel/mm/ksm/run = 2\n");
        fs::create_dir_all(host.tree.path().join("etc").join(directory)).unwrap();
        host.put_tuned();
        host.put("lib/systemd/system/mom-vdsm.service", "[Service]\n");
        host.link("run/systemd/units/invocation:mom-vdsm.service", "0123456789abcdef");
        let before = host.content();
        let shown = host.setup(&["--dry-run"]);
        let done = host.setup(&["--yes"]);
        assert_eq!(code(&done), 0, "{}", err(&done));
        let over = ["systemctl mask --now mom-vdsm.service", "tuned-adm profile rt-ksmith"];
        assert_eq!(host.calls()[2..4], over);
        for text in [over[0], over[1], "note: momd: it also moves the guests' balloons", "the profile rt sets KSM"]
        {
            assert!(out(&shown).contains(text), "{text}: {}", out(&shown));
        }
        let made = host.tree.path().join(format!("etc/{directory}/rt-ksmith"));
        assert_eq!(
            fs::read_to_string(made.join("tuned.conf")).unwrap(),
            "[main]\ninclude=rt\n[sysfs]\ndrop=/sys/kernel/mm/ksm/run\n"
        );
        let again = host.setup(&["--yes"]);
        assert!(out(&again).contains("there is nothing to do"), "{}", out(&again));
        assert_eq!(code(&host.setup(&["--undo", "--yes"])), 0);
        let back =
            ["tuned-adm profile rt", "systemctl unmask mom-vdsm.service", "systemctl start mom-vdsm.service"];
        assert_eq!(host.calls()[2..5], back);
        assert_eq!(host.content(), before);
        assert!(!made.exists(), "its directory goes too");
    }
}

#[test]
fn a_service_that_does_not_start_is_reported_and_the_rest_can_be_undone() {
    let host = SetupHost::with_ksmtuned();
    let before = host.content();
    let output = host.setup_with("FAIL", "enable ksmith.service", &["--yes"]);
    assert_eq!(code(&output), 1);
    for part in
        ["`systemctl enable --now ksmith.service` failed", "Job for ksmith.service failed", "--undo", "journalctl"]
    {
        assert!(err(&output).contains(part), "{part}: {}", err(&output));
    }
    host.calls();
    // One that fails keeps no other from being undone, and stays noted.
    let output = host.setup_with("FAIL", "enable ksm.service", &["--undo", "--yes"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("It stays recorded"), "{}", err(&output));
    assert!(host.calls().contains(&"systemctl start ksmtuned.service".to_owned()));
    assert_eq!(code(&host.setup(&["--undo", "--yes"])), 0);
    assert_eq!(host.content(), before);
}

#[test]
fn a_setup_or_undo_that_is_killed_is_undone_whole_by_the_next_undo() {
    for moment in ["before", "after"] {
        for kill in ["disable ksmtuned.service", "disable ksm.service", "enable ksmith.service"] {
            let host = SetupHost::with_ksmtuned();
            let before = host.content();
            let killed = host.setup_with("KILL", &format!("{moment} {kill}"), &["--yes"]);
            assert_eq!(killed.status.signal(), Some(9), "{moment} {kill}");
            assert_ne!(host.content(), before);
            let killed = host.setup_with("KILL", &format!("{moment} enable ksm.service"), &["--undo", "--yes"]);
            let has_handed_over = kill != "disable ksmtuned.service";
            assert_eq!(killed.status.signal() == Some(9), has_handed_over, "{moment} {kill}");
            assert_eq!(code(&host.setup(&["--undo", "--yes"])), 0);
            assert_eq!(host.content(), before, "{moment} {kill}");
        }
    }
}

#[test]
fn a_restart_that_an_undo_left_is_all_that_the_next_undo_does() {
    let host = SetupHost::new();
    let before = host.content();
    host.put("var/lib/ksmith/setup.json", "{\"steps\": [], \"needs_restart\": true}");
    let restart = "systemctl daemon-reload; systemctl try-restart ksmith.service";
    let shown = host.setup(&["--undo", "--dry-run"]);
    assert_eq!((code(&shown), host.calls()), (0, vec![]), "{}", err(&shown));
    assert!(out(&shown).contains(&format!("\n  {restart}\n")), "{}", out(&shown));
    let failed = host.setup_with("FAIL", "try-restart ksmith.service", &["--undo", "--yes"]);
    assert_eq!(code(&failed), 1);
    assert!(err(&failed).contains("run `ksmith setup --undo` again"), "{}", err(&failed));
    host.calls();
    let undone = host.setup(&["--undo", "--yes"]);
    assert_eq!(code(&undone), 0, "{}", err(&undone));
    assert_eq!(out(&undone), format!("done: {restart}\n"));
    assert_eq!(host.calls(), ["systemctl daemon-reload", "systemctl try-restart ksmith.service"]);
    assert_eq!(host.content(), before, "and the notes are gone");
}

#[test]
fn an_image_without_systemd_gets_files_and_groups_and_is_told_the_rest() {
    let host = SetupHost::new();
    fs::remove_dir_all(host.tree.path().join("run/systemd")).unwrap();
    let output = host.setup(&["--yes", "--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["plan"]["notes"][0].as_str().unwrap().contains("systemd does not run here"), "{json}");
    assert_eq!(host.calls(), ["groupadd --force --system ksmith", "groupadd --force --system ksmith-view"]);
}

#[test]
fn a_host_without_ksm_or_without_the_unit_is_refused() {
    let host = SetupHost::new();
    fs::remove_dir_all(host.tree.path().join("sys")).unwrap();
    fs::remove_file(host.tree.path().join("lib/systemd/system/ksmith.service")).unwrap();
    let output = host.setup(&["--yes"]);
    assert_eq!((code(&output), host.calls()), (3, vec![]));
    assert!(err(&output).contains("no KSM") && err(&output).contains("no ksmith.service"), "{}", err(&output));
}

#[test]
fn damaged_notes_are_named_and_nothing_is_changed() {
    let host = SetupHost::with_ksmtuned();
    host.put("var/lib/ksmith/setup.json", "{\"steps\": [{");
    for arguments in [&["--yes"][..], &["--undo", "--yes"]] {
        let output = host.setup(arguments);
        assert_eq!((code(&output), host.calls()), (1, vec![]), "{arguments:?}");
        assert!(err(&output).contains("/var/lib/ksmith/setup.json, make no sense"), "{}", err(&output));
    }
}
