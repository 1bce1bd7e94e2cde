//! The systemd services of controllers.

use ksmith_core::other_controllers::{OTHER_CONTROLLERS, OtherController, ServiceState};

use crate::root::Root;
use crate::systemd;

/// Returns the services of a controller that this host has, with their states.
pub(super) fn states(root: &Root, controller: &OtherController) -> Vec<ServiceState> {
    let state = |service: &&'static str| {
        systemd::exists(root, service).then(|| ServiceState {
            service,
            is_active: systemd::is_active(root, service),
            at_boot: systemd::at_boot(root, service),
        })
    };
    controller.services.iter().filter_map(state).collect()
}

/// Returns the controller's service that a process runs in, by its cgroup. No user can put a process there.
pub(super) fn of_process(root: &Root, pid: u32) -> Option<String> {
    let text = root.text(format!("proc/{pid}/cgroup"));
    let mut paths = text.value()?.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let is_known = |service: &&str| OTHER_CONTROLLERS.iter().any(|row| row.services.contains(service));
    paths.find_map(|path| path.strip_prefix("/system.slice/").filter(is_known).map(str::to_owned))
}
