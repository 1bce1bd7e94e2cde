//! The actuator for each kind of guest.

use super::balloon::Balloon;
use super::cgroup::Cgroup;
use super::ledger::Ledger;
use super::uml::Uml;
use super::{Actuator, ActuatorError};
use ksmith_host::guests::Target;
use ksmith_host::hypervisor::{Resize, proxmox};
use ksmith_host::root::Root;

/// Returns the actuator of a guest. Asks its hypervisor, and so may wait for about two seconds.
///
/// # Errors
/// The guest has no means of being resized, and the sentence names the remedy; or its hypervisor fails.
pub fn actuator(
    root: &Root,
    target: &Target,
    key: &str,
    ledger: &Ledger,
) -> Result<Box<dyn Actuator>, ActuatorError> {
    match target.resize() {
        Resize::Console => Ok(Box::new(Uml::of(root, target, key, ledger)?)),
        Resize::Balloon => Ok(Box::new(Balloon::of(root, target, key, ledger)?)),
        Resize::Cgroup => match &target.identity.unit {
            Some(path) => cgroup_actuator(root, path, key, ledger),
            None => Err(ActuatorError::Unable("its cgroup is not known".to_owned())),
        },
        Resize::Unable(why) => Err(ActuatorError::Unable(why)),
    }
}

/// Returns why Proxmox VE resizes the guest itself. Reads a file of its cluster's file system, and so may wait for
/// that.
pub(super) fn left_to_proxmox(root: &Root, target: &Target) -> Option<String> {
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
    ledger: &Ledger,
) -> Result<Box<dyn Actuator>, ActuatorError> {
    Ok(Box::new(Cgroup::of(root, path, key, ledger)?))
}
