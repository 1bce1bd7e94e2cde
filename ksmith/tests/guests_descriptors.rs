//! Guests that come and go leave no descriptor, thread or entry behind. A binary of its own: descriptors are counted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;
#[path = "support/vm.rs"]
mod vm;

use std::time::Duration;

use ksmith::guests::{Guest, Guests, Kind, Uri};
use ksmith::observe::Observer;
use ksmith::root::Root;
use support::KernelLock;
use vm::{Qemu, has};

fn find(observer: &mut Observer, guests: &mut Guests, pid: &str) -> Option<Guest> {
    observer.refresh();
    let list = guests.list_within(&observer.sample(), Duration::from_secs(10));
    ksmith::guests::find(&list.guests, pid).ok().cloned()
}

#[test]
fn fifty_starts_and_exits_leave_nothing_behind() {
    if !has("qemu-system-x86_64") {
        return;
    }
    let Some(_lock) = KernelLock::take() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut observer = Observer::new(Root::host());
    let mut guests = Guests::new(Root::host(), Uri::default());
    // The first one starts the threads that ask.
    let first = Qemu::start(directory.path(), "cycle", None, &[]);
    assert!(find(&mut observer, &mut guests, &first.pid().to_string()).is_some());
    drop(first);
    find(&mut observer, &mut guests, "0");
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = (descriptors(), threads());
    for _ in 0..50 {
        let qemu = Qemu::start(directory.path(), "cycle", None, &[]);
        let pid = qemu.pid().to_string();
        let found = find(&mut observer, &mut guests, &pid).expect("the guest");
        assert_eq!((found.name.as_str(), found.kind, found.errors.len()), ("cycle", Kind::Qemu, 0), "{found:?}");
        drop(qemu);
        assert!(find(&mut observer, &mut guests, &pid).is_none(), "a stale entry");
    }
    assert_eq!((descriptors(), threads()), before, "descriptors and threads");
}
