//! The descriptors that the observer keeps open.

use crate::support::own::on_own_host;
use crate::support::{guest, hold_off_ksm};
use ksmith_core::sample::Sample;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_lab::{MemoryGuest, MemoryPart};
use rustix::process::{Resource, Rlimit, setrlimit};

fn small_guest() -> MemoryGuest {
    guest(&[MemoryPart::Unique { pages: 1 }])
}

fn shows(sample: &Sample, pid: u32) -> bool {
    sample.processes.iter().any(|process| process.id.pid == pid)
}

/// Counts this process's descriptors for the directory of `pid` and the files in it.
fn open_files_of(pid: u32) -> usize {
    let directory = format!("/proc/{pid}");
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let link = std::fs::read_link(entry.ok()?.path()).ok()?.to_string_lossy().into_owned();
        // What the kernel appends when the process is gone.
        Some(link.trim_end_matches(" (deleted)").to_owned())
    });
    links
        .filter(|link| link.strip_prefix(&directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        .count()
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_guests_files_are_open_while_it_lives_and_two_hundred_leave_nothing() {
    on_own_host(|| {
        let _ksm_waits = hold_off_ksm();
        let mut observer = HostObserver::new(Root::host());
        observer.sample();
        let before = open_files();
        for _ in 0..200 {
            let guest = small_guest();
            let pid = guest.pid();
            observer.refresh();
            assert!(shows(&observer.sample(), pid));
            assert_eq!(open_files_of(pid), 2, "the directory and stat");
            drop(guest);
            assert!(!shows(&observer.sample(), pid));
            assert_eq!(open_files_of(pid), 0);
        }
        assert_eq!(open_files(), before);
    });
}

#[test]
fn more_guests_than_descriptors_are_seen_all_the_same() {
    on_own_host(|| {
        let _ksm_waits = hold_off_ksm();
        let limit = Rlimit { current: Some(780), maximum: Some(780) };
        setrlimit(Resource::Nofile, limit).unwrap();
        let guests: Vec<_> = (0..12).map(|_| small_guest()).collect();
        let mut observer = HostObserver::new(Root::host());
        for _ in 0..2 {
            let sample = observer.sample();
            assert!(guests.iter().all(|guest| shows(&sample, guest.pid())));
        }
        let kept = guests.iter().filter(|guest| open_files_of(guest.pid()) > 0).count();
        assert!((1..12).contains(&kept), "{kept} of 12 are kept open");
        let pids: Vec<_> = guests.iter().map(MemoryGuest::pid).collect();
        drop(guests);
        let sample = observer.sample();
        assert!(!pids.iter().any(|pid| shows(&sample, *pid)));
    });
}
