//! The observer on the running kernel. Nothing here writes to KSM, except where the kernel lock is taken.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use ksmith::lab::Part;
use ksmith::observe::{NoEvents, Observer, ProcessEvent, ProcessEvents};
use ksmith::root::Root;
use ksmith_core::reading::Reading;
use ksmith_core::sample::{Process, Sample};
use support::{KernelLock, clean_passes, guest, wait_until};

fn of(sample: &Sample, pid: u32) -> Option<&Process> {
    sample.processes.iter().find(|process| process.id.pid == pid)
}

/// A process without mergeable memory that ends when its input is closed.
fn sleeper() -> Child {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Events through a channel for `room` batches, or `None`, said loudly, where this machine has none for us.
fn events_through(room: usize) -> Option<(ProcessEvents, Receiver<Vec<ProcessEvent>>)> {
    let (sender, receiver) = bounded(room);
    match ProcessEvents::listen(sender) {
        Ok(events) => Some((events, receiver)),
        Err(why @ (NoEvents::Denied | NoEvents::Unavailable)) if !should_have_events() => {
            eprintln!("SKIPPED, nothing was tested: {why}");
            None
        }
        Err(why) => panic!("{why:?}"),
    }
}

fn events() -> Option<(ProcessEvents, Receiver<Vec<ProcessEvent>>)> {
    events_through(64)
}

/// Whether this kernel has the connector and we are root in the host's own PID namespace.
fn should_have_events() -> bool {
    let has_connector = std::fs::read_to_string("/proc/net/connector").is_ok_and(|text| text.contains("cn_proc"));
    // The first PID namespace has a fixed number: `PROC_PID_INIT_INO` in `include/linux/proc_ns.h`.
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    has_connector && rustix::process::geteuid().is_root() && namespace.as_os_str() == "pid:[4026531836]"
}

/// Descriptors of the thread's process that are files of other processes.
fn open_files_of_processes() -> Vec<String> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let link = std::fs::read_link(entry.ok()?.path()).ok()?;
        Some(link.to_string_lossy().into_owned())
    });
    links.filter(|link| link.starts_with("/proc/") && (link.ends_with("stat") || link.ends_with("/"))).collect()
}

#[test]
fn the_host_is_all_there() {
    let mut observer = Observer::new(Root::host());
    let first = observer.sample();
    let second = observer.sample();
    assert!(first.at > Duration::ZERO && second.at > first.at);
    for sample in [first, second] {
        assert_eq!(sample.page_size, rustix::param::page_size() as u64);
        assert!(sample.memory.value().unwrap().total.unwrap() > 0);
        assert!(sample.cpu.value().unwrap().cpus > 0);
        assert!(matches!(sample.vmstat, Reading::Value(_)));
        assert!(!sample.memory_pressure.is_fault() && !sample.cpu_pressure.is_fault());
        if sample.ksm.is_present() {
            let faults: Vec<_> = sample.ksm.entries().filter(|(_, reading)| reading.is_fault()).collect();
            assert!(faults.is_empty(), "{faults:?}");
        }
    }
}

#[test]
fn a_guest_is_seen_as_long_as_it_lives_and_its_figures_move_with_ksmd() {
    let Some(_lock) = KernelLock::take() else { return };
    let mut observer = Observer::new(Root::host());
    let before = observer.sample();
    let pages = 256;
    let guest = guest(&[Part::Equal { seed: 1, pages }, Part::Equal { seed: 1, pages }]);
    observer.refresh();
    let sample = observer.sample();
    let process = of(&sample, guest.pid()).expect("the guest");
    assert_eq!(process.ksm.rmap_items, Some(0));
    assert_eq!(process.ksm.mergeable, Some(true));
    assert!(process.rss_bytes >= 2 * 256 * 4096 && !process.is_vm);
    clean_passes(2);
    let sample = observer.sample();
    let process = of(&sample, guest.pid()).expect("the guest");
    assert_eq!(process.merging_pages(), 2 * 256);
    assert!(sample.ksm.pages_sharing.get().unwrap() >= 256);
    assert!(sample.ksmd_cpu_ns.get().unwrap() > before.ksmd_cpu_ns.get().unwrap());
    let pid = guest.pid();
    drop(guest);
    assert_eq!(of(&observer.sample(), pid), None);
}

