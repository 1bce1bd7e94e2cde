//! The thread that wakes ksmd for each batch while the lease is renewed in time ([`ksmith_core::lease`]).
//!
//! It is a thread of the controlling process, on purpose: whatever stops, freezes or kills that process stops the
//! thread with it. It reads only ksmd's state, and takes no lock that is held for longer than one write to
//! `sleep_millisecs`, which never waits.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ksmith_core::field::KernelVersion;
use ksmith_core::kernel::{cpu_ns, is_asleep, number};
use ksmith_core::knobs::Knob;
use ksmith_core::lease::{self, LeaseTerms, ScanRate, SleepingKsmd};

use super::knob_file;
use super::on_rest::RestCallback;
use crate::ksmd;
use crate::root::Root;

/// Timer slack of the thread, in nanoseconds. Batches last milliseconds.
const TIMER_SLACK_NS: u64 = 5_000;

/// A lease in force. Dropping it ends the waking of ksmd.
#[derive(Debug)]
pub(super) struct KsmdLease(Arc<SharedLease>);

#[derive(Debug)]
struct SharedLease {
    began: Instant,
    /// The terms, set by the lease's owner and obeyed by its thread; `None` once the lease has ended.
    terms: Mutex<Option<LeaseTerms>>,
    changed: Condvar,
}

impl KsmdLease {
    /// Starts waking ksmd at `rate`. `value` is the current value of `sleep_millisecs`.
    ///
    /// # Errors
    /// The file can't be opened, or the thread can't be started.
    pub(super) fn begin(
        root: &Root,
        ksmd: Arc<LeasedKsmd>,
        value: u64,
        rate: ScanRate,
        on_rest: RestCallback,
    ) -> io::Result<Self> {
        let path = knob_file::path(root, Knob::SleepMillisecs);
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        // `sleep_millisecs` is the lease's by now: where ksmd ends a pass from here on, it stays.
        let completed = read(&ksmd.full_scans);
        let terms = LeaseTerms::new(rate, value, completed, Duration::ZERO);
        let shared = Arc::new(SharedLease {
            began: Instant::now(),
            terms: Mutex::new(Some(terms)),
            changed: Condvar::new(),
        });
        let there = Arc::clone(&shared);
        std::thread::Builder::new().name("lease".to_owned()).spawn(move || there.keep(&ksmd, &file, &on_rest))?;
        Ok(Self(shared))
    }

    /// Reads or changes the terms. The thread is notified if its next look is earlier.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut LeaseTerms, Duration) -> T) -> Option<T> {
        let now = self.0.began.elapsed();
        let mut terms = self.0.terms();
        let terms = terms.as_mut()?;
        let before = terms.next_look(now);
        let outcome = act(terms, now);
        if terms.next_look(now) != before {
            self.0.changed.notify_one();
        }
        Some(outcome)
    }
}

impl Drop for KsmdLease {
    fn drop(&mut self) {
        *self.0.terms() = None;
        self.0.changed.notify_one();
    }
}

