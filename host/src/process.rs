//! Liveness of a process, by PID and start time.

use ksmith_core::kernel::PidStat;
use ksmith_core::reading::Reading;
use ksmith_core::sample::ProcessId;

use crate::root::Root;

/// Returns true if this process is alive. Two processes may have had its PID.
pub fn is_alive(root: &Root, id: ProcessId) -> bool {
    let stat = root.text(format!("proc/{}/stat", id.pid)).and_then(|text| PidStat::parse(&text));
    stat.value().is_some_and(|stat| stat.start_ticks == id.start_ticks && !stat.is_zombie)
}

/// Returns true if this process has ended for certain. A process that can't be checked, for lack of a descriptor or of
/// memory, may be alive: its pending undo must be kept.
pub fn has_ended(root: &Root, id: ProcessId) -> bool {
    match root.text(format!("proc/{}/stat", id.pid)).and_then(|text| PidStat::parse(&text)) {
        Reading::Value(stat) => stat.start_ticks != id.start_ticks || stat.is_zombie,
        Reading::Absent => true,
        Reading::Denied | Reading::Malformed(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_can_not_be_looked_at_may_be_there() {
        let tree = tempfile::tempdir().unwrap();
        let (root, id) = (Root::at(tree.path()), ProcessId { pid: 7, start_ticks: 70 });
        assert!(has_ended(&root, id) && !is_alive(&root, id));
        // A directory can be opened and not read: an error that says nothing of the process.
        std::fs::create_dir_all(tree.path().join("proc/7/stat")).unwrap();
        assert!(!has_ended(&root, id) && !is_alive(&root, id));
    }
}
