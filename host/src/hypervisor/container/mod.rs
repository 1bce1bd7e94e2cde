//! Containers, by the paths that container managers give their cgroups.

mod called;
pub(super) mod forms;
pub(crate) mod pods;

use ksmith_core::guest::GuestKind;

use super::{Hypervisor, ManagerName, ResizeMethod};
use crate::root::Root;

/// A container with all its processes.
#[derive(Debug)]
pub(super) struct ContainerGuest;

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

    fn unit(&self, part: &str, parents: &str, next: &str) -> Option<String> {
        forms::container_name(part, parents, next)
    }

    fn called(&self, root: &Root, unit: &str) -> Option<ManagerName> {
        called::called(root, unit)
    }

    fn resize(&self) -> ResizeMethod {
        ResizeMethod::Cgroup
    }
}
