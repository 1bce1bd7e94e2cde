//! The hypervisor crosvm. Each of its devices may run in a fork of it, with the same command line.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::options::memory_in_mib;
use super::socket_name::name_from_socket;
use super::{ClaimedIdentity, Hypervisor, ProgramName};

/// The entry of the registry.
pub(super) const HYPERVISOR: Crosvm = Crosvm;

/// crosvm.
#[derive(Debug)]
pub(super) struct Crosvm;

impl Hypervisor for Crosvm {
    fn kind(&self) -> GuestKind {
        GuestKind::new("crosvm")
    }

    fn is_program(&self, program: ProgramName<'_>) -> bool {
        program.is_release_of("crosvm")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        let socket = || line.option("--socket").or_else(|| line.option("-s")).and_then(name_from_socket);
        let memory = line.option("--mem").or_else(|| line.option("-m"));
        Some(ClaimedIdentity {
            name: line.option("--name").map(str::to_owned).or_else(socket),
            memory_bytes: memory.and_then(memory_in_mib),
            // Its forks map the guest's memory too, from a memfd (`vm_memory/src/guest_memory.rs`).
            obstacle: Some(if line.option("--vfio").is_some() { "vfio" } else { "shared" }),
            includes_children: true,
            ..ClaimedIdentity::default()
        })
    }
}
