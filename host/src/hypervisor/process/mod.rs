//! Plain processes, which belong to no larger guest.

use ksmith_core::guest::GuestKind;

use super::{Hypervisor, ResizeMethod};

/// A process that belongs to no larger guest.
#[derive(Debug)]
pub(super) struct PlainProcess;

impl Hypervisor for PlainProcess {
    fn kind(&self) -> GuestKind {
        GuestKind::PROCESS
    }

    fn is_machine(&self) -> bool {
        false
    }

    fn resize(&self) -> ResizeMethod {
        let why =
            "a process by itself can't be: start it in a cgroup of its own (`systemd-run --scope`), and name that";
        ResizeMethod::Unable(why.to_owned())
    }
}
