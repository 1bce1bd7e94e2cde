//! The daemon with the rights that the DaemonSet gives it, and no others.

use std::path::Path;

use crate::support::own::on_own_host;
use crate::support::program::{PROGRAM, RunningProgram, status};
use crate::support::spoof::{OTHER_USER, SpoofedProcess};
use crate::support::{ksm, wait_until};

const MANIFEST: &str = include_str!("../../../packaging/kubernetes/ksmith.yaml");

/// As in the container: only the directories that the DaemonSet mounts can be written to.
const READ_ONLY: &str = "set -eu
for place in / /sys /proc /dev/shm; do mount --bind $place $place; mount -o remount,bind,ro $place; done
mount --bind /run/ksmith/ksm /sys/kernel/mm/ksm
exec \"$@\"";

/// The capabilities of the daemon's container, as `setpriv` has them.
fn capabilities() -> String {
    let container = &MANIFEST[MANIFEST.find("name: daemon").unwrap()..MANIFEST.find("name: serve").unwrap()];
    assert!(container.contains("drop: [ALL]"));
    let added = container.lines().find_map(|line| line.trim().strip_prefix("add: [")?.strip_suffix(']')).unwrap();
    let names = added.split(", ").map(|name| format!(",+{}", name.to_ascii_lowercase()));
    format!("-all{}", names.collect::<String>())
}

/// A daemon with these capabilities, and the number of processes that hide their figures from it.
fn hidden_from(capabilities: &str, directory: &Path) -> u64 {
    let config = directory.join("ksmith.toml");
    std::fs::write(&config, "[limits]\nmax_cpu = \"20%\"\n").unwrap();
    let bounding = format!("--bounding-set={capabilities}");
    let line = ["unshare", "--mount", "--net", "sh", "-c", READ_ONLY, "sh"];
    let rights = ["setpriv", &bounding, "--inh-caps=-all", "--regid=990", "--clear-groups", "--no-new-privs"];
    let program = [PROGRAM, "daemon", "--config", config.to_str().unwrap()];
    let mut daemon = RunningProgram::start_line(&[&line[..], &rights[..], &program[..]].concat(), |_| ());
    daemon.wait_ready();
    wait_until("the daemon sets KSM up", || ksm("use_zero_pages") == "1");
    let hidden = status().unwrap()["hidden_processes"].as_u64().unwrap();
    let log = daemon.end();
    assert!(log.contains("all settings restored"), "{log}");
    assert_eq!(ksm("use_zero_pages"), "0", "its settings are put back");
    hidden
}

#[test]
fn the_rights_of_the_daemon_set_are_enough_and_each_is_needed() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let _other = SpoofedProcess::start(OTHER_USER, "other", &[]);
        let all = capabilities();
        assert_eq!(all.matches('+').count(), 2, "{all}");
        assert_eq!(hidden_from(&all, directory.path()), 0);
        assert!(hidden_from("-all", directory.path()) > 0, "without them figures of others are hidden");
    });
}
