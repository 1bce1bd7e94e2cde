//! The units of `ksmith serve` as systemd itself reads them.

use std::process::{Command, Output};

use ksmith_service::config::Config;

use crate::support::program::PROGRAM;
use crate::support::skipped;
use crate::support::units::{self, complaints};

const SERVICE: &str = include_str!("../../../packaging/systemd/ksmith-serve.service");
const SOCKET: &str = include_str!("../../../packaging/systemd/ksmith-serve.socket");
const PEERS: &str = include_str!("../../../packaging/systemd/serve-options/peers.conf");

/// Runs systemd-analyze on the service with this text and this drop-in.
fn analyze(arguments: &[&str], service: &str, drop_in: Option<&str>) -> Option<Output> {
    let mut files = vec![("ksmith-serve.service", service), ("ksmith-serve.socket", SOCKET)];
    files.extend(drop_in.map(|text| ("ksmith-serve.service.d/own.conf", text)));
    units::analyze(arguments, &files)
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
