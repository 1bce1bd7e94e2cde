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
        // Name and size wait for no process. Any program may take the name, but a kernel thread has no memory, as opposed to a
        // program that executes another, and so its `stat` waits for nothing either.
        let text = |file| root.text(format!("proc/{pid}/{file}"));
        let is_named = text("comm").value().is_none_or(|name| name.trim_end() == "ksmd");
        let has_memory = || text("statm").value().is_some_and(|sizes| !sizes.starts_with("0 "));
        let stat = || std::fs::read_to_string(root.path(format!("proc/{pid}/stat"))).ok();
        let is_it = |stat: PidStat| stat.is_kernel_thread && stat.comm == "ksmd";
        is_named && !has_memory() && stat().and_then(|text| PidStat::parse(&text).ok()).is_some_and(is_it)
    })
}

/// Returns the CPU time of ksmd since boot, in nanoseconds.
pub fn cpu_ns(root: &Root) -> Option<u64> {
    let pid = pid(root)?;
    root.text(format!("proc/{pid}/schedstat")).and_then(|text| parse(&text)).get()
}
