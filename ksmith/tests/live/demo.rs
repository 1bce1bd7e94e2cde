//! The main job from end to end: `ksmith demo` on the live kernel, and its simulated twin.

use std::fs;
use std::os::unix::process::CommandExt;

use crate::support::program::{RunningProgram, ksmith};
use crate::support::{KernelLock, UNDO, guest, ksm, number, offering, passes_until, wait_until, write, zero_pages};
use ksmith_host::root::Root;
use ksmith_lab::{GuestPages, MemoryPart};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

/// The demo's guests that are there: no other program's children are called so.
fn guests() -> Vec<u32> {
    let is_guest = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).nth(1) == Some(b"memory-guest"))
    };
    offering().into_iter().filter(is_guest).collect()
}

fn nothing_is_left(lock: &KernelLock) {
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
    wait_until("the guests are gone", || guests().is_empty());
    assert!(!fs::exists(UNDO).unwrap(), "the journal is done with");
}

#[test]
fn the_demo_saves_what_can_be_saved_and_leaves_no_trace() {
    let Some(lock) = KernelLock::acquire() else { return };
    let (code, out, err) = ksmith(&["demo", "--json"]);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let pages = if GuestPages::Huge.are_given(&Root::host()) { "huge" } else { "small" };
    assert_eq!((&report["mode"], &report["pages"]), (&"live".into(), &pages.into()));
    let figure = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {report}"));
    // 96 MiB each: half equal in four, a tenth empty in four, an eighth equal in two.
    let expected = 96.0 * 1_048_576.0 * (0.5 * 3.0 + 0.1 * 4.0 + 0.125);
    assert!((figure("mergeable_bytes") / expected - 1.0).abs() < 0.01, "{report}");
    assert!(figure("saved_bytes") >= 0.95 * figure("mergeable_bytes"), "{report}");
    assert!(figure("saved_bytes") <= figure("mergeable_bytes"), "more than there is: {report}");
    for key in ["seconds_to_90", "late_seconds_to_90", "ksmd_cpu_seconds", "ksmith_cpu_seconds", "ksmith_rss_bytes"]
    {
        assert!(figure(key) > 0.0, "{key}: {report}");
    }
    assert_eq!((&report["wrong_pages"], &report["restored"]), (&0.into(), &true.into()), "{report}");
    assert_eq!((number("pages_sharing"), zero_pages()), (0, 0), "the next demo begins at zero");
    nothing_is_left(&lock);
}

/// Returns the report of a successful `ksmith demo --size 16 --pages small`.
fn small_demo() -> Value {
    let (code, out, err) = ksmith(&["demo", "--json", "--size", "16", "--pages", "small"]);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn what_ended_processes_have_left_in_the_gauges_is_no_use() {
    let Some(lock) = KernelLock::acquire() else { return };
    let parts = [MemoryPart::Equal { seed: 6, pages: 4096 }];
    let guests = [guest(&parts), guest(&parts)];
    passes_until("the guests are merged", || number("pages_sharing") >= 4096);
    drop(guests);
    assert!(number("pages_sharing") >= 4096, "with ksmd stopped the gauges stay");
    write("smart_scan", "1");
    write("pages_to_scan", "100");
    write("sleep_millisecs", "20");
    let report = small_demo();
    assert!(report["saved_bytes"].as_u64() <= report["mergeable_bytes"].as_u64(), "{report}");
    nothing_is_left(&lock);
}

#[test]
fn the_kernels_advisor_comes_back_after_the_demo() {
    let Some(_lock) = KernelLock::acquire() else { return };
    write("advisor_mode", "scan-time");
    write("advisor_min_pages_to_scan", "700");
    // Back from where the advisor goes to: it begins anew with the new minimum only when switched on.
    assert_ne!(number("pages_to_scan"), 700);
    assert_eq!(small_demo()["restored"], true);
    assert_eq!((ksm("advisor_mode").as_str(), number("pages_to_scan")), ("none [scan-time]", 700));
}

#[test]
fn guests_that_do_not_fit_are_refused() {
    let Some(lock) = KernelLock::acquire() else { return };
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.strip_suffix(" kB"));
    let mib: u64 = available.unwrap().trim().parse::<u64>().unwrap() / 1024;
    let size = (mib / 4 + 1).to_string();
    for force in [&[][..], &["--force"]] {
        let (code, out, err) = ksmith(&[&["demo", "--json", "--size", &size], force].concat());
        assert_eq!((code, out.as_str()), (3, ""), "{err}");
        assert!(err.contains("the host is to keep 512 MiB") && err.contains("fits"), "{err}");
    }
    nothing_is_left(&lock);
}

