//! The hypervisor Firecracker. An API that the command line does not tell configures its memory and monitor.

use ksmith_core::guest::Kind;
use ksmith_core::kernel::CommandLine;

use super::{Hypervisor, Looks, Program};

/// The entry of the registry.
pub(super) const HYPERVISOR: Firecracker = Firecracker;

/// Firecracker.
#[derive(Debug)]
pub(super) struct Firecracker;

impl Hypervisor for Firecracker {
    fn kind(&self) -> Kind {
        Kind::new("firecracker")
    }

    fn is_program(&self, program: Program<'_>) -> bool {
        program.is("firecracker")
    }

    fn recognise(&self, line: &CommandLine) -> Option<Looks> {
        Some(Looks { name: line.option("--id").map(str::to_owned), ..Looks::default() })
    }
}
