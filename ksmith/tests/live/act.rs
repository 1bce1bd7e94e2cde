//! Acting on the live kernel: what it refuses, what it restores, and which programs are asked to step aside.

use crate::support;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::ksmtuned::KsmtunedProcess;
use crate::support::{KernelLock, guest, ksm, number, passes_until, wait_until, write, zero_pages};
use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_host::act::{
    ActError, ControlError, KnobWriter, KsmControl, KsmJournal, RestoreError, StateDir, UnmergeError,
    UnmergeOptions, restore, safe_sequence, unmerge,
};
use ksmith_host::other_controllers::find;
use ksmith_host::root::Root;
use ksmith_lab::{MemoryGuest, MemoryPart};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

const PAGES: usize = 4096;

fn state() -> (tempfile::TempDir, StateDir) {
    let tree = tempfile::tempdir().unwrap();
    let directory = StateDir::at(tree.path().join("state"));
    (tree, directory)
}

fn take_control(directory: &StateDir) -> KsmControl {
    KsmControl::acquire(&Root::host(), directory, false, false).unwrap()
}

/// Two guests with merged pages, and ksmd asleep.
fn merged_guests() -> [MemoryGuest; 2] {
    let parts = [MemoryPart::Equal { seed: 7, pages: PAGES }];
    let guests = [guest(&parts), guest(&parts)];
    passes_until("the guests are merged", || number("pages_sharing") >= PAGES as u64);
    guests
}

fn assert_unharmed(guests: &mut [MemoryGuest]) {
    for guest in guests {
        assert_eq!(guest.wrong_pages().unwrap(), 0);
    }
}

#[test]
fn settings_are_read_back_and_all_are_restored() {
    let Some(lock) = KernelLock::acquire() else { return };
    let (_tree, directory) = state();
    let mut control = take_control(&directory);
    let wanted = KnobSettings::none()
        .with(Knob::SmartScan, 0)
        .with(Knob::UseZeroPages, 1)
        .with(Knob::StableNodeChainsPruneMillisecs, 3000)
        .with(Knob::PagesToScan, 1234)
        .with(Knob::SleepMillisecs, 77)
        .with(Knob::Run, 1);
    let (changes, errors) = control.writer().apply(&wanted);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(changes.len(), 6);
    assert_eq!((number("pages_to_scan"), number("sleep_millisecs"), number("run")), (1234, 77, 1));
    assert!(directory.undo().exists());
    drop(control);
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
    assert!(!directory.undo().exists());
}

#[test]
fn pages_to_scan_under_the_advisor_is_refused_with_the_reason() {
    let Some(_lock) = KernelLock::acquire() else { return };
    write("advisor_mode", "scan-time");
    let pages = number("pages_to_scan");
    let mut writer = KnobWriter::new(&Root::host(), false);
    let error = writer.set(Knob::PagesToScan, 4321).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ActError::Refused { .. }), "{text}");
    assert!(text.contains("/sys/kernel/mm/ksm/pages_to_scan"), "{text}");
    assert!(text.contains("Invalid argument"), "{text}");
    assert!(text.contains("advisor is on and owns it: set advisor_mode=none"), "{text}");
    assert_eq!(number("pages_to_scan"), pages);
}

