//! The hypervisor kvmtool, the program `lkvm`.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::options::memory_in_mib;
use super::{ClaimedIdentity, Hypervisor, ProgramName};

/// kvmtool.
#[derive(Debug)]
pub(super) struct Kvmtool;

impl Hypervisor for Kvmtool {
    fn kind(&self) -> GuestKind {
        GuestKind::new("kvmtool")
    }

    fn is_program(&self, program: ProgramName<'_>) -> bool {
        program.is_release_of("lkvm")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        let name = line.option("--name").or_else(|| line.option("-n")).map(str::to_owned);
        let memory = line.option("--mem").or_else(|| line.option("-m"));
        let obstacle = [("--vfio-pci", "vfio"), ("--hugetlbfs", "hugepages")]
            .into_iter()
            .find_map(|(option, word)| line.option(option).map(|_| word));
        let memory_bytes = memory.and_then(memory_in_mib);
        Some(ClaimedIdentity { name, memory_bytes, obstacle, ..ClaimedIdentity::default() })
    }
}