impl SharedLease {
    fn terms(&self) -> MutexGuard<'_, Option<LeaseTerms>> {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls ksmd and wakes it while the lease is in force and no other program writes `sleep_millisecs`.
    fn keep(&self, ksmd: &LeasedKsmd, file: &File, on_rest: &RestCallback) {
        // Without it ksmd is woken a little later.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
        let mut guard = self.terms();
        while let Some(terms) = guard.as_mut().filter(|terms| !terms.is_broken()) {
            let now = self.began.elapsed();
            let Some(due) = terms.next_look(now) else {
                guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if due > now {
                guard = self.changed.wait_timeout(guard, due - now).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            terms.begin_look();
            drop(guard);
            let (at, asleep) = (self.began.elapsed(), ksmd.asleep());
            guard = self.terms();
            let Some(terms) = guard.as_mut() else { return };
            // The lock is held: the thread that ends the lease writes `sleep_millisecs` afterwards, and that value stays.
            if terms.end_look(at, self.began.elapsed(), asleep, |from, to| wake(file, from, to)) {
                (on_rest.0)();
            }
        }
    }
}

/// Writes the next value to `sleep_millisecs`, unless another program has written one. Returns true if it was written.
fn wake(file: &File, from: u64, to: u64) -> bool {
    read(file) == Some(from) && file.write_at(format!("{to}\n").as_bytes(), 0).is_ok()
}

/// Open files of ksmd's state and CPU time.
#[derive(Debug)]
pub(super) struct LeasedKsmd {
    stat: File,
    schedstat: File,
    full_scans: File,
}

impl LeasedKsmd {
    /// Returns ksmd, if it can be woken: the kernel heeds a new `sleep_millisecs` at once, and ksmd's state is
    /// readable.
    pub(super) fn find(root: &Root) -> Option<Self> {
        let release = root.text("proc/sys/kernel/osrelease");
        KernelVersion::parse(release.value()?).filter(|version| *version >= lease::SINCE)?;
        let pid = ksmd::pid(root)?;
        let open = |name: &str| File::open(root.path(format!("proc/{pid}/{name}"))).ok();
        let full_scans = File::open(knob_file::gauge_path(root, "full_scans")).ok()?;
        Some(Self { stat: open("stat")?, schedstat: open("schedstat")?, full_scans })
    }

    /// Returns true if ksmd sleeps, and so has ended its batch.
    pub(super) fn is_asleep(&self) -> bool {
        text(&self.stat, &mut [0; 512]).is_some_and(is_asleep)
    }

    /// Returns ksmd's figures, if it sleeps. While it runs its CPU time is inexact.
    fn asleep(&self) -> Option<SleepingKsmd> {
        if !self.is_asleep() {
            return None;
        }
        let mut buffer = [0; 128];
        let cpu_ns = cpu_ns(text(&self.schedstat, &mut buffer)?).ok()?;
        Some(SleepingKsmd { cpu_ns, full_scans: read(&self.full_scans)? })
    }
}

fn text<'a>(file: &File, buffer: &'a mut [u8]) -> Option<&'a str> {
    let length = file.read_at(buffer, 0).ok()?;
    std::str::from_utf8(buffer.get(..length)?).ok()
}

