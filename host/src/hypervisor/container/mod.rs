//! Containers, by the paths that container managers give their cgroups.

mod called;
pub(crate) mod pods;

use ksmith_core::guest::GuestKind;

use super::cgroup::unescape;
use super::{Hypervisor, ManagerName, ResizeMethod};
use crate::root::Root;

/// The entry of the registry.
pub(super) const HYPERVISOR: ContainerGuest = ContainerGuest;

/// A container with all its processes.
#[derive(Debug)]
pub(super) struct ContainerGuest;

/// Digits of a container id; people use the first 12 of 64.
const ID: usize = 64;
const SHORT_ID: usize = 12;

/// Scopes that container managers make: `docker-ID.scope`, `cri-containerd-ID.scope`.
const ID_PREFIXES: [&str; 6] = ["docker-", "libpod-", "cri-containerd-", "crio-", "nerdctl-", "buildah-"];

impl Hypervisor for ContainerGuest {
    fn kind(&self) -> GuestKind {
        GuestKind::new("container")
    }

    fn is_machine(&self) -> bool {
        false
    }

    fn is_container(&self) -> bool {
        true
    }

    fn unit(&self, part: &str, parents: &str) -> Option<String> {
        // Podman without systemd: /libpod_parent/libpod-ID.
        if let Some(id) = Some(part.strip_prefix("libpod-").unwrap_or(part)).filter(|id| is_id(id)) {
            return Some(short(id));
        }
        if let Some(scope) = part.strip_suffix(".scope") {
            let id = ID_PREFIXES.iter().find_map(|prefix| scope.strip_prefix(prefix)).filter(|id| is_id(id));
            let machine = || scope.strip_prefix("machine-").filter(|name| !name.starts_with("qemu"));
            return id.map(short).or_else(|| machine().map(unescape));
        }
        let nspawn = || part.strip_suffix(".service")?.strip_prefix("systemd-nspawn@").map(unescape);
        let is_lxc = parents == "/lxc" || parents.ends_with("/lxc");
        let of_lxc = part.strip_prefix("lxc.payload.").or_else(|| is_lxc.then_some(part));
        of_lxc.map(str::to_owned).or_else(nspawn)
    }

    fn called(&self, root: &Root, unit: &str) -> Option<ManagerName> {
        called::called(root, unit)
    }

    fn resize(&self) -> ResizeMethod {
        ResizeMethod::Cgroup
    }
}

fn is_id(text: &str) -> bool {
    text.len() == ID && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn short(id: &str) -> String {
    id.chars().take(SHORT_ID).collect()
}