#[test]
fn the_advisor_is_taken_over_and_comes_back() {
    let Some(_lock) = KernelLock::acquire() else { return };
    write("advisor_mode", "scan-time");
    assert_eq!(number("pages_to_scan"), 500, "the advisor begins with its minimum");
    write("advisor_min_pages_to_scan", "600");
    let (_tree, directory) = state();
    let mut control = take_control(&directory);
    let wanted = KnobSettings::none()
        .with(Knob::AdvisorMinPagesToScan, 700)
        .with(Knob::AdvisorMode, 0)
        .with(Knob::PagesToScan, 50)
        .with(Knob::Run, 1);
    let (changes, errors) = control.writer().apply(&wanted);
    assert!(errors.is_empty(), "{errors:?}");
    // The kernel makes it 100 when the advisor goes off, and ours comes after that.
    assert_eq!(changes[2].to_string(), "pages_to_scan 100 -> 50");
    assert_eq!(ksm("advisor_mode"), "[none] scan-time");
    let noted = KsmJournal::open(&directory).unwrap();
    assert_eq!(noted.originals().get(Knob::PagesToScan), Some(500), "not the 100 in between");

    let restored = control.restore().unwrap();
    assert_eq!(ksm("advisor_mode"), "none [scan-time]");
    assert_eq!(number("advisor_min_pages_to_scan"), 600);
    assert_eq!(number("pages_to_scan"), 600, "the advisor begins anew with its restored minimum");
    assert_eq!(number("run"), 0);
    assert!(restored.notes[0].contains("pages_to_scan was 500"), "{:?}", restored.notes);
    write("advisor_min_pages_to_scan", "500");
}

#[test]
fn handing_over_to_the_advisor_is_undone_with_pages_to_scan() {
    let Some(lock) = KernelLock::acquire() else { return };
    write("pages_to_scan", "1111");
    let (_tree, directory) = state();
    let mut control = take_control(&directory);
    control.writer().set(Knob::AdvisorMode, 1).unwrap();
    assert_eq!(number("pages_to_scan"), 500);
    control.restore().unwrap();
    assert_eq!((ksm("advisor_mode").as_str(), number("pages_to_scan")), ("[none] scan-time", 1111));
    write("pages_to_scan", "100");
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}

#[test]
fn what_needs_nothing_merged_is_refused_and_done_by_the_safe_sequence() {
    let Some(lock) = KernelLock::acquire() else { return };
    let mut guests = merged_guests();
    let (_tree, directory) = state();
    let mut control = take_control(&directory);
    for (knob, value) in [(Knob::MaxPageSharing, 512), (Knob::MergeAcrossNodes, 0)] {
        let error = control.writer().set(knob, value).unwrap_err().to_string();
        assert!(error.contains("pages are merged") && error.contains("busy"), "{error}");
    }
    // Running, so that the sequence has something to put back.
    control.writer().set(Knob::Run, 1).unwrap();
    let changes = safe_sequence(control.writer(), Knob::MaxPageSharing, 512, UnmergeOptions::default(), |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    let changes: Vec<_> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(changes, ["run 1 -> 2", "max_page_sharing 256 -> 512", "run 2 -> 1"]);
    assert_unharmed(&mut guests);

    // The guests merge again, so restoring has to unmerge them once more.
    wait_until("the guests are merged again", || number("pages_sharing") >= PAGES as u64);
    let restored = control.restore().unwrap();
    assert!(restored.left.is_empty(), "{restored:?}");
    assert_eq!(number("max_page_sharing"), 256);
    assert_eq!(number("run"), 0);
    assert_unharmed(&mut guests);
    for knob in ["smart_scan", "pages_to_scan", "sleep_millisecs"] {
        // `clean_passes` changed these, ksmith did not.
        assert!(lock.changed_settings().iter().any(|change| change.starts_with(knob)), "{knob}");
    }
    assert_eq!(lock.changed_settings().len(), 3, "{:?}", lock.changed_settings());
}

#[test]
fn unmerging_gives_every_page_back() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let mut guests = merged_guests();
    let saved = number("pages_sharing") * 4096;
    let unmerged = unmerge(&mut KnobWriter::new(&Root::host(), false), UnmergeOptions::default(), |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!((unmerged.run_before, unmerged.returned_bytes), (0, saved));
    assert_eq!((number("run"), number("pages_shared"), number("pages_sharing")), (2, 0, 0));
    assert_unharmed(&mut guests);
}

#[test]
fn an_unmerge_that_is_broken_off_says_what_is_left() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let mut guests = merged_guests();
    let how = UnmergeOptions { patience: Duration::ZERO, ..UnmergeOptions::default() };
    let outcome = unmerge(&mut KnobWriter::new(&Root::host(), false), how, |_| ControlFlow::Break(()));
    match outcome {
        // The kernel was faster than the signal.
        Ok(_) => assert_eq!((number("run"), number("pages_sharing")), (2, 0)),
        Err(UnmergeError::Stopped { run, left_pages, why }) => {
            assert_eq!(why, "as asked");
            let merged = number("pages_shared") + number("pages_sharing");
            assert_eq!((run, left_pages), (number("run"), merged));
            assert_eq!(run, 0, "2 would say that nothing is merged");
        }
        Err(other) => panic!("{other}"),
    }
    assert_unharmed(&mut guests);
}

