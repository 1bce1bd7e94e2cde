//! The descriptors that the observer keeps open.

use crate::support::own::on_own_host;
use crate::support::{guest, hold_off_ksm};
use ksmith_core::sample::Sample;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_lab::{MemoryGuest, MemoryPart};

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
fn no_file_of_a_guest_stays_open() {
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
            assert_eq!(open_files_of(pid), 0);
            drop(guest);
            assert!(!shows(&observer.sample(), pid));
        }
        assert_eq!(open_files(), before);
    });
}
