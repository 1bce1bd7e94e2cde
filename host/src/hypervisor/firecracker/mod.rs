//! The hypervisor Firecracker. An API that the command line does not tell configures its memory and monitor.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

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
        program.is("firecracker")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        Some(ClaimedIdentity { name: line.option("--id").map(str::to_owned), ..ClaimedIdentity::default() })
    }
}
