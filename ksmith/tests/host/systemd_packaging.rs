//! The unit as systemd itself reads it: nothing in it is unknown or contradicts itself, and little is left open.

use std::process::{Command, Output};

use crate::support::program::PROGRAM;
use crate::support::skipped;

const UNIT: &str = include_str!("../../../packaging/systemd/ksmith.service");

/// What systemd-analyze says of a unit with this text. `None`, said loudly, where it is not installed.
fn analyze(arguments: &[&str], text: &str) -> Option<Output> {
    let tree = tempfile::tempdir().unwrap();
    let unit = tree.path().join("ksmith.service");
    // Where it would be installed is nothing yet, and neither is its page.
    let text = text.replace("/usr/bin/ksmith", PROGRAM).replace("Documentation=man:ksmith(1)\n", "");
    std::fs::write(&unit, text).unwrap();
    let mut command = Command::new("systemd-analyze");
    command.args(arguments).arg(&unit).env("SYSTEMD_LOG_COLOR", "0").env("LC_ALL", "C");
    let output = command.output().ok();
    if output.is_none() {
        skipped("systemd-analyze is not installed");
    }
    output
}

#[test]
fn the_unit_is_one_that_systemd_understands() {
    let Some(sound) = analyze(&["verify"], UNIT) else { return };
    let said = String::from_utf8_lossy(&sound.stderr).into_owned();
    // Of other units on this host it may say something too.
    let of_ours: Vec<&str> = said.lines().filter(|line| line.contains("ksmith")).collect();
    assert!(sound.status.success() && of_ours.is_empty(), "{said}");
    let broken = UNIT.replace("WatchdogSec=60s", "WatchdogSec=often");
    let said = analyze(&["verify"], &broken).unwrap().stderr;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("ksmith") && said.contains("often"), "a mistake would be told: {said}");
}

#[test]
fn the_units_exposure_stays_below_three_of_ten() {
    let threshold = ["security", "--offline=true", "--threshold=30"];
    let Some(tight) = analyze(&threshold, UNIT) else { return };
    let said = String::from_utf8_lossy(&tight.stdout).into_owned();
    if !said.contains("Overall exposure level") {
        return skipped("this systemd-analyze rates no unit offline");
    }
    assert!(tight.status.success(), "{said}");
    let open = UNIT.replace("ProtectSystem=strict", "").replace("CapabilityBoundingSet=", "#");
    assert!(!analyze(&threshold, &open).unwrap().status.success(), "an open one would be told");
}
