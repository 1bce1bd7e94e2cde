//! The CPUs on which ksmd and the processes with mergeable memory may run.

use std::collections::BTreeSet;
use std::time::Duration;

use ksmith_core::diagnose::KsmdPlacement;
use ksmith_core::sample::{ProcessSample, Sample};

use crate::cpus::{allowed_cpus, cpu_loads, isolated_cpus, online_cpus};
use crate::hypervisor::CgroupPath;
use crate::ksmd;
use crate::root::Root;

/// Guests that hold less than one part in so many of the guests' memory don't count. A launcher such as `mpirun` has mergeable memory
/// too, and may run anywhere.
const LEAST_PART: u64 = 100;

/// The time between two looks at what the CPUs do.
const LOOK: Duration = Duration::from_millis(200);

/// Reads the placement, without the CPUs that others keep busy. `None` where ksmd or its CPUs can't be seen.
///
/// Source: `Cpus_allowed_list` in `/proc/PID/status`, which contains the control groups' cpusets.
pub fn ksmd_placement(root: &Root, sample: &Sample) -> Option<KsmdPlacement> {
    let number = |file: &str| root.text(file).value().and_then(|text| text.trim().parse::<u64>().ok());
    let merging = || sample.processes.iter().filter(|process| process.may_merge());
    let all_bytes = merging().map(ProcessSample::known_rss_bytes).fold(0, u64::saturating_add);
    let guests: Vec<u32> = merging()
        .filter(|process| process.known_rss_bytes() >= all_bytes / LEAST_PART)
        .map(|process| process.id.pid)
        .collect();
    Some(KsmdPlacement {
        online: online_cpus(root)?,
        of_ksmd: allowed_cpus(root, ksmd::pid(root)?)?,
        of_guests: guests.iter().filter_map(|pid| allowed_cpus(root, *pid)).flatten().collect(),
        busy: BTreeSet::new(),
        isolated: isolated_cpus(root),
        is_autogrouped: number("proc/sys/kernel/sched_autogroup_enabled") == Some(1),
        guest_weight: guests.first().and_then(|pid| {
            let groups = root.text(format!("proc/{pid}/cgroup"));
            let group = CgroupPath::parse(groups.value()?)?;
            number(&format!("sys/fs/cgroup{}/cpu.weight", group.path()))
        }),
    })
}

/// Reads the placement as [`ksmd_placement`] does. Where the guests leave CPUs free, it looks for a moment which of these others use.
pub fn ksmd_placement_now(root: &Root, sample: &Sample) -> Option<KsmdPlacement> {
    let mut placement = ksmd_placement(root, sample)?;
    if !placement.of_guests.is_empty() && !placement.spare_cpus().is_empty() {
        let before = cpu_loads(root);
        std::thread::sleep(LOOK);
        placement.busy = cpu_loads(root).busy_since(&before);
    }
    Some(placement)
}

#[cfg(test)]
mod tests {
    use ksmith_core::sample::ProcessId;

    use super::*;
    use crate::root::put_file;

    #[test]
    fn the_cpus_of_ksmd_and_of_all_guests_are_read() {
        let tree = tempfile::tempdir().unwrap();
        let (put, root) = (|file: &str, text: &str| put_file(tree.path(), file, text), Root::at(tree.path()));
        let mut sample = Sample::default();
        for (pid, cpus, mib) in [(40, "0-5", 0), (7, "1", 100), (9, "3", 300), (5, "0-5", 3)] {
            put(
                &format!("proc/{pid}/status"),
                &format!("Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t{cpus}\n"),
            );
            if pid != 40 {
                let process = ProcessSample::new(ProcessId { pid, start_ticks: 1 }, "rank".into(), true);
                sample.processes.push(ProcessSample { rss_bytes: Some(mib << 20), ..process });
            }
        }
        assert_eq!(ksmd_placement(&root, &sample), None);
        put("proc/40/stat", "40 (ksmd) S 2 0 0 0 -1 2097216 0 0 0 0 0 4 0 0 25 5 1 0 18 0 0 0");
        put("sys/devices/system/cpu/online", "0-5\n");
        put("sys/devices/system/cpu/isolated", "5\n");
        put("proc/7/cgroup", "0::/job\n");
        put("sys/fs/cgroup/job/cpu.weight", "100\n");
        let placement = ksmd_placement(&root, &sample).unwrap();
        assert_eq!(placement.spare_cpus(), [0, 2, 4].into(), "a launcher's small memory does not count");
        assert_eq!((placement.of_ksmd, placement.of_guests), ((0..6).collect(), [1, 3].into()));
        assert_eq!((placement.is_autogrouped, placement.guest_weight), (false, Some(100)));
    }
}
