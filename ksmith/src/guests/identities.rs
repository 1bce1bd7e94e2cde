//! Reads who a process is: four small files, once.

use ksmith_core::guest::{Cgroup, Identity};
use ksmith_core::kernel::{CommandLine, PidStat};
use ksmith_core::reading::Reading;
use ksmith_core::sample::ProcessId;

use super::twins;
use super::users::Users;
use crate::root::Root;

/// The identity of a process. `None` if it is gone, or its PID is another's by now.
pub(super) fn read(root: &Root, id: ProcessId, users: &Users) -> Option<Identity> {
    let text = |file: &str| root.text(format!("proc/{}/{file}", id.pid));
    let line = text("cmdline").value().map(|text| CommandLine::parse(text.as_bytes())).unwrap_or_default();
    let cgroup = text("cgroup").value().and_then(|text| Cgroup::parse(text));
    let user = text("status").value().and_then(|text| effective_uid(text)).map(|uid| users.name(uid));
    // Last: what was read before belongs to this process only if it is still there.
    let stat = text("stat").and_then(|text| PidStat::parse(&text));
    let stat = stat.value().filter(|stat| stat.start_ticks == id.start_ticks)?;
    let mut identity = Identity::of(&stat.comm, &line, cgroup.as_ref(), stat.parent, user);
    identity.is_twin = root.is_host() && twins::have_one_memory(id.pid, stat.parent);
    Some(identity)
}

/// Whether this very process is there. Two processes may have had its PID.
pub fn is_alive(root: &Root, id: ProcessId) -> bool {
    let stat = root.text(format!("proc/{}/stat", id.pid)).and_then(|text| PidStat::parse(&text));
    stat.value().is_some_and(|stat| stat.start_ticks == id.start_ticks && !stat.is_zombie)
}

/// Whether this very process has ended for certain. One that can't be looked at (no descriptor is left, no memory) may be
/// there: what is owed to it must not be forgotten.
pub fn has_ended(root: &Root, id: ProcessId) -> bool {
    match root.text(format!("proc/{}/stat", id.pid)).and_then(|text| PidStat::parse(&text)) {
        Reading::Value(stat) => stat.start_ticks != id.start_ticks || stat.is_zombie,
        Reading::Absent => true,
        Reading::Denied | Reading::Malformed(_) => false,
    }
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
    fn who_can_not_be_looked_at_may_be_there() {
        let tree = tempfile::tempdir().unwrap();
        let (root, id) = (Root::at(tree.path()), ProcessId { pid: 7, start_ticks: 70 });
        assert!(has_ended(&root, id) && !is_alive(&root, id));
        // A directory can be opened and not read: an error that says nothing of the process.
        std::fs::create_dir_all(tree.path().join("proc/7/stat")).unwrap();
        assert!(!has_ended(&root, id) && !is_alive(&root, id));
    }

    #[test]
    fn we_know_ourselves_and_nobody_of_another_start() {
        let root = Root::host();
        let stat = root.text("proc/self/stat").and_then(|text| PidStat::parse(&text));
        let id = ProcessId { pid: std::process::id(), start_ticks: stat.value().unwrap().start_ticks };
        let users = Users::new(&root);
        let own = read(&root, id, &users).unwrap();
        assert!(own.program.starts_with("ksmith"), "{own:?}");
        assert!(own.user.is_some() && own.parent > 0);
        assert_eq!(read(&root, ProcessId { start_ticks: id.start_ticks + 1, ..id }, &users), None);
    }
}