#[test]
fn a_host_that_was_unmerged_before_is_unmerged_again() {
    let Some(_lock) = KernelLock::acquire() else { return };
    write("run", "2");
    let (_tree, directory) = state();
    let mut control = take_control(&directory);
    let parts = [MemoryPart::Zero { pages: 16 }, MemoryPart::Equal { seed: 9, pages: PAGES }];
    let mut guests = [guest(&parts), guest(&parts)];
    let wanted = KnobSettings::none()
        .with(Knob::SmartScan, 0)
        .with(Knob::UseZeroPages, 1)
        .with(Knob::PagesToScan, 100_000)
        .with(Knob::SleepMillisecs, 1)
        .with(Knob::Run, 1);
    control.writer().apply(&wanted);
    wait_until("the guests are merged", || number("pages_sharing") >= PAGES as u64);
    let restored = control.restore().unwrap();
    assert!(restored.notes.is_empty(), "{restored:?}");
    assert_eq!(restored.changes.last().unwrap().to_string(), "run 0 -> 2");
    assert_eq!((number("run"), number("pages_sharing"), zero_pages()), (2, 0, 0));
    assert_unharmed(&mut guests);
}

/// Not a test: what `a_killed_ksmith_…` starts and kills. Changes settings, says so and waits for its end.
#[test]
#[ignore = "is started by another test"]
fn burst_until_killed() {
    let Some(directory) = std::env::var_os("KSMITH_TEST_STATE") else { return };
    let mut control = KsmControl::acquire(
        &Root::host(),
        &StateDir::at(directory),
        false,
        std::env::var_os("KSMITH_TEST_TAKE").is_some(),
    )
    .unwrap();
    let wanted = KnobSettings::none()
        .with(Knob::AdvisorMode, 0)
        .with(Knob::SmartScan, 0)
        .with(Knob::PagesToScan, 2000)
        .with(Knob::SleepMillisecs, 5)
        .with(Knob::Run, 1);
    assert!(control.writer().apply(&wanted).1.is_empty());
    println!("burst");
    loop {
        std::thread::park();
    }
}

/// A ksmith in the middle of a burst, as a process of its own.
fn bursting(directory: &StateDir, take_over: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "act::burst_until_killed", "--ignored", "--nocapture"])
        .env("KSMITH_TEST_STATE", directory.path())
        .stdout(Stdio::piped());
    if take_over {
        command.env("KSMITH_TEST_TAKE", "1");
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("burst")), "it started");
    assert_eq!(number("pages_to_scan"), 2000);
    child
}

