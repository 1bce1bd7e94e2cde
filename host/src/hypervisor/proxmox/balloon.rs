//! Detection of guests of Proxmox VE with a balloon that `pvestatd` resizes.
//!
//! Proxmox VE's `pvestatd` resizes every ten seconds, with a target of 80 % of the host's memory in use
//! (`ballooning-target` of the node). It leaves out guests without `balloon:` in their configuration, and those with
//! `shares: 0`.
//!
//! Source: pve-manager, `PVE/Service/pvestatd.pm` (`auto_ballooning`) and `PVE/AutoBalloon.pm`.

use crate::root::Root;

/// Returns the reason why ksmith must not resize the guest with this VMID, if any: Proxmox VE does, or its
/// configuration can't be read.
pub fn balloon_of_proxmox(root: &Root, vmid: u32) -> Option<String> {
    let path = format!("etc/pve/qemu-server/{vmid}.conf");
    match root.text(&path).value() {
        None => Some(format!("/{path} can't be read, so it is not known whether pvestatd resizes it")),
        Some(text) if is_automatic(text) => Some(format!(
            "pvestatd resizes it, since /{path} has balloon: `qm set {vmid} --shares 0` leaves that to ksmith"
        )),
        Some(_) => None,
    }
}

/// Returns true if the configuration of a guest lets `pvestatd` resize it. Sections of snapshots follow the present
/// one.
fn is_automatic(text: &str) -> bool {
    let present = || text.lines().take_while(|line| !line.starts_with('['));
    let number = |key: &str| {
        let value = |line: &str| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse::<u64>().ok();
        present().find_map(value)
    };
    number("balloon").is_some_and(|mib| mib > 0) && number("shares") != Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_without_balloon_or_with_no_shares_is_left_to_others() {
        for (text, expected) in [
            ("memory: 2048\nballoon: 512\n", true),
            ("memory: 2048\nballoon: 512\nshares: 1000\n", true),
            ("memory: 2048\nballoon: 512\nshares: 0\n", false),
            ("memory: 2048\nballoon: 0\n", false),
            ("memory: 2048\n", false),
            ("#balloon: 512\nmemory: 2048\n", false),
            ("memory: 2048\n\n[before-upgrade]\nballoon: 512\n", false),
            ("", false),
        ] {
            assert_eq!(is_automatic(text), expected, "{text:?}");
        }
    }

    #[test]
    fn without_its_configuration_the_guest_is_left_alone() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert!(balloon_of_proxmox(&root, 100).unwrap().contains("/etc/pve/qemu-server/100.conf can't be read"));
        let directory = tree.path().join("etc/pve/qemu-server");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("100.conf"), "memory: 2048\nballoon: 512\n").unwrap();
        assert!(balloon_of_proxmox(&root, 100).unwrap().contains("qm set 100 --shares 0"));
        std::fs::write(directory.join("100.conf"), "memory: 2048\nballoon: 512\nshares: 0\n").unwrap();
        assert_eq!(balloon_of_proxmox(&root, 100), None);
    }
}
