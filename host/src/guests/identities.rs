//! Reads what a process is: four small files, once.

use ksmith_core::kernel::{CommandLine, PidStat};
use ksmith_core::sample::ProcessId;

use super::twins;
use crate::hypervisor::{Cgroup, Recognised, recognise};
use crate::root::Root;
use crate::users::Users;

/// Recognises a process. `None` if it has ended, or its PID is another's by now.
pub(super) fn read(root: &Root, id: ProcessId, users: &Users) -> Option<Recognised> {
    let text = |file: &str| root.text(format!("proc/{}/{file}", id.pid));
    let line = text("cmdline").value().map(|text| CommandLine::parse(text.as_bytes())).unwrap_or_default();
    let cgroup = text("cgroup").value().and_then(|text| Cgroup::parse(text));
    let user = text("status").value().and_then(|text| effective_uid(text)).map(|uid| users.name(uid));
    // Last: what was read before belongs to this process only if it is still there.
    let stat = text("stat").and_then(|text| PidStat::parse(&text));
    let stat = stat.value().filter(|stat| stat.start_ticks == id.start_ticks)?;
    let mut found = recognise(&stat.comm, &line, cgroup.as_ref(), stat.parent, user);
    found.identity.is_twin = root.is_host() && twins::have_one_memory(id.pid, stat.parent);
    Some(found)
}

/// `Uid: real effective saved filesystem`
fn effective_uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_counts() {
        assert_eq!(effective_uid("Name:\tx\nUid:\t1000\t64\t64\t64\n"), Some(64));
        assert_eq!(effective_uid("Name:\tx\n"), None);
    }

    #[test]
    fn a_process_is_recognised_by_pid_and_start() {
        let root = Root::host();
        let stat = root.text("proc/self/stat").and_then(|text| PidStat::parse(&text));
        let id = ProcessId { pid: std::process::id(), start_ticks: stat.value().unwrap().start_ticks };
        let users = Users::new(&root);
        let own = read(&root, id, &users).unwrap().identity;
        assert!(own.program.starts_with("ksmith"), "{own:?}");
        assert!(own.user.is_some() && own.parent > 0);
        assert!(read(&root, ProcessId { start_ticks: id.start_ticks + 1, ..id }, &users).is_none());
    }
}
