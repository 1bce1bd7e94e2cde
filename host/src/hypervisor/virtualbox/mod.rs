//! VirtualBox of Oracle. Source: its manual, chapter "VBoxHeadless", and the command lines of guests that `VBoxSVC`
//! starts.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::options::uuid_text;
use super::{ClaimedIdentity, Hypervisor, ProgramName};

/// VirtualBox of Oracle.
#[derive(Debug)]
pub(super) struct VirtualBox;

impl Hypervisor for VirtualBox {
    fn kind(&self) -> GuestKind {
        GuestKind::new("virtualbox")
    }

    fn is_program(&self, program: ProgramName<'_>) -> bool {
        program.is("VBoxHeadless") || program.is("VirtualBoxVM")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        // Started by hand, a guest is named by `--startvm` alone, which takes a name or a UUID.
        let started = ["--startvm", "-startvm", "-s"].into_iter().find_map(|option| line.option(option))?;
        let uuid = uuid_text(started);
        let name = line.option("--comment").or_else(|| uuid.is_none().then_some(started));
        Some(ClaimedIdentity {
            name: name.map(str::to_owned),
            number: None,
            uuid,
            memory_bytes: None,
            vcpus: None,
            // The kernel module allocates the guest's memory and maps it as device memory, which KSM passes over.
            obstacle: Some("device"),
            includes_children: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::recognise;

    fn identity(line: &[&str]) -> ksmith_core::guest::ProcessIdentity {
        let line: String = line.iter().map(|argument| format!("{argument}\0")).collect();
        recognise("VBoxHeadless", &CommandLine::parse(line.as_bytes()), None, 1, None).identity
    }

    #[test]
    fn a_guest_is_named_by_what_started_it_and_never_merges() {
        let uuid = "0e8de4a1-1111-2222-3333-444455556666";
        let program = "/usr/lib/virtualbox/VBoxHeadless";
        let guest = identity(&[program, "--comment", "my web", "--startvm", uuid, "--vrde", "config"]);
        assert_eq!(
            (guest.kind.word(), guest.name.as_str(), guest.uuid.as_deref()),
            ("virtualbox", "my web", Some(uuid))
        );
        assert_eq!((guest.obstacle, guest.memory_bytes), (Some("device"), None));
        let by_hand = identity(&[program, "-s", "db"]);
        assert_eq!((by_hand.name.as_str(), by_hand.uuid), ("db", None));
        assert_ne!(identity(&[program, "--help"]).kind.word(), "virtualbox");
    }
}
