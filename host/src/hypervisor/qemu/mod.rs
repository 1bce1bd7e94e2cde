//! QEMU, also as `kvm` (Proxmox) and `qemu-kvm` (RHEL).

mod config_file;
mod monitors;
mod name;
mod obstacle;
mod options;
mod smp;

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

pub(crate) use self::config_file::with_config_files;
pub(super) use self::monitors::monitors;
use self::obstacle::has_merge_off;
pub(super) use self::obstacle::obstacle;
use self::options::{QemuOptions, values};
use super::options::{MIB, field, size, uuid_text};
use super::{
    ClaimedIdentity, GuestTarget, Hypervisor, MonitorError, MonitorSocket, ProgramName, QmpMonitor,
    SwitchedBackend, qmp,
};

/// QEMU that was started without libvirt.
#[derive(Debug)]
pub(super) struct Qemu;

/// The kind of QEMU's guests, whatever manages them.
pub(super) const KIND: GuestKind = GuestKind::new("qemu");

/// Memory of a PC without the option `-m`, and the programs that run one.
const DEFAULT_MEMORY: u64 = 128 * MIB;
const DEFAULT_PROGRAMS: [&str; 4] = ["kvm", "qemu-kvm", "qemu-system-x86_64", "qemu-system-i386"];

impl Hypervisor for Qemu {
    fn kind(&self) -> GuestKind {
        KIND
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        Some(looks(line))
    }

    fn kept_out(&self, line: &CommandLine) -> Option<String> {
        let of_machine = is_kept_out(line).then(|| format!("{KEPT_OUT}; start it with -machine mem-merge=on"));
        let of_objects = || has_merge_off(line).then(|| format!("{OBJECTS_OFF}; start it without that"));
        of_machine.or_else(of_objects)
    }

    fn monitors(&self, line: &CommandLine) -> Vec<MonitorSocket> {
        monitors(line)
    }
}

/// Names that distributions and platforms give to QEMU: the third is OpenNebula's link to it, the last two Ubuntu's.
const PROGRAMS: [&str; 5] = ["kvm", "qemu-kvm", "qemu-kvm-one", "kvm-spice", "qemu-kvm-spice"];

/// Beginnings of QEMU's names, whose ends are architectures. All but the first are builds for Kata Containers.
const BEGINNINGS: [&str; 4] =
    ["qemu-system-", "qemu-virtiofs-system-", "qemu-vanilla-system-", "qemu-lite-system-"];

pub(super) fn is_program(program: ProgramName<'_>) -> bool {
    PROGRAMS.iter().any(|name| program.is(name)) || BEGINNINGS.iter().any(|beginning| program.begins(beginning))
}

/// Parses the description of the guest on QEMU's command line. Of several options of one name the last counts.
pub(super) fn looks(line: &CommandLine) -> ClaimedIdentity {
    let last = |name: &str| values(line, &[name]).last();
    let smbios_uuid = || values(line, &["smbios"]).filter_map(smbios_uuid).last();
    ClaimedIdentity {
        name: last("name").and_then(name::name).or_else(|| android_device(line).map(str::to_owned)),
        uuid: last("uuid").and_then(uuid_text).or_else(smbios_uuid),
        number: None,
        memory_bytes: memory_bytes(line),
        vcpus: smp::vcpus(line),
        obstacle: obstacle(line),
        includes_children: false,
    }
}

/// Returns the virtual device that Android's emulator runs: `-avd NAME`, or `@NAME`.
fn android_device(line: &CommandLine) -> Option<&str> {
    let short = || line.arguments().get(1)?.strip_prefix('@');
    values(line, &["avd"]).last().or_else(short)
}

/// Returns the guest's memory at its start; `None` where the command line leaves it open. Source: QEMU,
/// `system/vl.c` (`parse_memory_options`) and `hw/core/machine.c`.
fn memory_bytes(line: &CommandLine) -> Option<u64> {
    // Each `-m` sets what it has: the size may be in an earlier one than the slots. It goes before the machine's, and
    // a size of 0 is none.
    let of_option = QemuOptions::merged(line, &["m"], "size");
    let machine = QemuOptions::merged(line, &["machine", "M"], "type");
    let written = [(of_option.get("size"), MIB), (machine.get("memory.size"), 1)];
    let mut sizes = written.into_iter().filter_map(|(text, unit)| Some(size(text?, unit)));
    if let Some(bytes) = sizes.find(|bytes| *bytes != Some(0)) {
        return bytes;
    }
    if let Some(id) = machine.get("memory-backend") {
        let objects = values(line, &["object"]).map(|text| QemuOptions::parse(text, "qom-type"));
        return objects
            .filter(|object| object.get("id") == Some(id))
            .last()
            .and_then(|it| size(it.get("size")?, 1));
    }
    // The default is the machine's, and a file may have options: one of QEMU's, or that of a device of Android.
    let is_in_file = values(line, &["readconfig"]).next().is_some() || android_device(line).is_some();
    // libvirt asks such a machine for what this QEMU can do.
    let is_none = machine.get("type") == Some("none");
    let is_known = DEFAULT_PROGRAMS.contains(&line.program()) && !is_in_file && !is_none;
    is_known.then_some(DEFAULT_MEMORY)
}

/// The sentence for a guest that [`is_kept_out`].
pub(super) const KEPT_OUT: &str = "QEMU was started with -machine mem-merge=off";

/// The sentence for a guest whose memory [`has_merge_off`].
const OBJECTS_OFF: &str = "QEMU was started with merge=off for the objects that are its memory";

/// Returns true if QEMU offers no memory of the guest to KSM.
pub(super) fn is_kept_out(line: &CommandLine) -> bool {
    QemuOptions::merged(line, &["machine", "M"], "type").switch("mem-merge") == Some(false)
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
