//! QEMU, also as `kvm` (Proxmox) and `qemu-kvm` (RHEL).

mod monitors;
mod name;
mod obstacle;

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

pub(super) use self::monitors::monitors;
use super::options::{MIB, field, memory_in_mib, uuid_text};
use super::{
    ClaimedIdentity, GuestTarget, Hypervisor, HypervisorReply, MonitorError, MonitorSocket, ProgramName,
    QmpMonitor, ResizeMethod, SwitchedBackend, qmp,
};
use crate::root::Root;

/// The entry of the registry.
pub(super) const HYPERVISOR: Qemu = Qemu;

/// QEMU that was started without libvirt.
#[derive(Debug)]
pub(super) struct Qemu;

/// The kind of QEMU's guests, whatever manages them.
pub(super) const KIND: GuestKind = GuestKind::new("qemu");

impl Hypervisor for Qemu {
    fn kind(&self) -> GuestKind {
        KIND
    }

    fn is_program(&self, program: ProgramName<'_>) -> bool {
        is_program(program)
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        Some(looks(line))
    }

    fn kept_out(&self, line: &CommandLine) -> Option<String> {
        is_kept_out(line).then(|| format!("{KEPT_OUT}; start it with -machine mem-merge=on"))
    }

    fn monitors(&self, line: &CommandLine) -> Vec<MonitorSocket> {
        monitors(line)
    }

    fn can_be_asked(&self, target: &GuestTarget) -> bool {
        has_own_socket(target)
    }

    fn query_guest(&self, root: &Root, target: &GuestTarget) -> HypervisorReply {
        qmp::answer(self.monitor(root, target))
    }

    fn monitor(&self, root: &Root, target: &GuestTarget) -> Result<Box<dyn QmpMonitor>, MonitorError> {
        qmp::connect(root, target.id.pid(), &target.monitors)
    }

    fn no_switch(&self, _on: bool, _name: &str) -> Option<String> {
        None
    }

    fn switch(
        &self,
        root: &Root,
        target: &GuestTarget,
        on: bool,
        dry_run: bool,
    ) -> Result<Vec<SwitchedBackend>, MonitorError> {
        switch(self.monitor(root, target)?.as_mut(), on, dry_run)
    }

    fn resize(&self) -> ResizeMethod {
        ResizeMethod::Balloon
    }
}

pub(super) fn is_program(program: ProgramName<'_>) -> bool {
    program.starts_with("qemu-system-") || program.is("qemu-kvm") || program.is("kvm")
}

/// Parses the description of the guest on QEMU's command line.
pub(super) fn looks(line: &CommandLine) -> ClaimedIdentity {
    let either = |one: &str| line.option(one).or_else(|| line.option(&format!("-{one}")));
    ClaimedIdentity {
        name: either("-name").and_then(name::name),
        uuid: either("-uuid").and_then(uuid_text).or_else(|| either("-smbios").and_then(smbios_uuid)),
        number: None,
        // QEMU's own default is 128 MiB.
        memory_bytes: either("-m").map_or(Some(128 * MIB), memory_in_mib),
        obstacle: obstacle::obstacle(line),
        includes_children: false,
    }
}

/// The sentence for a guest that [`is_kept_out`].
pub(super) const KEPT_OUT: &str = "QEMU was started with -machine mem-merge=off";

/// Returns true if QEMU offers no memory of the guest to KSM.
pub(super) fn is_kept_out(line: &CommandLine) -> bool {
    let arguments = line.arguments();
    let options = arguments.iter().zip(arguments.iter().skip(1));
    let is_off = |value: &str| ["off", "no", "n", "false"].map(Some).contains(&field(value, "mem-merge"));
    // QEMU merges several `-machine` into one, in which the last value counts.
    let set = |(option, value): (&String, &String)| {
        let is_machine = ["machine", "M"].contains(&option.trim_start_matches('-')) && option.starts_with('-');
        (is_machine && field(value, "mem-merge").is_some()).then(|| is_off(value))
    };
    options.filter_map(set).next_back().unwrap_or(false)
}

/// Parses the UUID in `-smbios type=1,uuid=UUID`, which QEMU uses as that of the guest.
fn smbios_uuid(options: &str) -> Option<String> {
    (field(options, "type") == Some("1")).then(|| field(options, "uuid").and_then(uuid_text)).flatten()
}

/// Returns true if its monitor can be reached without libvirt, which marks a guest as tainted that was queried through
/// it.
pub(super) fn has_own_socket(target: &GuestTarget) -> bool {
    target.monitors.iter().any(|place| matches!(place, MonitorSocket::Path(_)))
}

/// Switches merging of all memory backends that differ from the wanted state.
pub(super) fn switch(
    monitor: &mut dyn QmpMonitor,
    on: bool,
    dry_run: bool,
) -> Result<Vec<SwitchedBackend>, MonitorError> {
    let backends = qmp::backends(monitor)?;
    // Only off: whether memory that is plugged in later is offered is for the operator to choose when plugging it in.
    if !on && !dry_run {
        qmp::set_default(monitor, false);
    }
    let mut switched = Vec::new();
    for backend in backends {
        let Some(id) = backend.id.filter(|_| backend.merge != on) else { continue };
        if !dry_run {
            qmp::set_merge(monitor, &id, on)?;
        }
        switched.push(SwitchedBackend { backend: id, bytes: backend.size });
    }
    Ok(switched)
}
