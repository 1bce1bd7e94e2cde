//! The hypervisor Firecracker. An API that the command line does not tell configures its memory and monitor.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::socket_name::name_from_socket;
use super::{ClaimedIdentity, Hypervisor, ProgramName};

/// The entry of the registry.
pub(super) const HYPERVISOR: Firecracker = Firecracker;

/// Firecracker.
#[derive(Debug)]
pub(super) struct Firecracker;

impl Hypervisor for Firecracker {
    fn kind(&self) -> GuestKind {
        GuestKind::new("firecracker")
    }

    fn is_program(&self, program: ProgramName<'_>) -> bool {
        program.is_release_of("firecracker")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        let from_socket = || line.option("--api-sock").and_then(name_from_socket);
        Some(ClaimedIdentity {
            name: line.option("--id").map(str::to_owned).or_else(from_socket),
            ..ClaimedIdentity::default()
        })
    }
}
