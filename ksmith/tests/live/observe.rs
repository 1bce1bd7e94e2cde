//! The observer on the running kernel. Nothing here writes to KSM, except where the kernel lock is taken.

use crate::support;
use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{KernelLock, guest, hold_off_others, passes_until, wait_until};
use crossbeam_channel::{Receiver, TryRecvError, unbounded};
use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessSample, Sample};
use ksmith_host::observe::{HostObserver, NoEvents, ProcessEvent, ProcessEvents};
use ksmith_host::root::Root;
use ksmith_lab::MemoryPart;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, SocketType, bind, socket};

fn find_process(sample: &Sample, pid: u32) -> Option<&ProcessSample> {
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

/// Events, or `None`, said loudly, where this machine has none for us.
fn events() -> Option<(ProcessEvents, Receiver<Vec<ProcessEvent>>)> {
    let (sender, receiver) = unbounded();
    match ProcessEvents::listen(sender) {
        Ok(events) => Some((events, receiver)),
        Err(why @ (NoEvents::Denied | NoEvents::Unavailable)) if !should_have_events() => {
            support::skipped(&why.to_string());
            None
        }
        Err(why) => panic!("{why:?}"),
    }
}

/// Returns true if this kernel has the connector and we are root in the host's own PID namespace.
fn should_have_events() -> bool {
    let has_connector = std::fs::read_to_string("/proc/net/connector").is_ok_and(|text| text.contains("cn_proc"));
    // The first PID namespace has a fixed number: `PROC_PID_INIT_INO` in `include/linux/proc_ns.h`.
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    has_connector && rustix::process::geteuid().is_root() && namespace.as_os_str() == "pid:[4026531836]"
}

/// Runs a test's body in a process in a network namespace of its own, with the socket of process events at descriptor 3
/// as the service manager passes it.
fn with_inherited_socket<F: FnOnce()>(body: F) {
    const MARK: &str = "KSMITH_TEST_INHERITS";
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    if !should_have_events() {
        return support::skipped("there are no process events here for us");
    }
    let socket = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(netlink::CONNECTOR)).unwrap();
    bind(&socket, &SocketAddrNetlink::new(0, 1)).unwrap();
    let path = std::any::type_name::<F>().trim_end_matches("::{{closure}}");
    let script = "exec 3<&0 0</dev/null; export LISTEN_PID=$$; exec unshare --net -- \"$0\" \"$@\"";
    let status = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", path.split_once("::").unwrap().1, "--nocapture", "--test-threads=1"])
        .envs([(MARK, "1"), ("LISTEN_FDS", "1"), ("LISTEN_FDNAMES", "process-events")])
        .stdin(socket)
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success(), "see above");
}

#[test]
fn without_a_network_events_come_at_the_socket_that_the_service_manager_made() {
    with_inherited_socket(|| {
        let (sender, receiver) = unbounded::<Vec<ProcessEvent>>();
        let events = ProcessEvents::listen(sender).unwrap();
        let child = sleeper();
        let pid = child.id();
        wait_until("its start is told", || {
            let is_its = |event| [ProcessEvent::Started(pid), ProcessEvent::Exec(pid)].contains(&event);
            receiver.try_iter().flatten().any(is_its)
        });
        end(child);
        drop(events);
        // A socket of this namespace is told nothing.
        let (sender, _receiver) = unbounded::<Vec<ProcessEvent>>();
        assert!(ProcessEvents::listen(sender).is_err());
    });
}

/// A value, or a file that this kernel lacks.
fn is_well<T>(reading: &Reading<T>) -> bool {
    matches!(reading, Reading::Value(_) | Reading::Absent)
}

#[test]
fn the_host_is_all_there() {
    let mut observer = HostObserver::new(Root::host());
    let first = observer.sample();
    let second = observer.sample();
    assert!(first.at > Duration::ZERO && second.at > first.at);
    for sample in [first, second] {
        assert_eq!(sample.page_size, rustix::param::page_size() as u64);
        assert!(sample.host.memory.value().unwrap().total.unwrap() > 0);
        assert!(sample.host.cpu.value().unwrap().cpus > 0);
        assert!(matches!(sample.host.vmstat, Reading::Value(_)));
        assert!(is_well(&sample.host.memory_pressure) && is_well(&sample.host.cpu_pressure));
        if sample.ksm.is_present() {
            let faults: Vec<_> = sample.ksm.entries().filter(|(_, reading)| !is_well(reading)).collect();
            assert!(faults.is_empty(), "{faults:?}");
        }
    }
}

#[test]
fn a_guest_is_seen_as_long_as_it_lives_and_its_figures_move_with_ksmd() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let mut observer = HostObserver::new(Root::host());
    let before = observer.sample();
    let pages = 256;
    let guest = guest(&[MemoryPart::Equal { seed: 1, pages }, MemoryPart::Equal { seed: 1, pages }]);
    observer.refresh();
    let sample = observer.sample();
    let process = find_process(&sample, guest.pid()).expect("the guest");
    assert_eq!(process.ksm.rmap_items, Some(0));
    assert_eq!(process.ksm.mergeable, Some(true));
    assert!(process.rss_bytes >= Some(2 * 256 * 4096) && !process.is_vm);
    passes_until("all are merged", || {
        find_process(&observer.sample(), guest.pid()).is_some_and(|process| process.merging_pages() == 2 * 256)
    });
    let sample = observer.sample();
    assert!(sample.ksm.pages_sharing.get().unwrap() >= 256);
    assert!(sample.ksmd_cpu_ns.get().unwrap() > before.ksmd_cpu_ns.get().unwrap());
    let pid = guest.pid();
    drop(guest);
    assert_eq!(find_process(&observer.sample(), pid), None);
}

#[test]
fn without_events_a_start_is_found_and_an_exit_noticed() {
    let _others_wait = hold_off_others();
    let mut observer = HostObserver::new(Root::host());
    observer.sample();
    let guest = guest(&[MemoryPart::Unique { pages: 16 }]);
    let pid = guest.pid();
    wait_until("the guest is found", || find_process(&observer.sample(), pid).is_some());
    drop(guest);
    assert_eq!(find_process(&observer.sample(), pid), None);
}

#[test]
fn with_events_a_start_is_found_without_a_scan() {
    let _others_wait = hold_off_others();
    let Some((_events, receiver)) = events() else { return };
    let mut observer = HostObserver::new(Root::host());
    assert_eq!(receiver.recv().unwrap(), [ProcessEvent::Lost]);
    observer.notice(ProcessEvent::Lost);
    observer.sample();
    let guest = guest(&[MemoryPart::Unique { pages: 16 }]);
    let pid = guest.pid();
    wait_until("the guest is found", || {
        let batches: Vec<_> = receiver.try_iter().flatten().collect();
        assert!(!batches.contains(&ProcessEvent::Lost), "a scan would find it too");
        observer.notice_all(batches);
        find_process(&observer.sample(), pid).is_some()
    });
    drop(guest);
    wait_until("the exit is told", || {
        receiver.try_iter().flatten().any(|event| event == ProcessEvent::Exited(pid))
    });
    assert_eq!(find_process(&observer.sample(), pid), None);
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
fn dropping_the_events_ends_their_thread_and_closes_the_channel() {
    let Some((events, receiver)) = events() else { return };
    drop(events);
    assert_eq!(receiver.try_recv().unwrap(), [ProcessEvent::Lost]);
    // What other tests have started meanwhile may have been told as well.
    receiver.try_iter().for_each(drop);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
}
