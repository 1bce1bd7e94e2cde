//! Identity of processes: PID and start time, on the running host only.

use std::io;

use ksmith_core::kernel::PidStat;
use ksmith_core::reading::Reading;
use ksmith_core::sample::ProcessId;

use crate::process;
use crate::root::Root;

/// Returns this process's identity.
pub(crate) fn own() -> io::Result<ProcessId> {
    let pid = std::process::id();
    match read_id(&Root::host(), pid) {
        Reading::Value(id) => Ok(id),
        other => Err(io::Error::other(format!("/proc/{pid}/stat is {other}, so this process has no identity"))),
    }
}

/// Returns the identity of the process with this PID, zombies included.
pub(crate) fn read_id(root: &Root, pid: u32) -> Reading<ProcessId> {
    let stat = root.text(format!("proc/{pid}/stat"));
    stat.and_then(|text| PidStat::parse(&text)).map(|stat| ProcessId { pid, start_ticks: stat.start_ticks })
}

/// Returns true if this very process still runs. A zombie does not.
pub(crate) fn is_alive(id: ProcessId) -> bool {
    process::is_alive(&Root::host(), id)
}

/// Returns true if this very process has ended for certain. One that can't be read may run.
pub(crate) fn has_ended(id: ProcessId) -> bool {
    process::has_ended(&Root::host(), id)
}

/// Returns the kernel's id of this boot. Settings do not survive a boot, so neither does what is to be restored.
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
        let id = *read_id(&Root::host(), child.id()).value().unwrap();
        assert!(is_alive(id));
        child.kill().unwrap();
        while is_alive(id) {
            std::thread::yield_now();
        }
        assert!(read_id(&Root::host(), child.id()).value().is_some(), "it is still there to be collected");
        child.wait().unwrap();
        assert!(!is_alive(id));
    }
}
