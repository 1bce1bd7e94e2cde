//! Reading processes that have as much to read as an ordinary user may have, or that hold their readers up for ever.
//!
//! Each attack has the host to itself: a list names a few of the processes that are given up, and one sample reads so much of
//! command lines, whichever test they are of.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::attack::{NEIGHBOUR, RunningAttack, USER};
use crate::support::own::{in_own_process, on_own_host};
use crate::support::program::{PROGRAM, config_file};
use crate::support::{guest, hold_off_ksm, hold_off_others, skipped, wait_until};
use ksmith_core::sample::Sample;
use ksmith_host::observe::{HostObserver, shows_mergeable};
use ksmith_host::reader::{self, ProcessReader, ReadPatience, WantedFile, WantedPages};
use ksmith_host::root::Root;
use ksmith_lab::MemoryPart;

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
    let Some(attack) = RunningAttack::hold_lock(3) else { return };
    let good = guest(&[MemoryPart::Unique { pages: 1 }]);
    let mut observer = HostObserver::new(Root::host());
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
    let mut observer = HostObserver::new(Root::host());
    observer.sample();
    let Some(attack) = RunningAttack::hold_lock(1) else { return };
    let pid = attack.pids[0];
    wait_until("it is named", || {
        observer.refresh();
        names(&observer.sample(), pid)
    });
    let sample = observer.sample();
    let process = sample.given_up.named.iter().find(|process| process.pid == pid).unwrap();
    assert!(process.why.ends_with(&format!(" of process {pid} does not answer")), "{}", process.why);
    assert!(sample.processes.iter().all(|process| process.id.pid != pid || process.ksm.mergeable.is_none()));
}

