//! A PID that is given out again.

use std::time::Duration;

use crate::support::own::on_own_host;
use crate::support::{guest, hold_off_ksm, skipped, wait_until};
use ksmith_core::sample::{ProcessSample, Sample};
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_lab::MemoryPart;

fn find_process(sample: &Sample, pid: u32) -> Option<&ProcessSample> {
    sample.processes.iter().find(|process| process.id.pid == pid)
}

#[test]
fn a_reused_pid_is_another_process() {
    on_own_host(|| {
        const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
        let _ksm_waits = hold_off_ksm();
        let mut observer = HostObserver::new(Root::host());
        let old = guest(&[MemoryPart::Unique { pages: 1 }]);
        let pid = old.pid();
        let old_id = find_process(&observer.sample(), pid).expect("the old guest").id;
        drop(old);
        // Within one clock tick (10 ms) the two can't be told apart.
        std::thread::sleep(Duration::from_millis(20));
        if let Err(why) = std::fs::write(LAST_PID, pid.to_string()) {
            return skipped(&format!("{LAST_PID} can't be written ({why})"));
        }
        let mut new = None;
        wait_until("the PID is given out again", || {
            std::fs::write(LAST_PID, (pid - 1).to_string()).unwrap();
            let guest = guest(&[MemoryPart::Unique { pages: 1 }]);
            let has_pid = guest.pid() == pid;
            new = has_pid.then_some(guest);
            has_pid
        });
        assert_eq!(find_process(&observer.sample(), pid), None, "the old one's files must not show the new one");
        observer.refresh();
        let new_id = find_process(&observer.sample(), pid).expect("the new guest").id;
        assert!(new_id.start_ticks > old_id.start_ticks);
    });
}
