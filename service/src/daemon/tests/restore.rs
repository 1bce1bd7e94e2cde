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

const KHUGEPAGED: &str = "sys/kernel/mm/transparent_hugepage/khugepaged";

/// khugepaged's `max_ptes_shared` and `max_ptes_none`.
fn khugepaged(root: &Path) -> [String; 2] {
    ["max_ptes_shared", "max_ptes_none"]
        .map(|name| fs::read_to_string(root.join(KHUGEPAGED).join(name)).unwrap().trim().to_owned())
}

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
    fs::create_dir_all(root.join(KHUGEPAGED)).unwrap();
    fs::write(root.join(KHUGEPAGED).join("max_ptes_shared"), "200\n").unwrap();
    fs::write(root.join(KHUGEPAGED).join("max_ptes_none"), "511\n").unwrap();
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

/// Runs a daemon that has ksmd scan, over a tree. Returns it at its end, before it restores.
fn scanning_daemon(scene: &DaemonScene) -> crate::daemon::EndedDaemon<LiveHost> {
    let config = scene.source.load().unwrap();
    let daemon = Daemon::new(host(scene.root(), false), EndsAtOnce { panics: false }, config, scene.source.clone());
    daemon.unwrap().run(|_| Ok(())).unwrap()
}

fn scanning(more: &str) -> String {
    HELD.replace("run = 0", "run = 1, advisor_mode = \"none\"") + more
}

#[test]
fn khugepaged_is_held_while_ksmd_scans_and_restored_at_the_end() {
    let scene = DaemonScene::new(&scanning(""));
    make_tree(scene.root());
    let ended = scanning_daemon(&scene);
    assert_eq!(khugepaged(scene.root()), ["0", "0"]);
    let journal = fs::read_to_string(scene.root().join("run/ksmith/undo.json")).unwrap();
    assert!(journal.contains("max_ptes_shared") && journal.contains("\"200\""), "{journal}");
    let notes = ended.restore().unwrap();
    assert!(notes.contains(&"restored max_ptes_shared 0 -> 200".to_owned()), "{notes:?}");
    assert_eq!(khugepaged(scene.root()), ["200", "511"]);
}

#[test]
fn a_killed_daemons_hold_is_restored_from_its_journal_but_for_anothers_value() {
    let scene = DaemonScene::new(&scanning(""));
    make_tree(scene.root());
    std::mem::forget(scanning_daemon(&scene));
    fs::write(scene.root().join(KHUGEPAGED).join("max_ptes_none"), "64\n").unwrap();
    // The dead daemon's lock went with its process.
    let root = Root::at(scene.root());
    let journal = ksmith_host::act::KsmJournal::open(&StateDir::from_root(&root)).unwrap();
    let mut writer = ksmith_host::act::KnobWriter::new(&root, false).with_journal(journal);
    let outcome = ksmith_host::act::restore(&mut writer, true).unwrap();
    assert_eq!(khugepaged(scene.root()), ["200", "64"]);
    assert!(
        outcome.notes.iter().any(|note| note.starts_with("max_ptes_none is 64 by another program")),
        "{outcome:?}"
    );
}

#[test]
fn khugepaged_is_left_alone_where_nothing_merges_or_it_may_not_be_held() {
    for (config, files) in
        [(HELD.to_owned(), true), (scanning("[huge_pages]\nkeep = false\n"), true), (scanning(""), false)]
    {
        let scene = DaemonScene::new(&config);
        make_tree(scene.root());
        if !files {
            fs::remove_dir_all(scene.root().join("sys/kernel/mm/transparent_hugepage")).unwrap();
        }
        let ended = scanning_daemon(&scene);
        if files {
            assert_eq!(khugepaged(scene.root()), ["200", "511"], "{config}");
        }
        ended.restore().unwrap();
        assert_eq!(scene.root().join(KHUGEPAGED).exists(), files, "nothing is made");
    }
}
