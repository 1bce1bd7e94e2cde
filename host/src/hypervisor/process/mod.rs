//! Plain processes, which belong to no larger guest.

use ksmith_core::guest::Kind;

use super::{Hypervisor, Resize};

/// The entry of the registry.
pub(super) const HYPERVISOR: Process = Process;

/// A process that belongs to no larger guest.
#[derive(Debug)]
pub(super) struct Process;

impl Hypervisor for Process {
    fn kind(&self) -> Kind {
        Kind::PROCESS
    }

    fn is_machine(&self) -> bool {
        false
    }

    fn resize(&self) -> Resize {
        let why =
            "a process by itself can't be: start it in a cgroup of its own (`systemd-run --scope`), and name that";
        Resize::Unable(why.to_owned())
    }
}