#[test]
fn without_events_a_start_is_found_and_an_exit_noticed() {
    let mut observer = Observer::new(Root::host());
    observer.sample();
    let guest = guest(&[Part::Unique { pages: 16 }]);
    let pid = guest.pid();
    wait_until("the guest is found", || of(&observer.sample(), pid).is_some());
    drop(guest);
    assert_eq!(of(&observer.sample(), pid), None);
}

#[test]
fn with_events_a_start_is_found_without_a_scan() {
    let Some((_events, receiver)) = events() else { return };
    let mut observer = Observer::new(Root::host());
    assert_eq!(receiver.recv().unwrap(), [ProcessEvent::Lost]);
    observer.notice(ProcessEvent::Lost);
    observer.sample();
    let guest = guest(&[Part::Unique { pages: 16 }]);
    let pid = guest.pid();
    wait_until("the guest is found", || {
        let batches: Vec<_> = receiver.try_iter().flatten().collect();
        assert!(!batches.contains(&ProcessEvent::Lost), "a scan would find it too");
        observer.notice_all(batches);
        of(&observer.sample(), pid).is_some()
    });
    drop(guest);
    wait_until("the exit is told", || {
        receiver.try_iter().flatten().any(|event| event == ProcessEvent::Exited(pid))
    });
    assert_eq!(of(&observer.sample(), pid), None);
}

#[test]
fn fork_exec_and_exit_of_a_child_are_told() {
    let Some((_events, receiver)) = events() else { return };
    let child = sleeper();
    let pid = child.id();
    let mut told = HashSet::new();
    let mut collect = |event: ProcessEvent| {
        wait_until(&format!("{event:?} is told"), || {
            told.extend(receiver.try_iter().flatten().map(|event| format!("{event:?}")));
            told.contains(&format!("{event:?}"))
        });
    };
    collect(ProcessEvent::Started(pid));
    collect(ProcessEvent::Exec(pid));
    end(child);
    collect(ProcessEvent::Exited(pid));
}

#[test]
fn threads_are_not_told() {
    let Some((_events, receiver)) = events() else { return };
    let thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get() as u32).join().unwrap();
    // A process that starts after the thread: when it is told, the thread would have been.
    let child = sleeper();
    let marker = ProcessEvent::Started(child.id());
    let mut told = Vec::new();
    wait_until("the child is told", || {
        told.extend(receiver.try_iter().flatten());
        told.contains(&marker)
    });
    end(child);
    let of_thread = [ProcessEvent::Started(thread), ProcessEvent::Exited(thread)];
    assert!(!told.iter().any(|event| of_thread.contains(event)), "{told:?}");
}

#[test]
fn a_receiver_that_does_not_keep_up_is_told_that_events_were_lost() {
    // A channel without room takes a batch only while somebody waits for one.
    let Some((_events, receiver)) = events_through(0) else { return };
    assert_eq!(receiver.recv().unwrap().first(), Some(&ProcessEvent::Lost), "the first batch");
    wait_until("a batch finds nobody waiting", || {
        end(sleeper());
        std::thread::sleep(Duration::from_millis(100));
        receiver.recv().unwrap().first() == Some(&ProcessEvent::Lost)
    });
}

#[test]
fn dropping_the_events_ends_their_thread_and_closes_the_channel() {
    let Some((events, receiver)) = events() else { return };
    drop(events);
    assert_eq!(receiver.recv().unwrap(), [ProcessEvent::Lost]);
    assert!(receiver.recv().is_err());
}

#[test]
fn two_hundred_starts_and_exits_leave_no_descriptor_open() {
    let mut observer = Observer::new(Root::host());
    observer.sample();
    let mut most = 0;
    let before = open_files_of_processes().len();
    for _ in 0..200 {
        let child = sleeper();
        let pid = child.id();
        observer.notice(ProcessEvent::Started(pid));
        observer.refresh();
        observer.sample();
        end(child);
        observer.notice(ProcessEvent::Exited(pid));
    }
    for _ in 0..10 {
        let guest = guest(&[Part::Unique { pages: 1 }]);
        observer.refresh();
        assert!(of(&observer.sample(), guest.pid()).is_some());
        most = most.max(open_files_of_processes().len());
        drop(guest);
        observer.sample();
    }
    assert!(most > before, "a guest's files are kept open");
    let pids_alive =
        |file: &String| file.split('/').nth(2).is_some_and(|pid| std::fs::exists(format!("/proc/{pid}")).unwrap());
    let dead: Vec<_> = open_files_of_processes().into_iter().filter(|file| !pids_alive(file)).collect();
    assert!(dead.is_empty(), "{dead:?}");
}
