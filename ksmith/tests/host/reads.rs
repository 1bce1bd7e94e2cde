//! Reading processes that have as much to read as an ordinary user may have, or that hold their readers up for ever.
//!
//! Each attack has the host to itself: a list names a few of the processes that are given up, and one sample reads so much of
//! command lines, whichever test they are of.

use std::process::{Command, Stdio};

use crate::support::attack::Attack;
use crate::support::program::{PROGRAM, config_file};
use crate::support::{guest, hold_off_others, wait_until};
use ksmith_core::sample::Sample;
use ksmith_host::observe::Observer;
use ksmith_host::root::Root;
use ksmith_lab::Part;

/// Memory that a command may take, whatever processes there are. Alone it takes some 10 MiB.
const MOST_KIB: u64 = 48 << 10;

fn shows(sample: &Sample, pid: u32) -> bool {
    sample.processes.iter().any(|process| process.id.pid == pid)
}

fn names(sample: &Sample, pid: u32) -> bool {
    sample.given_up.named.iter().any(|process| process.pid == pid)
}

/// A configuration with which commands find no daemon.
fn alone() -> (tempfile::NamedTempFile, String) {
    config_file("[daemon]\ncontrol_socket = \"/run/ksmith-is-not-here/control\"\n")
}

/// Runs the program to its end: all that it says, and the most memory that it had, in KiB.
fn run(arguments: &[&str]) -> (String, u64) {
    const RUN: &str = "import resource, subprocess, sys\n\
                       ended = subprocess.run(sys.argv[1:], capture_output=True, text=True)\n\
                       print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n\
                       print(ended.stdout, ended.stderr)";
    let output =
        Command::new("python3").args(["-c", RUN, PROGRAM]).args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (most, said) = text.split_once('\n').unwrap();
    (said.to_owned(), most.parse().unwrap())
}

#[test]
fn processes_that_hold_their_locks_are_named_and_no_sample_waits_for_them() {
    let _others_wait = hold_off_others();
    let Some(attack) = Attack::hold_lock(3) else { return };
    let good = guest(&[Part::Unique { pages: 1 }]);
    let mut observer = Observer::new(Root::host());
    wait_until("all of them are named", || {
        let sample = observer.sample();
        attack.pids.iter().all(|pid| names(&sample, *pid)) && shows(&sample, good.pid())
    });
    // Left alone for a time that doubles, they stay named.
    for _ in 0..20 {
        let sample = observer.sample();
        assert!(attack.pids.iter().all(|pid| names(&sample, *pid)), "{:?}", sample.given_up);
        assert!(sample.given_up.unknown >= 3 && sample.has_unknown_figures());
        assert!(shows(&sample, good.pid()));
    }
    let pids = attack.pids.clone();
    drop(attack);
    wait_until("they are forgotten", || {
        observer.refresh();
        let sample = observer.sample();
        pids.iter().all(|pid| !names(&sample, *pid))
    });
}

#[test]
fn a_guest_that_stops_answering_is_named_and_counts_as_unknown() {
    let _others_wait = hold_off_others();
    let mut observer = Observer::new(Root::host());
    observer.sample();
    let Some(attack) = Attack::hold_lock(1) else { return };
    let pid = attack.pids[0];
    wait_until("it is named", || {
        observer.refresh();
        names(&observer.sample(), pid)
    });
    let sample = observer.sample();
    let process = sample.given_up.named.iter().find(|process| process.pid == pid).unwrap();
    assert_eq!(process.why, format!("ksm_stat of process {pid} does not answer"));
    assert!(sample.processes.iter().all(|process| process.id.pid != pid || process.ksm.mergeable.is_none()));
}

#[test]
fn commands_end_and_name_the_processes_that_hold_them_up() {
    let _others_wait = hold_off_others();
    let Some(attack) = Attack::hold_lock(3) else { return };
    let (_config, path) = alone();
    for command in ["status", "guests"] {
        let (said, _) = run(&["--config", &path, command, "--json"]);
        for pid in &attack.pids {
            assert!(said.contains(&format!("ksm_stat of process {pid} does not answer")), "{command}: {said}");
        }
    }
    let pid = attack.pids[0].to_string();
    for command in ["doctor", "estimate"] {
        let (said, _) = run(&["--config", &path, command, &pid]);
        assert!(said.contains(&format!("smaps of process {pid} does not answer")), "{command}: {said}");
    }
}

#[test]
fn processes_with_more_than_is_read_are_named_and_cost_little_memory() {
    let _others_wait = hold_off_others();
    let Some(attack) = Attack::many_arguments(30, 60_000) else { return };
    let (_config, path) = alone();
    for command in ["status", "guests"] {
        let (said, most) = run(&["--config", &path, command, "--json"]);
        let is_named = |pid: &&u32| said.contains(&format!("cmdline of process {pid} exceeds the budget"));
        let named = attack.pids.iter().filter(is_named).count();
        assert!(named > 0, "{command}: {said}");
        assert!(said.contains("more processes are given up"), "{command}: {said}");
        assert!(most < MOST_KIB, "{command} had {most} KiB");
    }
    let last = attack.pids.last().unwrap().to_string();
    for command in ["doctor", "estimate"] {
        let (said, most) = run(&["--config", &path, command, &last]);
        assert!(most < MOST_KIB, "{command} had {most} KiB: {said}");
    }
}
