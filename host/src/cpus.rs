//! The CPUs of the host: which are online, what they do, and which a process may use.

use std::collections::BTreeSet;

use ksmith_core::kernel::{CpuLoads, nodes};

use crate::root::Root;

/// Reads how busy each CPU has been since boot. Empty where that can't be read.
pub fn cpu_loads(root: &Root) -> CpuLoads {
    root.text("proc/stat").value().map(|text| CpuLoads::parse(text)).unwrap_or_default()
}

/// Reads the CPUs that are online. `None` where that can't be read.
pub(crate) fn online_cpus(root: &Root) -> Option<BTreeSet<u32>> {
    root.text("sys/devices/system/cpu/online").value().and_then(|text| nodes(text))
}

/// Reads the CPUs that the scheduler leaves to programs bound to them: `isolcpus` in the kernel's command line.
pub(crate) fn isolated_cpus(root: &Root) -> BTreeSet<u32> {
    root.text("sys/devices/system/cpu/isolated").value().and_then(|text| nodes(text)).unwrap_or_default()
}

/// Reads the CPUs that a process may use: `Cpus_allowed_list` in `/proc/PID/status`, which contains the control groups' cpusets.
pub(crate) fn allowed_cpus(root: &Root, pid: u32) -> Option<BTreeSet<u32>> {
    let status = root.text(format!("proc/{pid}/status"));
    status.value()?.lines().find_map(|line| nodes(line.strip_prefix("Cpus_allowed_list:")?))
}
