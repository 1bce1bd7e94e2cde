//! StratoVirt of openEuler. Its options are like QEMU's. Source: `docs/config_guidebook.md` of StratoVirt.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::options::{MIB, field, first, memory_in_mib, uuid_text, values};
use super::{ClaimedIdentity, Hypervisor, ProgramName, qemu};

/// StratoVirt.
#[derive(Debug)]
pub(super) struct StratoVirt;

impl Hypervisor for StratoVirt {
    fn kind(&self) -> GuestKind {
        GuestKind::new("stratovirt")
    }

    fn is_program(&self, program: ProgramName<'_>) -> bool {
        program.is_release_of("stratovirt")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        Some(ClaimedIdentity {
            name: line.option("-name").map(|options| first(options).to_owned()),
            number: None,
            uuid: line.option("-uuid").and_then(uuid_text),
            vcpus: None,
            // StratoVirt's own default is 256 MiB.
            memory_bytes: line.option("-m").map_or(Some(256 * MIB), memory_in_mib),
            obstacle: qemu::obstacle(line).or_else(|| is_shared(line).then_some("shared")),
            includes_children: false,
        })
    }
}

/// Returns true if the guest's memory is a shared mapping.
fn is_shared(line: &CommandLine) -> bool {
    values(line, "-machine").filter_map(|options| field(options, "mem-share")).last() == Some("on")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::recognise;

    fn identity(arguments: &str) -> ksmith_core::guest::ProcessIdentity {
        let line = CommandLine::parse(format!("/usr/bin/stratovirt {arguments}").replace(' ', "\0").as_bytes());
        recognise("stratovirt", &line, None, 1, None).identity
    }

    #[test]
    fn a_guest_is_named_and_sized_by_its_command_line() {
        let uuid = "0e8de4a1-1111-2222-3333-444455556666";
        let guest = identity(&format!("-machine microvm -name web -uuid {uuid} -m size=1G"));
        assert_eq!((guest.kind.word(), guest.name.as_str()), ("stratovirt", "web"));
        assert_eq!((guest.uuid.as_deref(), guest.memory_bytes), (Some(uuid), Some(1 << 30)));
        let plain = identity("-machine q35 -kernel k");
        assert_eq!((plain.name.as_str(), plain.memory_bytes), ("stratovirt", Some(256 << 20)));
    }

    #[test]
    fn memory_that_can_not_merge_is_told_by_its_cause() {
        for (arguments, expected) in [
            ("-machine q35,mem-share=off", None),
            ("-machine q35,mem-share=on", Some("shared")),
            ("-machine q35,mem-share=on -mem-path /dev/hugepages", Some("hugepages")),
            ("-device vfio-pci,host=0000:1a:00.3,id=net", Some("vfio")),
        ] {
            assert_eq!(identity(arguments).obstacle, expected, "{arguments}");
        }
    }
}
