//! The units of `ksmith serve` as systemd itself reads them.

use std::fs;
use std::process::{Command, Output};

use ksmith_service::config::Config;

use crate::support::program::PROGRAM;
use crate::support::skipped;

const SERVICE: &str = include_str!("../../../packaging/systemd/ksmith-serve.service");
const SOCKET: &str = include_str!("../../../packaging/systemd/ksmith-serve.socket");
const PEERS: &str = include_str!("../../../packaging/systemd/serve-options/peers.conf");

/// What systemd-analyze says of the service with this text and this drop-in. `None`, said loudly: it is not installed.
fn analyze(arguments: &[&str], service: &str, drop_in: Option<&str>) -> Option<Output> {
    let tree = tempfile::tempdir().unwrap();
    let own =
        |text: &str| text.replace("/usr/bin/ksmith", PROGRAM).replace("Documentation=man:ksmith-serve(1)\n", "");
    let unit = tree.path().join("ksmith-serve.service");
    fs::write(&unit, own(service)).unwrap();
    fs::write(tree.path().join("ksmith-serve.socket"), own(SOCKET)).unwrap();
    if let Some(drop_in) = drop_in {
        let directory = tree.path().join("ksmith-serve.service.d");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("own.conf"), own(drop_in)).unwrap();
    }
    let mut command = Command::new("systemd-analyze");
    command.args(arguments).arg(&unit).env("SYSTEMD_LOG_COLOR", "0").env("LC_ALL", "C");
    let output = command.output().ok();
    if output.is_none() {
        skipped("systemd-analyze is not installed");
    }
    output
}

/// What `systemd-analyze verify` says of ours.
fn complaints(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().filter(|line| line.contains("ksmith")).map(str::to_owned).collect()
}

#[test]
fn the_units_of_the_server_are_such_as_systemd_understands() {
    for drop_in in [None, Some(PEERS)] {
        let Some(sound) = analyze(&["verify"], SERVICE, drop_in) else { return };
        assert!(sound.status.success() && complaints(&sound).is_empty(), "{sound:?}");
    }
    let broken = SERVICE.replace("RestartSec=5s", "RestartSec=soon");
    let said = complaints(&analyze(&["verify"], &broken, None).unwrap());
    assert!(said.iter().any(|line| line.contains("soon")), "a mistake would be told: {said:?}");
}

#[test]
fn the_servers_exposure_is_a_fifth_of_one_in_ten() {
    let threshold = ["security", "--offline=true", "--threshold=2"];
    let Some(tight) = analyze(&threshold, SERVICE, None) else { return };
    let said = String::from_utf8_lossy(&tight.stdout).into_owned();
    if !said.contains("Overall exposure level") {
        return skipped("this systemd-analyze rates no unit offline");
    }
    assert!(tight.status.success(), "{said}");
    let with_peers = analyze(&["security", "--offline=true", "--threshold=15"], SERVICE, Some(PEERS)).unwrap();
    assert!(with_peers.status.success(), "{}", String::from_utf8_lossy(&with_peers.stdout));
    for line in
        ["DynamicUser=yes", "PrivateNetwork=yes", "CapabilityBoundingSet=", "RestrictAddressFamilies=AF_UNIX"]
    {
        assert!(SERVICE.lines().any(|found| found == line), "{line}");
        let open = SERVICE.replace(&format!("{line}\n"), "");
        assert!(!analyze(&threshold, &open, None).unwrap().status.success(), "without {line} it is more");
    }
}

#[test]
fn the_servers_unit_has_the_group_and_the_address_that_the_program_has() {
    assert!(SERVICE.contains(&format!("SupplementaryGroups={}\n", Config::default().view.group)));
    let help = Command::new(PROGRAM).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let address = SOCKET.lines().find_map(|line| line.strip_prefix("ListenStream=")).unwrap();
    assert!(help.contains(&format!("[default: {address}]")), "{address}");
}
