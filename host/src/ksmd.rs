//! The kernel thread ksmd, found among the processes.

use ksmith_core::kernel::{PidStat, cpu_ns as parse};

use crate::root::Root;

/// Returns the PID of ksmd, which is one of the first kernel threads; `None` if it is not visible, as in a container.
pub fn pid(root: &Root) -> Option<u32> {
    let entries = std::fs::read_dir(root.path("proc")).ok()?;
    let mut pids: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids.into_iter().find(|pid| {
        // The name waits for no process. Any program may take it.
        let is_named = root.text(format!("proc/{pid}/comm")).value().is_none_or(|name| name.trim_end() == "ksmd");
        let stat = || root.text(format!("proc/{pid}/stat")).and_then(|text| PidStat::parse(&text));
        is_named && stat().value().is_some_and(|stat| stat.is_kernel_thread && stat.comm == "ksmd")
    })
}

/// Returns the CPU time of ksmd since boot, in nanoseconds.
pub fn cpu_ns(root: &Root) -> Option<u64> {
    let pid = pid(root)?;
    root.text(format!("proc/{pid}/schedstat")).and_then(|text| parse(&text)).get()
}
