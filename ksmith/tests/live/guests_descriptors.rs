//! Guests that start and end leave no descriptor, thread or entry behind.

use std::time::Duration;

use crate::support::hold_off_ksm;
use crate::support::own::on_own_host;
use crate::support::vm::{QemuProcess, has};
use ksmith_host::guests::{Guest, GuestKind, GuestTracker, LibvirtUri};
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;

fn find(observer: &mut HostObserver, guests: &mut GuestTracker, pid: &str) -> Option<Guest> {
    observer.refresh();
    let list = guests.list_within(&observer.sample(), Duration::from_secs(10));
    ksmith_host::guests::find(&list.guests, pid).ok().cloned()
}

#[test]
fn fifty_starts_and_exits_leave_nothing_behind() {
    on_own_host(|| {
        if !has("qemu-system-x86_64") {
            return;
        }
        let _ksm_waits = hold_off_ksm();
        let directory = tempfile::tempdir().unwrap();
        let mut observer = HostObserver::new(Root::host());
        let mut guests = GuestTracker::new(Root::host(), LibvirtUri::default());
        // The first one starts the threads that ask.
        let first = QemuProcess::start(directory.path(), "cycle", None, &[]);
        assert!(find(&mut observer, &mut guests, &first.pid().to_string()).is_some());
        drop(first);
        find(&mut observer, &mut guests, "0");
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let before = (descriptors(), threads());
        for _ in 0..50 {
            let qemu = QemuProcess::start(directory.path(), "cycle", None, &[]);
            let pid = qemu.pid().to_string();
            let found = find(&mut observer, &mut guests, &pid).expect("the guest");
            assert_eq!(
                (found.name.as_str(), found.kind, found.errors.len()),
                ("cycle", GuestKind::new("qemu"), 0),
                "{found:?}"
            );
            drop(qemu);
            assert!(find(&mut observer, &mut guests, &pid).is_none(), "a stale entry");
        }
        assert_eq!((descriptors(), threads()), before, "descriptors and threads");
    });
}
