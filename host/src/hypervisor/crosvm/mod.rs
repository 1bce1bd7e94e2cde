//! The hypervisor crosvm. Each of its devices may run in a fork of it, with the same command line.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::options::memory_in_mib;
use super::socket_name::name_from_path;
use super::{ClaimedIdentity, Hypervisor, ProgramName};

/// crosvm.
#[derive(Debug)]
pub(super) struct Crosvm;

/// Subcommands that start a guest.
const RUN: [&str; 2] = ["run", "run-mp"];

impl Hypervisor for Crosvm {
    fn kind(&self) -> GuestKind {
        GuestKind::new("crosvm")
    }

    fn is_program(&self, program: ProgramName<'_>) -> bool {
        program.is_release_of("crosvm")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        // `crosvm device` serves a device of another process's guest, and other subcommands ask a running one.
        line.arguments().iter().skip(1).find(|argument| RUN.contains(&argument.as_str()))?;
        let socket = || line.option("--socket").or_else(|| line.option("-s")).and_then(name_from_path);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_subcommand_that_starts_a_guest_is_one() {
        let looks = |text: &str| Crosvm.recognise(&CommandLine::parse(text.replace(' ', "\0").as_bytes()));
        let guest =
            looks("/apex/com.android.virt/bin/crosvm --extended-status run --name vm1 --mem size=512").unwrap();
        assert_eq!((guest.name.as_deref(), guest.memory_bytes), (Some("vm1"), Some(512 << 20)));
        for other in ["crosvm device block --socket /run/s", "crosvm stop /run/vm.sock", "crosvm"] {
            assert_eq!(looks(other), None, "{other}");
        }
    }
}
