//! Commands that change settings on the live kernel, and what one that was killed or is at work means to the others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::fs;
use std::path::Path;

use ksmith::act::{Lock, StateDir};
use ksmith::root::Root;
use serde_json::Value;
use support::KernelLock;
use support::program::ksmith;

const JOURNAL: &str = "/run/ksmith/journal.json";

/// A journal whose owner is this process, or one that ended long ago.
fn journal(is_alive: bool, originals: &str) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let start: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let start = if is_alive { start } else { start + 1 };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let (pid, boot) = (std::process::id(), boot.trim());
    let text = format!(
        r#"{{"version":1,"pid":{pid},"start_ticks":{start},"boot_id":"{boot}","originals":{{{originals}}}}}"#
    );
    put(&text);
}

fn put(text: &str) {
    // Made as ksmith makes it, for root alone.
    drop(Lock::take(&StateDir::of(&Root::host())).unwrap());
    fs::write(JOURNAL, text).unwrap();
}

/// The codes of what the doctor finds.
fn found() -> Vec<String> {
    let findings: Value = serde_json::from_str(&ksmith(&["doctor", "--json"]).1).unwrap();
    findings["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_damaged_journal_stops_everybody_until_it_is_given_up() {
    let Some(lock) = KernelLock::take() else { return };
    put("{");
    assert!(found().contains(&"damaged-journal".to_owned()), "{:?}", found());
    for arguments in [&["daemon"][..], &["scan"], &["restore"], &["restore", "--dry-run"]] {
        let (code, out, err) = ksmith(arguments);
        assert_eq!((code, out.as_str()), (3, ""), "{arguments:?}: {err}");
        assert!(err.contains(JOURNAL) && err.contains("ksmith restore --discard"), "{arguments:?}: {err}");
        assert_eq!(fs::read_to_string(JOURNAL).unwrap(), "{");
    }
    let (code, out, err) = ksmith(&["restore", "--discard"]);
    assert_eq!(code, 0, "{err}");
    let aside = out.trim_end().rsplit_once(' ').unwrap().1;
    assert_eq!(fs::read_to_string(aside).unwrap(), "{");
    fs::remove_file(aside).unwrap();
    assert!(!Path::new(JOURNAL).exists() && !found().contains(&"damaged-journal".to_owned()));
    assert_eq!(ksmith(&["restore", "--discard"]).1, "there is no journal to give up\n");
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}

#[test]
fn a_ksmith_at_work_is_neither_dead_nor_disturbed() {
    let Some(lock) = KernelLock::take() else { return };
    journal(true, r#""smart_scan":"1""#);
    let codes = found();
    assert!(!codes.contains(&"unrestored".to_owned()) && !codes.contains(&"switched-off".to_owned()), "{codes:?}");
    let held = Lock::take(&StateDir::of(&Root::host())).unwrap();
    fs::remove_file(JOURNAL).unwrap();
    // One that has the lock and has not noted anything yet.
    let (code, out, err) = ksmith(&["restore"]);
    assert_eq!((code, out.as_str()), (3, ""));
    let said = format!("ksmith (pid {}) is running and restores the settings when it ends", std::process::id());
    assert!(err.contains(&said), "{err}");
    assert_eq!(ksmith(&["restore", "--force"]).0, 0);
    drop(held);
    journal(false, r#""smart_scan":"1""#);
    assert!(found().contains(&"unrestored".to_owned()));
    let (code, out, err) = ksmith(&["restore"]);
    assert_eq!((code, out.as_str()), (0, "all settings restored\n"), "{err}");
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}
