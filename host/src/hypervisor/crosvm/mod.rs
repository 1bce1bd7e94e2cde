//! The hypervisor crosvm.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::options::memory_in_mib;
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
        program.is("crosvm")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        let name = line.option("--name").map(str::to_owned);
        let memory = line.option("--mem").or_else(|| line.option("-m"));
        Some(ClaimedIdentity { name, memory_bytes: memory.and_then(memory_in_mib), ..ClaimedIdentity::default() })
    }
}
