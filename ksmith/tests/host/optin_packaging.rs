//! The packaging for the sockets of users: `packaging/sysusers.d` makes the groups of the users that may use them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::skipped;
use ksmith_service::config::Config;

fn packaged(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(file)
}

#[test]
fn the_groups_that_are_packaged_are_those_that_the_daemon_looks_for() {
    let text = fs::read_to_string(packaged("sysusers.d/ksmith.conf")).unwrap();
    let entries: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let config = Config::default();
    assert_eq!(entries, [format!("g {} -", config.optin.group), format!("g {} -", config.view.group)]);
    let listed = fs::read_to_string(packaged("README.md")).unwrap();
    assert!(listed.contains("| `sysusers.d/*` | `/usr/lib/sysusers.d/` |"), "a package must hold it");
}

#[test]
fn systemd_makes_the_groups_of_it() {
    let image = tempfile::tempdir().unwrap();
    fs::create_dir(image.path().join("etc")).unwrap();
    let mut command = Command::new("systemd-sysusers");
    command.arg("--root").arg(image.path()).arg(packaged("sysusers.d/ksmith.conf").canonicalize().unwrap());
    let Ok(output) = command.output() else { return skipped("there is no systemd-sysusers") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let groups = fs::read_to_string(image.path().join("etc/group")).unwrap();
    for group in ["ksmith:", "ksmith-view:"] {
        assert!(groups.lines().any(|line| line.starts_with(group) && line.ends_with(':')), "{groups}");
    }
}
