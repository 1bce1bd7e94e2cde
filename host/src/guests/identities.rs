//! Reads the identity of a process from a few small files, once.

use ksmith_core::kernel::{CommandLine, PidStat};
use ksmith_core::sample::ProcessId;

use super::{mapped, twins};
use crate::hypervisor::{CgroupPath, RecognisedProcess, container, printable, qemu, recognise};
use crate::owner::{OwnershipSnapshot, ProcessOwner};
use crate::root::Root;
use crate::users::UserNames;

/// Recognises a process; `None` if it has ended or its PID has been reused.
pub(super) fn read(root: &Root, id: ProcessId, users: &UserNames) -> Option<RecognisedProcess> {
    let text = |file: &str| root.text(format!("proc/{}/{file}", id.pid));
    let before = OwnershipSnapshot::at(root, id.pid);
    let owner = before.owner();
    let line = text("cmdline").value().map(|text| CommandLine::parse(text.as_bytes())).unwrap_or_default();
    let line = qemu::with_config_files(root, &line).unwrap_or(line);
    let cgroup = text("cgroup").value().and_then(|text| CgroupPath::parse(text));
    let user = owner.map(|owner| users.name(owner.effective()));
    // Last: what was read before belongs to this process only if it is still there.
    let stat = text("stat").and_then(|text| PidStat::parse(&text));
    let stat = stat.value().filter(|stat| stat.start_ticks == id.start_ticks)?;
    let mut found = recognise(&stat.comm, &line, cgroup.as_ref(), stat.parent, user);
    // Another user's word names a guest, and gives no access to anything. Root's is believed.
    let is_in_container = cgroup.as_ref().is_some_and(CgroupPath::is_in_container);
    found.identity.is_verified |= found.has_own_word
        && !is_in_container
        && before.is_roots_program()
        && before == OwnershipSnapshot::at(root, id.pid);
    let unit =
        cgroup.as_ref().and_then(CgroupPath::unit).filter(|unit| found.named_by.as_deref() == Some(unit.path));
    if let Some(called) = unit.and_then(|unit| unit.hypervisor.called(root, unit.path)) {
        let identity = &mut found.identity;
        // The kubelet knows the pod, whatever root this process sees. It knows nothing of the UUID that a process
        // gives itself by posing as a hypervisor.
        let is_pods = called.manager == container::pods::MANAGER && identity.unit.is_some();
        identity.is_verified |= is_pods && cgroup.as_ref().is_some_and(|cgroup| cgroup.container().is_some());
        identity.name = printable(&called.name);
        (identity.manager, identity.number) = (Some(called.manager), called.number);
    }
    if found.hypervisor.is_machine() {
        let identity = &mut found.identity;
        identity.obstacle = mapped::obstacle(root, id.pid, identity.memory_bytes, identity.obstacle);
    }
    found.identity.uid = owner.and_then(ProcessOwner::only);
    found.effective_uid = owner.map(ProcessOwner::effective);
    found.identity.is_twin = root.is_host() && twins::have_one_memory(id.pid, stat.parent);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_recognised_by_pid_and_start() {
        let root = Root::host();
        let stat = root.text("proc/self/stat").and_then(|text| PidStat::parse(&text));
        let id = ProcessId { pid: std::process::id(), start_ticks: stat.value().unwrap().start_ticks };
        let users = UserNames::new(&root);
        let own = read(&root, id, &users).unwrap().identity;
        assert!(own.program.starts_with("ksmith"), "{own:?}");
        assert!(own.user.is_some() && own.parent > 0);
        assert!(read(&root, ProcessId { start_ticks: id.start_ticks + 1, ..id }, &users).is_none());
    }
}
