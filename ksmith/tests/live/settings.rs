//! Commands that change settings on the live kernel, and what one that was killed or is at work means to the others.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::ksmtuned::KsmtunedProcess;
use crate::support::program::{RunningProgram, ksmith};
use crate::support::settings::{SavedSettings, in_use, now};
use crate::support::{KernelLock, UNDO, guest, ksm, number, passes_until, wait_until, write};
use ksmith_host::act::{KsmLock, StateDir};
use ksmith_host::root::Root;
use ksmith_lab::{MemoryGuest, MemoryPart};
use rustix::process::Signal;
use serde_json::Value;

/// A journal of this process, or of one that ended long ago.
fn journal(is_alive: bool, knob: &str, original: &str) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let start: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let start = if is_alive { start } else { start + 1 };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let (pid, boot) = (std::process::id(), boot.trim());
    let text = format!(
        r#"{{"version":1,"owner":{{"pid":{pid},"start_ticks":{start}}},"boot_id":"{boot}",
            "entries":[{{"entry":"setting","knob":"{knob}","original":"{original}"}}]}}"#
    );
    put(&text);
}

fn put(text: &str) {
    // Made as ksmith makes it, for root alone.
    drop(KsmLock::acquire(&StateDir::from_root(&Root::host())).unwrap());
    fs::write(UNDO, text).unwrap();
}

/// The codes of what the doctor finds.
fn found() -> Vec<String> {
    let findings: Value = serde_json::from_str(&ksmith(&["doctor", "--json"]).1).unwrap();
    findings["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_damaged_journal_stops_every_command_until_it_is_given_up() {
    let Some(lock) = KernelLock::acquire() else { return };
    put("{");
    assert!(found().contains(&"damaged-journal".to_owned()), "{:?}", found());
    for arguments in [&["daemon"][..], &["scan"], &["restore"], &["restore", "--dry-run"]] {
        let (code, out, err) = ksmith(arguments);
        assert_eq!((code, out.as_str()), (3, ""), "{arguments:?}: {err}");
        assert!(err.contains(UNDO) && err.contains("ksmith restore --discard"), "{arguments:?}: {err}");
        assert_eq!(fs::read_to_string(UNDO).unwrap(), "{");
    }
    let (code, out, err) = ksmith(&["restore", "--discard"]);
    assert_eq!(code, 0, "{err}");
    let aside = out.trim_end().rsplit_once(' ').unwrap().1;
    assert_eq!(fs::read_to_string(aside).unwrap(), "{");
    fs::remove_file(aside).unwrap();
    assert!(!Path::new(UNDO).exists() && !found().contains(&"damaged-journal".to_owned()));
    assert_eq!(ksmith(&["restore", "--discard"]).1, "there is no journal to discard\n");
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}

#[test]
fn a_ksmith_at_work_is_neither_dead_nor_disturbed() {
    let Some(lock) = KernelLock::acquire() else { return };
    journal(true, "smart_scan", "1");
    let codes = found();
    assert!(!codes.contains(&"unrestored".to_owned()) && !codes.contains(&"switched-off".to_owned()), "{codes:?}");
    let held = KsmLock::acquire(&StateDir::from_root(&Root::host())).unwrap();
    fs::remove_file(UNDO).unwrap();
    // One that has the lock and has not noted anything yet.
    let (code, out, err) = ksmith(&["restore"]);
    assert_eq!((code, out.as_str()), (3, ""));
    let said = format!("ksmith (pid {}) is running and restores the settings when it ends", std::process::id());
    assert!(err.contains(&said), "{err}");
    assert_eq!(ksmith(&["restore", "--force"]).0, 0);
    drop(held);
    journal(false, "smart_scan", "1");
    assert!(found().contains(&"unrestored".to_owned()));
    let (code, out, err) = ksmith(&["restore"]);
    assert_eq!((code, out.as_str()), (0, "all settings restored\n"), "{err}");
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}

#[test]
fn what_a_killed_one_left_is_restored_before_anything_is_set() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let sleep = number("sleep_millisecs");
    for (arguments, name, then) in [
        (&["set", "sleep_millisecs=77"][..], "sleep_millisecs", 77),
        (&["enable"], "run", 1),
        (&["disable"], "run", 0),
        (&["unmerge"], "run", 2),
    ] {
        write("sleep_millisecs", "5");
        write("run", "0");
        journal(false, "sleep_millisecs", &sleep.to_string());
        let (code, _, err) = ksmith(arguments);
        assert_eq!(code, 0, "{arguments:?}: {err}");
        assert!(err.contains(&format!("restored sleep_millisecs 5 -> {sleep}")), "{arguments:?}: {err}");
        assert!(!Path::new(UNDO).exists(), "{arguments:?}");
        assert_eq!(ksmith(&["restore"]).0, 0);
        assert_eq!(number(name), then, "{arguments:?}: restoring does not undo it");
    }
    assert_eq!(number("sleep_millisecs"), sleep);
}