#[test]
fn an_interrupted_demo_restores_and_ends_its_guests() {
    let Some(lock) = KernelLock::acquire() else { return };
    // Ctrl-C reaches the whole group, the guests too; `kill` reaches ksmith alone.
    for (signal, to_group) in [(Signal::INT, true), (Signal::INT, false), (Signal::TERM, false)] {
        let mut demo = RunningProgram::start_with(&["demo", "--size", "32"], |command| {
            command.process_group(0);
        });
        wait_until("ksmd is at work", || number("run") == 1 && !guests().is_empty());
        assert!(!lock.changed_settings().is_empty());
        if to_group {
            kill_process_group(Pid::from_raw(i32::try_from(demo.pid()).unwrap()).unwrap(), signal).unwrap();
        } else {
            demo.signal(signal);
        }
        let ended = demo.wait();
        assert_eq!(ended.code(), Some(1), "{ended:?}: {}", demo.log());
        assert!(demo.log().contains("interrupted; the settings are being restored"), "{}", demo.log());
        nothing_is_left(&lock);
    }
}

#[test]
fn a_killed_demo_leaves_no_guest_and_restore_does_the_rest() {
    let Some(lock) = KernelLock::acquire() else { return };
    let demo = RunningProgram::start(&["demo", "--size", "32"]);
    wait_until("ksmd is at work", || number("run") == 1 && !guests().is_empty());
    demo.kill();
    wait_until("the guests are gone", || guests().is_empty());
    assert!(!lock.changed_settings().is_empty(), "nothing is restored yet");
    let (code, out, err) = ksmith(&["restore"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.ends_with("all settings restored\n"), "{out}");
    nothing_is_left(&lock);
}

#[test]
fn a_host_in_use_is_not_disturbed() {
    let Some(lock) = KernelLock::acquire() else { return };
    let refused = |why: &str| {
        let (code, out, err) = ksmith(&["demo", "--json"]);
        assert_eq!((code, out.as_str()), (3, ""), "{err}");
        assert!(err.contains(why) && err.contains("--simulated, or --force"), "{err}");
    };
    write("run", "1");
    refused("KSM is in use on this host");
    assert_eq!(number("run"), 1);
    write("run", "0");

    // Together more than one guest of the demo has.
    let parts = [MemoryPart::Equal { seed: 5, pages: 4096 }, MemoryPart::Unique { pages: 4096 * 3 }];
    let mut guests = [guest(&parts), guest(&parts)];
    refused("offer it to KSM");
    assert_eq!(lock.changed_settings(), Vec::<String>::new());

    passes_until("the guests are merged", || number("pages_sharing") >= 4096);
    let saved = number("pages_sharing");
    refused("KSM is in use on this host");
    assert_eq!(number("pages_sharing"), saved);
    for guest in &mut guests {
        assert_eq!(guest.wrong_pages().unwrap(), 0);
    }
    // With --force the demo runs all the same, and what others saved counts on small pages.
    let arguments = ["demo", "--json", "--force", "--size", "16", "--pages", "small"];
    let (code, out, err) = ksmith(&arguments);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert!(report["saved_bytes"].as_u64().unwrap() >= saved * 4096, "{report}");
    for guest in &mut guests {
        assert_eq!(guest.wrong_pages().unwrap(), 0);
    }
}

#[test]
fn a_simulated_demo_says_so_wherever_there_is_a_figure() {
    let (code, out, err) = ksmith(&["demo", "--simulated"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let figures: Vec<&str> = out.lines().filter(|line| line.contains(|c: char| c.is_ascii_digit())).collect();
    assert!(figures.len() > 8, "{out}");
    for line in figures {
        assert!(line.contains("SIMULATED"), "{line:?} shows a figure as if it were real");
    }
    let (code, out, err) = ksmith(&["demo", "--simulated", "--json"]);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["mode"], &report["restored"]), (&"simulated".into(), &true.into()));
    assert_eq!(report["pages"], "huge");
    assert!(
        report["saved_bytes"].as_f64().unwrap() >= 0.95 * report["mergeable_bytes"].as_f64().unwrap(),
        "{report}"
    );
}
