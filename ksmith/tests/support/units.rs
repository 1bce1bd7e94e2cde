//! systemd's units as systemd itself reads them.

use std::fs;
use std::process::{Command, Output};

use super::program::PROGRAM;
use super::skipped;

/// Runs systemd-analyze on the first of these files, which are given by name and text. They name the tested program in
/// place of the installed one, and no page of the manual. `None`, said loudly: systemd-analyze is not installed.
pub fn analyze(arguments: &[&str], files: &[(&str, &str)]) -> Option<Output> {
    let tree = tempfile::tempdir().unwrap();
    let is_told = |line: &&str| !line.starts_with("Documentation=man:");
    for (name, text) in files {
        let text: Vec<&str> = text.lines().filter(is_told).collect();
        let path = tree.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.join("\n").replace("/usr/bin/ksmith", PROGRAM)).unwrap();
    }
    let mut command = Command::new("systemd-analyze");
    command.args(arguments).arg(tree.path().join(files[0].0)).env("SYSTEMD_LOG_COLOR", "0").env("LC_ALL", "C");
    let output = command.output().ok();
    if output.is_none() {
        skipped("systemd-analyze is not installed");
    }
    output
}

/// Returns the complaints of `systemd-analyze verify` about units of ksmith, without those about other units of the
/// host.
pub fn complaints(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().filter(|line| line.contains("ksmith")).map(str::to_owned).collect()
}
