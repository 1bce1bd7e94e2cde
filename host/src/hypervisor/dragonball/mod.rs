//! Dragonball, the hypervisor inside the runtime of Kata Containers: the process is the runtime's shim for one sandbox.
//! With another hypervisor the shim has no memory of a guest, and marks none as mergeable.
//!
//! Source: kata-containers, `src/runtime-rs/crates/shim/src/bin/main.rs` for the options.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::{ClaimedIdentity, Hypervisor, ProgramName};

/// Dragonball.
#[derive(Debug)]
pub(super) struct Dragonball;

/// Kata's shim. The kernel cuts its name to that of other shims.
const PROGRAM: &str = "containerd-shim-kata-v2";

impl Hypervisor for Dragonball {
    fn kind(&self) -> GuestKind {
        GuestKind::new("dragonball")
    }

    fn is_program(&self, program: ProgramName<'_>) -> bool {
        program.0 == PROGRAM
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        Some(ClaimedIdentity { name: Some(line.option("-id")?.to_owned()), ..ClaimedIdentity::default() })
    }
}

#[cfg(test)]
mod tests {
    use crate::hypervisor::{CgroupPath, recognise};

    use super::*;

    #[test]
    fn sandboxes_are_guests_of_their_own_in_their_managers_service() {
        let service = CgroupPath::new("/system.slice/containerd.service");
        let identity = |line: &str| {
            let line = CommandLine::parse(line.replace(' ', "\0").as_bytes());
            recognise("containerd-shim", &line, Some(&service), 1, None).identity
        };
        let kata = identity("/opt/kata/bin/containerd-shim-kata-v2 -namespace k8s.io -id 1b8a5c10 -debug");
        assert_eq!((kata.name.as_str(), kata.kind.word(), kata.unit), ("1b8a5c10", "dragonball", None));
        let runc = identity("/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id 1b8a5c10");
        assert_eq!(runc.kind.word(), "service");
    }
}
