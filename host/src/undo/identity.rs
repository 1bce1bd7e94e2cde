//! Which process: by PID and start time, on the running host only.

use std::io;

use ksmith_core::kernel::PidStat;
use ksmith_core::reading::Reading;
use ksmith_core::sample::ProcessId;

use crate::root::Root;

/// This process.
pub(crate) fn own() -> io::Result<ProcessId> {
    let pid = std::process::id();
    match of(&Root::host(), pid) {
        Reading::Value(id) => Ok(id),
        other => Err(io::Error::other(format!("/proc/{pid}/stat is {other}, so this process has no identity"))),
    }
}

/// The process that has `pid` now, dead ones that are not collected included.
pub(crate) fn of(root: &Root, pid: u32) -> Reading<ProcessId> {
    let stat = root.text(format!("proc/{pid}/stat"));
    stat.and_then(|text| PidStat::parse(&text)).map(|stat| ProcessId { pid, start_ticks: stat.start_ticks })
}

/// Whether that very process still runs. One that is dead and not yet collected by its parent does not.
pub(crate) fn is_alive(id: ProcessId) -> bool {
    let host = Root::host();
    let state = host.text(format!("proc/{}/stat", id.pid));
    let is_dead = |text: &String| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']));
    of(&host, id.pid) == Reading::Value(id) && !state.value().is_some_and(is_dead)
}

/// What the kernel calls this boot. Settings do not survive one, so neither does what is to be restored.
pub(crate) fn boot_id() -> Option<String> {
    let text = Root::host().text("proc/sys/kernel/random/boot_id");
    text.value().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_alive_until_it_ends_even_if_not_collected() {
        let own = own().unwrap();
        assert!(is_alive(own));
        assert!(!is_alive(ProcessId { start_ticks: own.start_ticks + 1, ..own }));
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = *of(&Root::host(), child.id()).value().unwrap();
        assert!(is_alive(id));
        child.kill().unwrap();
        while is_alive(id) {
            std::thread::yield_now();
        }
        assert!(of(&Root::host(), child.id()).value().is_some(), "it is still there to be collected");
        child.wait().unwrap();
        assert!(!is_alive(id));
    }
}
