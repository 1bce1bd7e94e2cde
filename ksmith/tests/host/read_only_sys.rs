//! A host whose `/sys` is mounted read-only, as in a container without rights: commands that would change KSM say so, and the
//! daemon watches.

use std::path::Path;
use std::process::Command;

use crate::support::own::on_own_host;
use crate::support::program::{RunningProgram, config_file, ksmith, status};
use crate::support::{settings, skipped, wait_until};

const KSM: &str = "/sys/kernel/mm/ksm";

/// Does `body` with the settings of a KSM that no program can write.
fn with_read_only_settings(body: impl FnOnce(&settings::Settings)) {
    if !Path::new(KSM).join("run").exists() {
        return skipped("this kernel has no KSM");
    }
    // What would scan if it could.
    std::fs::write(Path::new(KSM).join("run"), "1\n").unwrap();
    let mounted = Command::new("mount").args(["-o", "remount,bind,ro", KSM]).status().unwrap();
    assert!(mounted.success());
    let before = settings::now();
    body(&before);
    assert_eq!(settings::now(), before);
}

#[test]
fn each_command_that_would_change_ksm_says_that_sys_is_read_only() {
    on_own_host(|| {
        with_read_only_settings(|_| {
            let (_config, path) = config_file("[daemon]\ncontrol_socket = \"/run/ksmith-is-not-here/control\"\n");
            for command in [
                &["scan"][..],
                &["enable"],
                &["disable"],
                &["set", "pages_to_scan=321"],
                &["unmerge"],
                &["demo", "--force", "--size", "8"],
            ] {
                let (code, _, said) = ksmith(&[&["--config", &path], command].concat());
                assert_eq!(code, 3, "{command:?}: {said}");
                assert!(said.contains("/sys is read-only here"), "{command:?}: {said}");
            }
        });
    });
}

#[test]
fn the_daemon_watches_where_sys_is_read_only_and_refuses_scans() {
    on_own_host(|| {
        with_read_only_settings(|before| {
            let daemon = RunningProgram::daemon("[policy]\nkind = \"off\"\n", &[]);
            wait_until("it has taken a turn", || {
                status().is_some_and(|status| status["daemon"]["state"] == "watching")
            });
            let status = status().unwrap();
            assert_eq!(status["errors"].as_array().map(Vec::len), Some(0), "{status}");
            let (code, _, said) = ksmith(&["scan"]);
            assert!(code != 0 && said.contains("/sys is read-only here"), "{code}: {said}");
            assert_eq!(settings::now(), *before);
            let log = daemon.end();
            assert_eq!(log.matches("this daemon watches, and changes nothing").count(), 1, "{log}");
        });
    });
}
