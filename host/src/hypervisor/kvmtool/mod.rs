//! The hypervisor kvmtool, the program `lkvm`.

use ksmith_core::guest::Kind;
use ksmith_core::kernel::CommandLine;

use super::options::memory_in_mib;
use super::{Hypervisor, Looks, Program};

/// The entry of the registry.
pub(super) const HYPERVISOR: Kvmtool = Kvmtool;

/// kvmtool.
#[derive(Debug)]
pub(super) struct Kvmtool;

impl Hypervisor for Kvmtool {
    fn kind(&self) -> Kind {
        Kind::new("kvmtool")
    }

    fn is_program(&self, program: Program<'_>) -> bool {
        program.is("lkvm")
    }

    fn recognise(&self, line: &CommandLine) -> Option<Looks> {
        let name = line.option("--name").or_else(|| line.option("-n")).map(str::to_owned);
        let memory = line.option("--mem").or_else(|| line.option("-m"));
        Some(Looks { name, memory_bytes: memory.and_then(memory_in_mib), ..Looks::default() })
    }
}