fn read(file: &File) -> Option<u64> {
    number(text(file, &mut [0; 32])?).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::path::Path;

    use ksmith_core::sample::BoundaryPause;

    use super::super::writer::tests::tree;
    use super::*;

    const FIRST: u64 = 87_000_000;

    const ENDLESS: ScanRate = ScanRate { runs: true, is_advised: false, pages_to_scan: 1000, sleep_ms: 0 };

    /// Adds a ksmd that sleeps all the time.
    pub(in super::super) fn add_ksmd(tree: &Path) {
        let ksmd = tree.join("proc/35");
        fs::create_dir_all(&ksmd).unwrap();
        fs::write(ksmd.join("stat"), "35 (ksmd) S 2 0 0 0 -1 2097216 0 0 0 0 0 4 0 0 25 5 1 0 18 0 0 0").unwrap();
        fs::write(ksmd.join("schedstat"), "123456 0 7").unwrap();
        fs::write(tree.join("sys/kernel/mm/ksm/full_scans"), "3\n").unwrap();
        let release = tree.join("proc/sys/kernel");
        fs::create_dir_all(&release).unwrap();
        fs::write(release.join("osrelease"), "6.18.1\n").unwrap();
    }

    fn with_ksmd() -> tempfile::TempDir {
        let tree = tree(&[("sleep_millisecs", &format!("{FIRST}\n"))]);
        add_ksmd(tree.path());
        tree
    }

    fn file(tree: &Path) -> std::path::PathBuf {
        tree.join("sys/kernel/mm/ksm/sleep_millisecs")
    }

    fn value(tree: &Path) -> u64 {
        fs::read_to_string(file(tree)).unwrap().trim().parse().unwrap()
    }

    pub(in super::super) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < Duration::from_secs(60), "waited too long until {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Begins a lease on a tree, and waits for the first waking.
    fn begin(tree: &Path) -> KsmdLease {
        let before = value(tree);
        let root = Root::at(tree);
        let lease = KsmdLease::begin(
            &root,
            Arc::new(LeasedKsmd::find(&root).unwrap()),
            before,
            ENDLESS,
            RestCallback::default(),
        )
        .unwrap();
        lease.change(|terms, now| terms.hold(Duration::from_secs(3600), now));
        wait_until("ksmd is woken", || value(tree) != before);
        lease
    }

    #[test]
    fn ksmd_is_woken_until_the_lease_is_dropped() {
        let tree = with_ksmd();
        let lease = begin(tree.path());
        let seen = value(tree.path());
        wait_until("ksmd is woken again", || value(tree.path()) != seen);
        drop(lease);
        fs::write(file(tree.path()), format!("{FIRST}\n")).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(value(tree.path()), FIRST, "what is written after the end stays");
    }

    #[test]
    fn ksmd_is_woken_no_more_when_no_look_is_completed() {
        let tree = with_ksmd();
        let lease = begin(tree.path());
        lease.change(LeaseTerms::suspend);
        // A waking under way has the lock.
        let seen = {
            let _terms = lease.0.terms();
            value(tree.path())
        };
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(value(tree.path()), seen);
        lease.change(|terms, now| terms.hold(Duration::from_secs(3600), now));
        wait_until("ksmd is woken again", || value(tree.path()) != seen);
    }

    #[test]
    fn ksmd_rests_at_the_end_of_a_pass_and_that_is_told() {
        let tree = with_ksmd();
        let before = value(tree.path());
        let stat = tree.path().join("proc/35/stat");
        let asleep = fs::read_to_string(&stat).unwrap();
        fs::write(&stat, asleep.replace(" S ", " R ")).unwrap();
        let root = Root::at(tree.path());
        let (tell, told) = crossbeam_channel::unbounded();
        let on_rest = RestCallback(Arc::new(move || tell.send(()).unwrap()));
        let ksmd = Arc::new(LeasedKsmd::find(&root).unwrap());
        let lease = KsmdLease::begin(&root, ksmd, before, ENDLESS, on_rest).unwrap();
        lease.change(|terms, now| terms.rest_after(Some(4), now));
        lease.change(|terms, now| terms.hold(Duration::from_secs(3600), now));
        assert_eq!(lease.change(|terms, _| terms.rest()), Some(BoundaryPause::Possible));
        // It ends the pass.
        fs::write(tree.path().join("sys/kernel/mm/ksm/full_scans"), "4\n").unwrap();
        fs::write(&stat, asleep).unwrap();
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(lease.change(|terms, _| terms.rest()), Some(BoundaryPause::Resting));
        let seen = value(tree.path());
        lease.change(|terms, now| terms.hold(Duration::from_secs(3600), now));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(value(tree.path()), seen, "it is not woken");
        lease.change(|terms, now| terms.rest_after(Some(5), now));
        assert_eq!(lease.change(|terms, _| terms.rest()), Some(BoundaryPause::Possible));
        wait_until("ksmd is woken again", || value(tree.path()) != seen);
        assert!(told.try_recv().is_err(), "one rest is told once");
    }

    #[test]
    fn what_another_program_writes_is_left_alone_and_reported() {
        let tree = with_ksmd();
        let lease = begin(tree.path());
        assert_eq!(lease.change(|terms, _| terms.is_broken()), Some(false));
        {
            let _terms = lease.0.terms();
            fs::write(file(tree.path()), "20\n").unwrap();
        }
        wait_until("it is noticed", || lease.change(|terms, _| terms.is_broken()) == Some(true));
        assert_eq!(value(tree.path()), 20);
    }

    #[test]
    fn a_lease_needs_a_kernel_that_hears_and_a_ksmd_that_is_seen() {
        let tree = with_ksmd();
        let root = Root::at(tree.path());
        assert!(LeasedKsmd::find(&root).is_some());
        fs::write(tree.path().join("proc/sys/kernel/osrelease"), "4.19.0-25-amd64\n").unwrap();
        assert!(LeasedKsmd::find(&root).is_none());
        fs::write(tree.path().join("proc/sys/kernel/osrelease"), "5.10.0\n").unwrap();
        assert!(LeasedKsmd::find(&root).is_some());
        for file in ["sys/kernel/mm/ksm/full_scans", "proc/35/schedstat", "proc/35/stat"] {
            let text = fs::read_to_string(tree.path().join(file)).unwrap();
            fs::remove_file(tree.path().join(file)).unwrap();
            assert!(LeasedKsmd::find(&root).is_none(), "without {file}");
            fs::write(tree.path().join(file), text).unwrap();
        }
    }
}
