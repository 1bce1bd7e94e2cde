//! Services of systemd, by their cgroups.

use ksmith_core::guest::GuestKind;

use super::escape::unescape;
use super::{Hypervisor, ResizeMethod};

/// A systemd service with all its processes.
#[derive(Debug)]
pub(super) struct SystemdService;

impl Hypervisor for SystemdService {
    fn kind(&self) -> GuestKind {
        GuestKind::new("service")
    }

    fn is_machine(&self) -> bool {
        false
    }

    /// Returns the service's name. A user's manager, with processes in no service of their own, is no guest.
    fn unit(&self, part: &str, _parents: &str, _next: &str) -> Option<String> {
        part.strip_suffix(".service").filter(|name| !name.starts_with("user@")).map(unescape)
    }

    fn no_switch(&self, on: bool, name: &str) -> Option<String> {
        let yes = if on { "yes" } else { "no" };
        // A cgroup of its own making below is called `SERVICE/CGROUP`.
        let service = name.split('/').next().unwrap_or(name);
        Some(format!(
            "its processes offer their memory themselves, and only they can take that back: set MemoryKSM={yes} \
             (`systemctl edit {service}`) and restart it"
        ))
    }

    fn resize(&self) -> ResizeMethod {
        ResizeMethod::Cgroup
    }
}