#[test]
fn a_killed_ksmith_is_cleaned_up_after_by_restore_and_by_the_next_start() {
    let Some(lock) = KernelLock::acquire() else { return };
    let (_tree, directory) = state();
    for by_restore in [true, false].repeat(5) {
        let mut child = bursting(&directory, false);
        let journal = || KsmJournal::open(&directory).unwrap();
        let mut writer = KnobWriter::new(&Root::host(), false).with_journal(journal());
        let error = restore(&mut writer, false).unwrap_err();
        assert!(matches!(error, RestoreError::OwnerAlive { pid } if pid == child.id()), "{error}");
        let error = KsmControl::acquire(&Root::host(), &directory, false, true).unwrap_err();
        assert!(error.to_string().contains(&format!("pid {}", child.id())), "{error}");
        assert_eq!(number("pages_to_scan"), 2000, "nothing was disturbed");

        child.kill().unwrap();
        if by_restore {
            // Dead, but not collected: still in /proc.
            let pid = WaitId::Pid(Pid::from_child(&child));
            waitid(pid, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
            let mut writer = KnobWriter::new(&Root::host(), false).with_journal(journal());
            assert_eq!(restore(&mut writer, false).unwrap().changes[0].to_string(), "run 1 -> 0");
            child.wait().unwrap();
        } else {
            child.wait().unwrap();
            let control = take_control(&directory);
            assert!(
                control.notes().iter().any(|note| note == "restored smart_scan 0 -> 1"),
                "{:?}",
                control.notes()
            );
        }
        assert_eq!(lock.changed_settings(), Vec::<String>::new());
        assert!(!directory.undo().exists());
    }
}

#[test]
fn ksmtuned_is_named_paused_on_request_and_goes_on_afterwards() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let ksmtuned = KsmtunedProcess::start();
    let (_tree, directory) = state();
    let found = find(&Root::host());
    assert!(found.iter().any(|holder| holder.id.pid == ksmtuned.pid && holder.name() == "ksmtuned"), "{found:?}");

    let error = KsmControl::acquire(&Root::host(), &directory, false, false).unwrap_err();
    assert!(matches!(error, ControlError::Held(_)));
    let text = error.to_string();
    for part in [&format!("ksmtuned (pid {})", ksmtuned.pid), "systemctl disable --now ksmtuned", "--take-over"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!ksmtuned.is_paused());

    let control = KsmControl::acquire(&Root::host(), &directory, false, true).unwrap();
    wait_until("ksmtuned is paused", || ksmtuned.is_paused());
    assert!(control.notes()[0].contains("is paused until"), "{:?}", control.notes());
    drop(control);
    wait_until("ksmtuned goes on", || !ksmtuned.is_paused());
    assert!(!directory.undo().exists());
}

#[test]
fn ksmtuned_goes_on_after_its_pauser_was_killed() {
    let Some(lock) = KernelLock::acquire() else { return };
    let ksmtuned = KsmtunedProcess::start();
    let (_tree, directory) = state();
    let mut child = bursting(&directory, true);
    wait_until("ksmtuned is paused", || ksmtuned.is_paused());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ksmtuned.is_paused());
    let journal = KsmJournal::open(&directory).unwrap();
    let restored = restore(&mut KnobWriter::new(&Root::host(), false).with_journal(journal), false).unwrap();
    assert_eq!(restored.notes, [format!("ksmtuned (pid {}) continues", ksmtuned.pid)]);
    wait_until("ksmtuned goes on", || !ksmtuned.is_paused());
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}

#[test]
fn with_a_full_disk_for_the_journal_what_is_noted_is_restored_and_nothing_else_is_written() {
    let Some(lock) = KernelLock::acquire() else { return };
    let tree = tempfile::tempdir().unwrap();
    let mounted = |arguments: &[&str]| {
        Command::new(arguments[0]).args(&arguments[1..]).arg(tree.path()).status().unwrap().success()
    };
    if !mounted(&["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs"]) {
        support::skipped("no tmpfs can be mounted");
        return;
    }
    let directory = StateDir::at(tree.path().join("state"));
    let mut control = take_control(&directory);
    control.writer().set(Knob::SleepMillisecs, 33).unwrap();
    let mut filler = 0;
    while std::fs::write(tree.path().join(format!("filler-{filler}")), [1; 4096]).is_ok() {
        filler += 1;
    }
    let error = control.writer().set(Knob::PagesToScan, 555).unwrap_err().to_string();
    let noted = control.writer().set(Knob::SleepMillisecs, 34);
    drop(control);
    assert!(mounted(&["umount"]));
    assert!(noted.is_ok(), "{noted:?}");
    assert!(error.contains("pages_to_scan was not changed") && error.contains("No space left"), "{error}");
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}