#[test]
fn a_program_that_will_overwrite_a_setting_is_named() {
    let Some(_lock) = KernelLock::acquire() else { return };
    assert!(!ksmith(&["set", "sleep_millisecs=78"]).2.contains("overwrite"));
    let ksmtuned = KsmtunedProcess::start();
    for arguments in [&["set", "sleep_millisecs=77"][..], &["enable"], &["disable"]] {
        let (code, _, err) = ksmith(arguments);
        assert_eq!(code, 0, "{err}");
        let said = format!("ksmtuned (pid {}) controls KSM too and will overwrite this", ksmtuned.pid);
        assert!(err.contains(&said) && err.contains("systemctl disable --now ksmtuned"), "{arguments:?}: {err}");
    }
}

/// Pages of each guest: unmerging takes a few tenths of a second.
const BIG: usize = 98_304;

/// A `set` that unmerges two big guests, at the moment when it has noted what it must undo.
fn in_the_middle(guests: &mut [MemoryGuest]) -> RunningProgram {
    passes_until("the guests are merged", || number("pages_sharing") >= BIG as u64);
    for guest in guests {
        assert_eq!(guest.wrong_pages().unwrap(), 0);
    }
    write("run", "1");
    let other = if number("max_page_sharing") == 256 { 512 } else { 256 };
    let set = RunningProgram::start(&["set", &format!("max_page_sharing={other}"), "--force"]);
    let started = Instant::now();
    while !Path::new(UNDO).exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "it notes what it must undo: {}", set.log());
    }
    set
}

#[test]
fn a_setting_that_is_broken_off_leaves_ksmd_at_work() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let parts = [MemoryPart::Equal { seed: 21, pages: BIG }];
    let mut guests = [guest(&parts), guest(&parts)];
    // The kernel may be faster than a signal: until each signal has come in time once.
    for signal in [Signal::INT, Signal::TERM] {
        let was_in_time = (0..8).any(|_| {
            let mut set = in_the_middle(&mut guests);
            set.signal(signal);
            let code = set.wait().code().expect("it is not ended by the signal");
            assert!(
                code == 0 || code == 1 && set.log().contains("unmerging was stopped as asked"),
                "{}",
                set.log()
            );
            assert_eq!(number("run"), 1);
            assert!(!Path::new(UNDO).exists());
            code == 1
        });
        assert!(was_in_time, "none of eight was broken off");
    }
    let has_left_something = (0..8).any(|_| {
        let set = in_the_middle(&mut guests);
        set.kill();
        let is_left = Path::new(UNDO).exists();
        // The child that unmerges is killed with it: a write of its own that came later would undo this.
        wait_until("it can be restored", || ksmith(&["restore"]).0 == 0);
        assert_eq!(number("run"), 1);
        assert!(!Path::new(UNDO).exists());
        is_left
    });
    assert!(has_left_something, "none of eight left anything to restore");
    for guest in &mut guests {
        assert_eq!(guest.wrong_pages().unwrap(), 0);
    }
}

#[test]
fn what_was_there_before_a_test_harms_it_not_and_is_put_back() {
    let Some(_ksm) = KernelLock::acquire() else { return };
    let settings = || (ksm("sleep_millisecs"), ksm("smart_scan"), ksm("run"));
    let is = |sleep: &str, smart: &str, run: &str| (sleep.to_owned(), smart.to_owned(), run.to_owned());
    write("sleep_millisecs", "86400000");
    write("smart_scan", "0");
    journal(false, "sleep_millisecs", "20");
    write("run", "1");
    assert_eq!(in_use(&now()), None, "a ksmith that was killed has left it");
    let before = SavedSettings::with_defaults_set();
    assert_eq!(settings(), is("20", "1", "0"));
    assert!(!fs::exists(UNDO).unwrap());
    drop(before);
    assert_eq!(settings(), is("86400000", "0", "0"), "but ksmd is not set going");
    assert!(fs::exists(UNDO).unwrap());

    journal(true, "sleep_millisecs", "20");
    let why = in_use(&now()).unwrap();
    assert!(why.contains(&format!("ksmith {} is in charge", std::process::id())), "{why}");
    fs::remove_file(UNDO).unwrap();
    assert_eq!(in_use(&now()), None);
    write("run", "1");
    assert!(in_use(&now()).unwrap().contains("run=1"));
}
