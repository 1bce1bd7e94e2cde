//! The hypervisor Firecracker. An API that the command line does not tell configures its memory and monitor.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::socket_name::name_from_path;
use super::{ClaimedIdentity, Hypervisor, ProgramName};

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
        // Without an API the guest is that of its configuration.
        let from_path = |option| line.option(option).and_then(name_from_path);
        let names = || from_path("--api-sock").or_else(|| from_path("--config-file"));
        Some(ClaimedIdentity {
            name: line.option("--id").map(str::to_owned).or_else(names),
            ..ClaimedIdentity::default()
        })
    }
}
