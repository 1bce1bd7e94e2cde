//! The CPUs on which ksmd and the processes with mergeable memory may run.

use std::collections::BTreeSet;

use ksmith_core::diagnose::KsmdPlacement;
use ksmith_core::kernel::nodes;
use ksmith_core::sample::Sample;

use crate::hypervisor::CgroupPath;
use crate::ksmd;
use crate::root::Root;

/// Reads the placement. `None` where ksmd or its CPUs can't be seen.
///
/// Source: `Cpus_allowed_list` in `/proc/PID/status`, which contains the control groups' cpusets.
pub fn ksmd_placement(root: &Root, sample: &Sample) -> Option<KsmdPlacement> {
    let number = |file: &str| root.text(file).value().and_then(|text| text.trim().parse::<u64>().ok());
    let guests: Vec<u32> =
        sample.processes.iter().filter(|process| process.may_merge()).map(|process| process.id.pid).collect();
    Some(KsmdPlacement {
        online: root.text("sys/devices/system/cpu/online").value().and_then(|text| nodes(text))?,
        of_ksmd: allowed_cpus(root, ksmd::pid(root)?)?,
        of_guests: guests.iter().filter_map(|pid| allowed_cpus(root, *pid)).flatten().collect(),
        is_autogrouped: number("proc/sys/kernel/sched_autogroup_enabled") == Some(1),
        guest_weight: guests.first().and_then(|pid| {
            let groups = root.text(format!("proc/{pid}/cgroup"));
            let group = CgroupPath::parse(groups.value()?)?;
            number(&format!("sys/fs/cgroup{}/cpu.weight", group.path()))
        }),
    })
}

fn allowed_cpus(root: &Root, pid: u32) -> Option<BTreeSet<u32>> {
    let status = root.text(format!("proc/{pid}/status"));
    status.value()?.lines().find_map(|line| nodes(line.strip_prefix("Cpus_allowed_list:")?))
}

#[cfg(test)]
mod tests {
    use ksmith_core::sample::{ProcessId, ProcessSample};

    use super::*;
    use crate::root::put_file;

    #[test]
    fn the_cpus_of_ksmd_and_of_all_guests_are_read() {
        let tree = tempfile::tempdir().unwrap();
        let (put, root) = (|file: &str, text: &str| put_file(tree.path(), file, text), Root::at(tree.path()));
        let mut sample = Sample::default();
        for (pid, cpus) in [(40, "0-3"), (7, "1"), (9, "3")] {
            put(
                &format!("proc/{pid}/status"),
                &format!("Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t{cpus}\n"),
            );
            if pid != 40 {
                sample.processes.push(ProcessSample::new(ProcessId { pid, start_ticks: 1 }, "rank".into(), true));
            }
        }
        assert_eq!(ksmd_placement(&root, &sample), None);
        put("proc/40/stat", "40 (ksmd) S 2 0 0 0 -1 2097216 0 0 0 0 0 4 0 0 25 5 1 0 18 0 0 0");
        put("sys/devices/system/cpu/online", "0-3\n");
        put("proc/7/cgroup", "0::/job\n");
        put("sys/fs/cgroup/job/cpu.weight", "100\n");
        let placement = ksmd_placement(&root, &sample).unwrap();
        assert_eq!((placement.of_ksmd, placement.of_guests), ((0..4).collect(), [1, 3].into()));
        assert_eq!((placement.is_autogrouped, placement.guest_weight), (false, Some(100)));
    }
}
