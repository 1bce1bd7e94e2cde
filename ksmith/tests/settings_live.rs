//! Commands that change settings on the live kernel, and what one that was killed or is at work means to the others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ksmith::act::{Lock, StateDir};
use ksmith::lab::{MemoryGuest, Part};
use ksmith::root::Root;
use rustix::process::Signal;
use serde_json::Value;
use support::ksmtuned::Ksmtuned;
use support::program::{Running, ksmith};
use support::{KernelLock, guest, number, passes_until, wait_until, write};

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

#[test]
fn what_a_killed_one_left_is_restored_before_anything_is_set() {
    let Some(_lock) = KernelLock::take() else { return };
    let sleep = number("sleep_millisecs");
    for (arguments, name, then) in [
        (&["set", "sleep_millisecs=77"][..], "sleep_millisecs", 77),
        (&["enable"], "run", 1),
        (&["disable"], "run", 0),
        (&["unmerge"], "run", 2),
    ] {
        write("sleep_millisecs", "5");
        write("run", "0");
        journal(false, &format!(r#""sleep_millisecs":"{sleep}""#));
        let (code, _, err) = ksmith(arguments);
        assert_eq!(code, 0, "{arguments:?}: {err}");
        assert!(err.contains(&format!("restored sleep_millisecs 5 -> {sleep}")), "{arguments:?}: {err}");
        assert!(!Path::new(JOURNAL).exists(), "{arguments:?}");
        assert_eq!(ksmith(&["restore"]).0, 0);
        assert_eq!(number(name), then, "{arguments:?}: restoring does not undo it");
    }
    assert_eq!(number("sleep_millisecs"), sleep);
}

#[test]
fn whoever_will_overwrite_a_setting_is_named() {
    let Some(_lock) = KernelLock::take() else { return };
    assert!(!ksmith(&["set", "sleep_millisecs=78"]).2.contains("overwrite"));
    let ksmtuned = Ksmtuned::start();
    for arguments in [&["set", "sleep_millisecs=77"][..], &["enable"], &["disable"]] {
        let (code, _, err) = ksmith(arguments);
        assert_eq!(code, 0, "{err}");
        let said = format!("ksmtuned (pid {}) controls KSM too and will overwrite this", ksmtuned.pid);
        assert!(err.contains(&said) && err.contains("systemctl stop ksmtuned"), "{arguments:?}: {err}");
    }
}

/// Pages of each guest: unmerging takes a good part of a second.
const BIG: usize = 65_536;

/// A `set` that unmerges two big guests, at the moment when it has noted what it must undo.
fn in_the_middle(guests: &mut [MemoryGuest]) -> Running {
    passes_until("the guests are merged", || number("pages_sharing") >= BIG as u64);
    for guest in guests {
        assert_eq!(guest.wrong_pages().unwrap(), 0);
    }
    write("run", "1");
    let other = if number("max_page_sharing") == 256 { 512 } else { 256 };
    let set = Running::start(&["set", &format!("max_page_sharing={other}"), "--force"]);
    let started = Instant::now();
    while !Path::new(JOURNAL).exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "it notes what it must undo: {}", set.log());
    }
    set
}

#[test]
fn a_setting_that_is_broken_off_leaves_ksmd_at_work() {
    let Some(_lock) = KernelLock::take() else { return };
    let parts = [Part::Equal { seed: 21, pages: BIG }];
    let mut guests = [guest(&parts), guest(&parts)];
    let mut broken_off = 0;
    for signal in [Signal::INT, Signal::TERM, Signal::INT, Signal::TERM] {
        let mut set = in_the_middle(&mut guests);
        set.signal(signal);
        let code = set.wait().code().expect("it is not ended by the signal");
        if code == 1 {
            assert!(set.log().contains("unmerging was stopped as asked"), "{}", set.log());
            broken_off += 1;
        } else {
            // The kernel was faster than the signal.
            assert_eq!(code, 0, "{}", set.log());
        }
        assert_eq!(number("run"), 1);
        assert!(!Path::new(JOURNAL).exists());
    }
    assert!(broken_off > 0, "none of four was broken off");

    let mut left = 0;
    for _ in 0..4 {
        let set = in_the_middle(&mut guests);
        set.kill();
        left += u32::from(Path::new(JOURNAL).exists());
        // The child that unmerges lives on until it is done, and holds the lock.
        wait_until("it can be restored", || ksmith(&["restore"]).0 == 0);
        assert_eq!(number("run"), 1);
        assert!(!Path::new(JOURNAL).exists());
    }
    assert!(left > 0, "none of four left anything to restore");
    for guest in &mut guests {
        assert_eq!(guest.wrong_pages().unwrap(), 0);
    }
}
