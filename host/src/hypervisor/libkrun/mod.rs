//! MicroVMs of the library libkrun: `krunvm`, `muvm`, and containers that crun runs in one. Source: krunvm,
//! `src/commands/start.rs`; muvm, `crates/muvm/src/cli_options.rs`; crun, `src/libcrun/handlers/krun.c`, and
//! `src/libcrun/linux.c` for the name that it takes.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::options::memory_in_mib;
use super::{ClaimedIdentity, Hypervisor, ProgramName};

/// A program with a microVM of libkrun.
#[derive(Debug)]
pub(super) struct Libkrun;

/// Programs that run a microVM for as long as they live. The third and the last are names that crun and the library
/// give to their process.
const PROGRAMS: [&str; 4] = ["muvm", "krunvm", "[libcrun:krun]", "libkrun VM"];

impl Hypervisor for Libkrun {
    fn kind(&self) -> GuestKind {
        GuestKind::new("libkrun")
    }

    fn is_program(&self, program: ProgramName<'_>) -> bool {
        PROGRAMS.iter().any(|known| program.is(known))
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        let arguments = line.arguments();
        let started = || Some(arguments.get(arguments.iter().position(|word| word == "start")? + 1)?.clone());
        let is_krunvm = line.program() == "krunvm";
        let name = if is_krunvm { Some(started()?) } else { None };
        // Behind the program's own options stands a command with options of any name.
        let is_muvm = line.program() == "muvm";
        let memory = ["--mem", "--memory"].into_iter().find_map(|option| line.option(option));
        Some(ClaimedIdentity {
            name,
            memory_bytes: memory.filter(|_| is_krunvm || is_muvm).and_then(memory_in_mib),
            ..ClaimedIdentity::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::hypervisor::{CgroupPath, recognise};

    use super::*;

    #[test]
    fn a_microvm_is_named_by_its_command_line_or_its_container() {
        let id = "0123456789abcdef".repeat(4);
        let container = format!("/machine.slice/libpod-{id}.scope/container");
        for (comm, line, cgroup, name, memory_bytes) in [
            ("krunvm", "/usr/bin/krunvm start web --mem 512", "/", "web", Some(512 << 20)),
            ("libkrun VM", "[libcrun:krun] /bin/sleep 20", &container, &id[..12], None),
            ("muvm", "muvm --mem=1024 -- steam", "/", "muvm", Some(1 << 30)),
        ] {
            let parsed = CommandLine::parse(line.replace(' ', "\0").as_bytes());
            let found = recognise(comm, &parsed, Some(&CgroupPath::new(cgroup)), 1, None);
            let identity = found.identity;
            assert_eq!((identity.name.as_str(), identity.kind.word()), (name, "libkrun"), "{line}");
            assert_eq!((identity.memory_bytes, identity.unit), (memory_bytes, None), "{line}");
        }
        let list = CommandLine::parse(b"krunvm\0list");
        assert_eq!(recognise("krunvm", &list, None, 1, None).identity.kind, GuestKind::PROCESS);
    }
}
