//! A PID that is given out again. By itself in its program: it winds the kernel's counter of PIDs back, so that what
//! runs beside it may get a PID, or a thread's number, that belonged to somebody else a moment ago.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::time::Duration;

use ksmith::lab::Part;
use ksmith::observe::Observer;
use ksmith::root::Root;
use ksmith_core::sample::{Process, Sample};
use support::{guest, wait_until};

fn of(sample: &Sample, pid: u32) -> Option<&Process> {
    sample.processes.iter().find(|process| process.id.pid == pid)
}

#[test]
fn a_reused_pid_is_another_process() {
    const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
    let mut observer = Observer::new(Root::host());
    let old = guest(&[Part::Unique { pages: 1 }]);
    let pid = old.pid();
    let old_id = of(&observer.sample(), pid).expect("the old guest").id;
    drop(old);
    // Within one clock tick (10 ms) nobody could tell the two.
    std::thread::sleep(Duration::from_millis(20));
    if let Err(why) = std::fs::write(LAST_PID, pid.to_string()) {
        return support::skipped(&format!("{LAST_PID} can't be written ({why})"));
    }
    let mut new = None;
    wait_until("the PID is given out again", || {
        std::fs::write(LAST_PID, (pid - 1).to_string()).unwrap();
        let guest = guest(&[Part::Unique { pages: 1 }]);
        let has_pid = guest.pid() == pid;
        new = has_pid.then_some(guest);
        has_pid
    });
    assert_eq!(of(&observer.sample(), pid), None, "the old one's files must not show the new one");
    observer.refresh();
    let new_id = of(&observer.sample(), pid).expect("the new guest").id;
    assert!(new_id.start_ticks > old_id.start_ticks);
}
