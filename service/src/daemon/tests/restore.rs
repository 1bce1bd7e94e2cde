//! The daemon over a tree of files, with the true writer and its journal.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use ksmith_core::controller::PolicyController;
use ksmith_host::act::{KsmControl, StateDir};
use ksmith_host::live::LiveHost;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_host::signals::Signal;
use sd_notify::NotifyState;

use super::HELD;
use crate::daemon::{Daemon, DaemonEnvironment, DaemonMessage, plan};
use crate::testing::DaemonScene;

/// Ends the daemon at its first wait, or panics there.
#[derive(Debug)]
struct EndsAtOnce {
    panics: bool,
}

impl DaemonEnvironment for EndsAtOnce {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn day_clock(&self) -> i64 {
        crate::testing::BEGIN
    }

    fn receive(&mut self, _: &Receiver<DaemonMessage>, _: Instant) -> Result<DaemonMessage, RecvTimeoutError> {
        assert!(!self.panics, "in the middle of a burst");
        Ok(DaemonMessage::Signal(Signal::End))
    }

    fn notify(&mut self, _: &[NotifyState<'_>]) {}

    fn watchdog(&self) -> Option<std::time::Duration> {
        None
    }
}

const FILES: [(&str, &str); 13] = [
    ("advisor_mode", "none [scan-time]\n"),
    ("advisor_max_cpu", "33\n"),
    ("advisor_min_pages_to_scan", "700\n"),
    ("advisor_max_pages_to_scan", "30000\n"),
    ("advisor_target_scan_time", "150\n"),
    ("smart_scan", "1\n"),
    ("use_zero_pages", "0\n"),
    ("merge_across_nodes", "1\n"),
    ("max_page_sharing", "256\n"),
    ("stable_node_chains_prune_millisecs", "2000\n"),
    ("pages_to_scan", "100\n"),
    ("sleep_millisecs", "20\n"),
    ("run", "1\n"),
];

fn ksm(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join("sys/kernel/mm/ksm").join(name)).unwrap().trim().to_owned()
}

/// Makes the files of KSM below `root`, with the kernel's advisor on.
fn make_tree(root: &Path) {
    let directory = root.join("sys/kernel/mm/ksm");
    fs::create_dir_all(&directory).unwrap();
    for (name, text) in FILES {
        fs::write(directory.join(name), text).unwrap();
    }
}

fn host(root: &Path, dry_run: bool) -> LiveHost {
    let root = Root::at(root);
    let control = KsmControl::acquire(&root, &StateDir::from_root(&root), dry_run, false).unwrap();
    LiveHost::new(HostObserver::new(root), control)
}

/// The kernel shows the mode in use in brackets; a file shows what was written.
fn is_restored(root: &Path) -> bool {
    ksm(root, "run") == "1" && ksm(root, "advisor_mode") == "scan-time" && ksm(root, "advisor_max_cpu") == "33"
}

#[test]
fn an_ended_daemon_restores_every_setting_and_removes_its_journal() {
    let scene = DaemonScene::new(&HELD.replace("run = 0", "run = 0, smart_scan = 0, advisor_mode = \"none\""));
    make_tree(scene.root());
    let config = scene.source.load().unwrap();
    let daemon = Daemon::new(host(scene.root(), false), EndsAtOnce { panics: false }, config, scene.source.clone());
    let ended = daemon.unwrap().run(|_| Ok(())).unwrap();
    assert_eq!((ksm(scene.root(), "run").as_str(), ksm(scene.root(), "smart_scan").as_str()), ("0", "0"));
    let journal = scene.root().join("run/ksmith/undo.json");
    assert!(journal.exists());
    let notes = ended.restore().unwrap();
    for note in ["restored run 0 -> 1", "restored smart_scan 0 -> 1", "restored advisor_mode none -> scan-time"] {
        assert!(notes.contains(&note.to_owned()), "{note}: {notes:?}");
    }
    assert!(is_restored(scene.root()) && !journal.exists());
}

#[test]
fn a_panic_restores_every_setting() {
    let scene = DaemonScene::new(&HELD.replace("run = 0", "run = 0, advisor_mode = \"none\""));
    make_tree(scene.root());
    let config = scene.source.load().unwrap();
    let host = host(scene.root(), false);
    let daemon = Daemon::new(host, EndsAtOnce { panics: true }, config, scene.source.clone()).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| daemon.run(|_| Ok(())).map(drop))).is_err());
    assert!(is_restored(scene.root()));
}

#[test]
fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    let scene = DaemonScene::new(HELD);
    make_tree(scene.root());
    fs::write(scene.root().join("sys/kernel/mm/ksm/advisor_mode"), "[none] scan-time\n").unwrap();
    let config = scene.source.load().unwrap();
    let mut controller =
        PolicyController::new(host(scene.root(), true), config.policy().unwrap(), config.limits.clone());
    let (reason, knobs) = plan(&controller.tick());
    assert_eq!(knobs.to_string(), "pages_to_scan=321 run=0", "{reason}");
    assert_eq!((ksm(scene.root(), "run").as_str(), ksm(scene.root(), "pages_to_scan").as_str()), ("1", "100"));
    assert!(!scene.root().join("run").exists());
}