#[test]
fn commands_end_and_name_the_processes_that_hold_them_up() {
    let _others_wait = hold_off_others();
    let Some(attack) = RunningAttack::hold_lock(3) else { return };
    let (_config, path) = alone();
    for command in ["status", "guests"] {
        let (said, _) = run(&["--config", &path, command, "--json"]);
        for pid in &attack.pids {
            assert!(said.contains(&format!(" of process {pid} does not answer")), "{command}: {said}");
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
    let Some(attack) = RunningAttack::many_arguments(30, 60_000) else { return };
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

/// A killed child can't end while it waits for such a page. So the processes of one user hold up two.
#[test]
fn pages_that_never_come_keep_no_other_process_from_being_read() {
    in_own_process(|| {
        let _others_wait = hold_off_others();
        let Some(attack) = RunningAttack::no_page(12) else { return };
        let mut good = Command::new("sleep").arg("60").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let good_pid = good.id();
        let mapped = || std::fs::read_to_string(format!("/proc/{good_pid}/maps")).unwrap();
        wait_until("it has its own program", || mapped().contains("[stack]") && mapped().contains("sleep"));
        let first = u64::from_str_radix(mapped().split('-').next().unwrap(), 16).unwrap();
        let want = |pid: u32, offset| WantedFile { pid, file: "mem", offset, most: 4096 };
        let wants = attack.pids.iter().map(|pid| want(*pid, 0x1000_0000)).chain([want(good_pid, first)]);
        let wants: Vec<WantedFile<'_>> = wants.collect();
        let minute = Duration::from_secs(60);
        let mut readers: Vec<ProcessReader> = (0..3).map(|_| ProcessReader::default()).collect();
        let mut held_up = 0;
        for turn in 0..9 {
            let reader = &mut readers[turn % 3];
            let answers = reader.read_all(&wants, ReadPatience::new(Duration::from_millis(200), minute));
            let (last, others) = answers.split_last().unwrap();
            assert_eq!(last.as_ref().unwrap().as_ref().unwrap().len(), 4096);
            assert!(others.iter().flatten().all(Result::is_err), "{others:?}");
            held_up += others.iter().flatten().count();
        }
        assert_eq!(held_up, 2, "of all that are asked, by all readers");
        // Two wait, and each reader has one child.
        assert_eq!(reader::pids().len(), 5);
        let pages = [(good_pid, [first]), (attack.pids[11], [0x1000_0000]), (good_pid, [first])];
        let pages: Vec<WantedPages<'_>> =
            pages.iter().map(|(pid, addresses)| WantedPages { pid: *pid, addresses }).collect();
        let answers = readers[0].read_pages(&pages, ReadPatience::new(Duration::from_millis(200), minute));
        assert!(answers[1].is_none(), "no more of this user's memory is read");
        let read = |at: usize| answers[at].as_ref().unwrap().as_ref().unwrap()[0].unwrap();
        assert_eq!(read(0), read(2));
        drop(attack);
        good.kill().unwrap();
        good.wait().unwrap();
        // By another reader than had them.
        let mut other = ProcessReader::default();
        wait_until("the children have ended and are collected", || {
            other.read_all(&[want(std::process::id(), 0)], ReadPatience::new(minute, minute));
            reader::pids().len() == 4
        });
    });
}

#[test]
fn silent_processes_of_one_user_use_up_its_share_of_a_call_and_no_others() {
    in_own_process(|| {
        let _others_wait = hold_off_others();
        let Some(neighbours) = RunningAttack::many_processes(NEIGHBOUR, 3) else { return };
        let Some(attack) = RunningAttack::hold_lock(6) else { return };
        // Those of the other user are read last.
        let pids: Vec<u32> = attack.pids.iter().chain(&neighbours.pids).copied().collect();
        let wants: Vec<WantedFile<'_>> =
            pids.iter().map(|pid| WantedFile { pid: *pid, file: "cmdline", offset: 0, most: 4096 }).collect();
        let minute = Duration::from_secs(60);
        let patience = ReadPatience { stuck_of_one: 2, ..ReadPatience::new(Duration::from_millis(100), minute) };
        let mut reader = ProcessReader::default();
        let answers = reader.read_all(&wants, patience);
        let (of_attacker, of_neighbour) = answers.split_at(attack.pids.len());
        assert!(of_neighbour.iter().all(|answer| answer.as_ref().is_some_and(Result::is_ok)), "{of_neighbour:?}");
        let waited_for = of_attacker.iter().flatten().filter(|answer| answer.is_err()).count();
        let left = of_attacker.iter().filter(|answer| answer.is_none()).count();
        assert_eq!((waited_for, left), (2, 4), "{of_attacker:?}");
        // Without a share each of them is waited for.
        let answers = reader.read_all(&wants, ReadPatience { stuck_of_one: usize::MAX, ..patience });
        assert_eq!(answers.iter().flatten().filter(|answer| answer.is_err()).count(), 6, "{answers:?}");
    });
}

#[test]
fn a_user_with_more_processes_than_are_read_of_one_user_hides_no_process_of_another() {
    on_own_host(|| {
        let _ksm_waits = hold_off_ksm();
        if !shows_mergeable(&Root::host()) {
            return skipped("this kernel does not show that memory is mergeable");
        }
        let Some(neighbours) = RunningAttack::many_processes(NEIGHBOUR, 50) else { return };
        let Some(attack) = RunningAttack::many_processes(USER, 1500) else { return };
        let mut observer = HostObserver::new(Root::host());
        let of_attacker = |sample: &Sample| attack.pids.iter().filter(|pid| shows(sample, **pid)).count();
        let is_as_alone = |sample: &Sample| neighbours.pids.iter().all(|pid| shows(sample, *pid));
        let is_counted = |sample: &Sample| sample.given_up.count.min(sample.given_up.unknown) >= 476;
        wait_until("each process is read or counted", || {
            let sample = observer.sample();
            assert!(of_attacker(&sample) <= 1024, "{}", of_attacker(&sample));
            is_as_alone(&sample) && of_attacker(&sample) == 1024 && is_counted(&sample)
        });
        for _ in 0..20 {
            observer.look_closely();
            let sample = observer.sample();
            assert!(is_as_alone(&sample) && is_counted(&sample), "{:?}", sample.given_up);
        }
        let named = &observer.sample().given_up.named[0];
        assert!(attack.pids.contains(&named.pid) && named.why.contains("uid 65534"), "{named}");
        drop(attack);
        wait_until("they are forgotten", || {
            observer.refresh();
            observer.sample().given_up.count == 0
        });
        assert!(is_as_alone(&observer.sample()));
    });
}
