//! The actuator that fits a guest.

use ksmith_core::guest::Kind;

use super::balloon::Balloon;
use super::cgroup::Cgroup;
use super::ledger::Ledger;
use super::uml::Uml;
use super::{Actuator, ActuatorError};
use crate::guests::Target;
use crate::root::Root;

/// The actuator of a guest, known as `key`. Asks the guest's hypervisor, and so may wait for about two seconds.
///
/// # Errors
/// The guest has no means of being resized; the sentence says what would give it one. Or its hypervisor fails.
pub fn actuator(
    root: &Root,
    target: &Target,
    key: &str,
    ledger: &Ledger,
) -> Result<Box<dyn Actuator>, ActuatorError> {
    match target.identity.kind {
        Kind::Uml => Ok(Box::new(Uml::of(root, target, key, ledger)?)),
        Kind::Qemu => Ok(Box::new(Balloon::of(root, target, key, ledger)?)),
        Kind::Service | Kind::Container => match &target.identity.unit {
            Some(path) => cgroup_actuator(root, path, key, ledger),
            None => Err(ActuatorError::Unable("its cgroup is not known".to_owned())),
        },
        Kind::Process => Err(ActuatorError::Unable(
            "a process by itself can't be: start it in a cgroup of its own (`systemd-run --scope`), and name that"
                .to_owned(),
        )),
        Kind::CloudHypervisor | Kind::Firecracker | Kind::Crosvm | Kind::Kvmtool => {
            Err(ActuatorError::Unable(format!(
                "ksmith does not speak to the balloon of {}; put it into a cgroup of its own and name that",
                target.identity.kind.word()
            )))
        }
    }
}

/// The actuator of a cgroup with all that is in it, by its path below the mount point.
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
