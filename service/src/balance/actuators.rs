//! The actuator for each kind of guest.

use super::cgroup::CgroupActuator;
use super::ledger::MemoryLedger;
use super::qemu::QemuActuator;
use super::uml::UmlActuator;
use super::{ActuatorError, MemoryActuator};
use ksmith_host::guests::GuestTarget;
use ksmith_host::hypervisor::{ResizeMethod, proxmox};
use ksmith_host::root::Root;

/// Returns the actuator of a guest. Asks its hypervisor, and so may wait for about two seconds.
///
/// # Errors
/// The guest has no means of being resized, and the sentence names the remedy; or its hypervisor fails.
pub fn actuator(
    root: &Root,
    target: &GuestTarget,
    key: &str,
    ledger: &MemoryLedger,
) -> Result<Box<dyn MemoryActuator>, ActuatorError> {
    match target.resize() {
        ResizeMethod::Console => Ok(Box::new(UmlActuator::open(root, target, key, ledger)?)),
        ResizeMethod::Balloon => Ok(Box::new(QemuActuator::open(root, target, key, ledger)?)),
        ResizeMethod::Cgroup => match &target.identity.unit {
            Some(path) => cgroup_actuator(root, path, key, ledger),
            None => Err(ActuatorError::Unable("its cgroup is not known".to_owned())),
        },
        ResizeMethod::Unable(why) => Err(ActuatorError::Unable(why)),
    }
}

/// Returns why Proxmox VE resizes the guest itself. Reads a file of its cluster's file system, and so may wait for
/// that.
pub(super) fn left_to_proxmox(root: &Root, target: &GuestTarget) -> Option<String> {
    let is_its = target.identity.manager == Some(proxmox::MANAGER);
    target.identity.number.filter(|_| is_its).and_then(|vmid| proxmox::balloon_of_proxmox(root, vmid))
}

/// Returns the actuator of a cgroup with all its members, by its path below the mount point.
///
/// # Errors
/// As [`actuator`].
pub fn cgroup_actuator(
    root: &Root,
    path: &str,
    key: &str,
    ledger: &MemoryLedger,
) -> Result<Box<dyn MemoryActuator>, ActuatorError> {
    Ok(Box::new(CgroupActuator::open(root, path, key, ledger)?))
}
