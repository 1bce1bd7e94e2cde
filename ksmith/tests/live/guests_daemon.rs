//! The daemon's view of guests: it lists hundreds, switches off those that only cost, and gives them back.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::fold_stress::restorer::hurry_khugepaged;
use crate::support::program::{RunningProgram, SOCKET, config_file, ksmith, status};
use crate::support::vm::{FILLED_PAGES, PAGE, QemuProcess, content, has};
use crate::support::{
    A_HANDFUL, KernelLock, UNDO, guest, lost_zero_pages, number, skipped, wait_until, wait_within,
};
use ksmith_core::kernel::SmapsRollup;
use ksmith_lab::MemoryPart;
use ksmith_service::control::ControlClient;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

/// Settings held for as long as the daemon runs.
const SCANNING: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\n\
    settings = { pages_to_scan = 20000, sleep_millisecs = 5, smart_scan = 0, run = 1 }\n";
const PARKED: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { run = 0 }\n";
const APART: &str = "[domains]\nmode = \"one\"\nadmit = \"own\"\ndefault = \"own\"\n[[domains.rule]]\ndomain = \"other\"\n\
                     name = \"costly\"\n";
const PRUNING: &str = "[guests]\nprune = true\n";

/// Figures must stand for half a minute, and huge pages are put together only when no other program wants the CPU.
const PATIENCE: Duration = Duration::from_secs(240);

fn guests() -> Value {
    let (code, out, err) = ksmith(&["guests", "--json"]);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

fn sum(report: &Value) -> u64 {
    let rows = report["guests"].as_array().unwrap();
    let saved: u64 = rows.iter().map(|row| row["saved_bytes"].as_u64().unwrap()).sum();
    saved + report["unattributed_bytes"].as_u64().unwrap()
}

#[test]
fn a_thousand_guests_are_all_listed() {
    let Some(_lock) = KernelLock::acquire() else { return };
    // Two pipes lead to each; a program may have 1024 descriptors at first.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let many: Vec<_> = (0..1000).map(|_| guest(&[MemoryPart::Equal { seed: 3, pages: 4 }])).collect();
    let daemon = RunningProgram::daemon(SCANNING, &[]);
    wait_until("all have merged", || number("pages_sharing") + A_HANDFUL >= 999 * 4);
    wait_until("all are listed", || {
        let report = guests();
        let pids: Vec<u64> =
            report["guests"].as_array().unwrap().iter().map(|row| row["pids"][0].as_u64().unwrap()).collect();
        assert_eq!(sum(&report), report["saved_bytes"].as_u64().unwrap());
        many.iter().all(|guest| pids.contains(&guest.pid().into()))
    });
    daemon.end();
}

#[test]
fn the_column_adds_up_to_what_status_says() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let _guests: Vec<_> = (0..3).map(|_| guest(&[MemoryPart::Equal { seed: 9, pages: 1024 }])).collect();
    let first = RunningProgram::daemon(SCANNING, &[]);
    wait_until("they have merged", || number("pages_sharing") == 2 * 1024);
    first.end();
    let daemon = RunningProgram::daemon(PARKED, &[]);
    let report = guests();
    // It has never seen the host without merged pages, and can't know what the kernel has lost count of.
    assert_eq!(sum(&report), (2 * 1024 + lost_zero_pages()) * PAGE as u64);
    assert_eq!(sum(&report), status().unwrap()["saved_bytes"].as_u64().unwrap());
    daemon.end();
}

/// Returns true if a guest's RAM, of 64 MiB, is offered to KSM.
fn is_offered(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mut size = 0;
    text.lines().any(|line| {
        if let Some(rest) = line.strip_prefix("Size:") {
            size = rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        }
        size >= 32_768 && line.starts_with("VmFlags:") && line.split(' ').any(|flag| flag == "mg")
    })
}

#[test]
fn a_guest_that_only_costs_is_switched_off_and_comes_back_when_the_daemon_ends() {
    if !has("qemu-system-x86_64") {
        return;
    }
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (content(directory.path(), 21), content(directory.path(), 22));
    let more = format!("loader,file={},addr=0x2000000,force-raw=on", two.display());
    // 32 MiB that no other guest has: half a megabyte of metadata for nothing.
    // Without the 2 MiB of ACPI tables: they are empty but for a few, which saves more than that where they are not in a huge page.
    let options = ["-device", &more, "-machine", "pc,acpi=off"];
    let qemu = QemuProcess::start(directory.path(), "costly", Some(&one), &options);
    // QEMU answers before its memory is laid out as it will stay.
    wait_until("its memory is offered", || is_offered(qemu.pid()));
    let daemon = RunningProgram::daemon(&format!("{SCANNING}{PRUNING}prune_after_passes = 2\n"), &[]);
    daemon.wait_for("merging off: it cost");
    wait_until("it is switched off", || !is_offered(qemu.pid()));
    assert!(std::fs::read_to_string(UNDO).unwrap().contains("costly"));
    let report = guests();
    let row = report["guests"].as_array().unwrap().iter().find(|row| row["pids"][0] == qemu.pid()).cloned();
    assert!(row.is_some(), "it is listed all the same: {report}");
    let log = daemon.end();
    assert!(log.contains(&format!("merging of costly (pid {}) is on again", qemu.pid())), "{log}");
    assert!(is_offered(qemu.pid()) && !Path::new(UNDO).exists());

    // After SIGKILL `ksmith restore` does it, whatever it was switched off for: here at once, for its domain.
    let (_file, config) = config_file(&format!("{SCANNING}{APART}"));
    let mut daemon = RunningProgram::start(&["daemon", "--config", &config]);
    daemon.wait_ready();
    wait_until("it is switched off", || !is_offered(qemu.pid()));
    daemon.kill();
    let (code, out, err) = ksmith(&["restore"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("merging of costly") && is_offered(qemu.pid()), "{out}");
    assert!(!Path::new(UNDO).exists());
}

/// Huge pages' worths that a guest is filled with.
const FILLED: usize = 48;

/// The content of a guest of which merging saves one page in each huge page, and so splits all of them.
fn content_for_splits(directory: &Path) -> PathBuf {
    let path = directory.join("splits");
    let mut bytes =
        std::fs::read(content(directory, 31)).unwrap().repeat(FILLED * (2 << 20) / (FILLED_PAGES * PAGE));
    for (number, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
        // No two pages are equal but the first ones of each huge page.
        let own = if number % 512 == 0 { u64::MAX } else { number as u64 };
        page[..8].copy_from_slice(&own.to_ne_bytes());
        if number % 512 == 0 {
            page[8..].fill(7);
        }
    }
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Bytes of that guest's content.
const FILLED_BYTES: u64 = (FILLED * (2 << 20)) as u64;

/// Starts a guest with such content, in huge pages. `None`, said loudly, if the kernel gives none.
fn guest_for_splits(directory: &Path) -> Option<QemuProcess> {
    let loader = format!("loader,file={},addr=0x1000000,force-raw=on", content_for_splits(directory).display());
    let options = ["-m", "256", "-device", &loader, "-machine", "pc,acpi=off"];
    let qemu = QemuProcess::start(directory, "splits", None, &options);
    wait_until("its memory is offered", || is_offered(qemu.pid()));
    // Where memory is in pieces, khugepaged puts huge pages together.
    let _hurried = hurry_khugepaged();
    let started = Instant::now();
    while huge_bytes(qemu.pid()) < FILLED_BYTES {
        if started.elapsed() > PATIENCE {
            skipped("the kernel gave QEMU no huge pages");
            return None;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Some(qemu)
}

fn huge_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    SmapsRollup::parse(&text).unwrap().anon_huge.unwrap()
}

#[test]
fn a_guest_of_which_merging_splits_all_for_little_is_switched_off_and_put_together() {
    if !has("qemu-system-x86_64") {
        return;
    }
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let Some(qemu) = guest_for_splits(directory.path()) else { return };
    let pid = qemu.pid();
    // Else its metadata, which is more than what it saves, is a reason too.
    let daemon = RunningProgram::daemon(&format!("{SCANNING}{PRUNING}prune_after_passes = 1000000\n"), &[]);
    let mut least = u64::MAX;
    let says = |text: &str| daemon.log().contains(text);
    wait_within(PATIENCE, "it is switched off for its splits", || {
        least = least.min(huge_bytes(pid));
        says("merging off: merging saves") && !is_offered(pid)
    });
    assert!(least < FILLED_BYTES / 2, "its huge pages were split: {least}");
    let report = guests();
    let row = report["guests"].as_array().unwrap().iter().find(|row| row["pids"][0] == pid).unwrap();
    assert_eq!(row["switched_off"], "splits", "{report}");
    wait_within(PATIENCE, "it is put together", || {
        says("are in huge pages again") && huge_bytes(pid) >= FILLED_BYTES
    });
    assert!(std::fs::read_to_string(UNDO).unwrap().contains("splits"));
    let log = daemon.end();
    assert!(log.contains(&format!("merging of splits (pid {pid}) is on again")), "{log}");
    assert!(is_offered(pid) && !Path::new(UNDO).exists());
}

/// Started, switched and ended by others: the daemon's list follows before its next look.
#[test]
fn the_daemon_sees_starts_switches_and_exits_at_once() {
    if !has("qemu-system-x86_64") {
        return;
    }
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let daemon = RunningProgram::daemon(PARKED, &[]);
    let row = |pid: u32| {
        let report = ControlClient::connect(SOCKET.as_ref()).unwrap().guests().unwrap();
        report.guests.into_iter().find(|guest| guest.id().pid() == pid)
    };
    let qemu = QemuProcess::start(directory.path(), "swift", None, &[]);
    let started = Instant::now();
    wait_until("it is listed", || row(qemu.pid()).is_some());
    let listed = started.elapsed();
    wait_until("its monitor has told", || row(qemu.pid()).is_some_and(|guest| guest.offered == Some(true)));
    let pid = qemu.pid().to_string();
    for (word, on) in [("off", false), ("on", true)] {
        let (code, _, err) = ksmith(&["merge", word, &pid]);
        assert_eq!(code, 0, "{err}");
        // Not some time: the very next answer.
        assert_eq!(row(qemu.pid()).unwrap().offered, Some(on), "{word}");
    }
    let pid = qemu.pid();
    drop(qemu);
    let ended = Instant::now();
    wait_until("it is gone", || row(pid).is_none());
    // Not judged: figures for the log. Counted from when QEMU served QMP, and from its end.
    eprintln!("listed after {listed:?}, gone after {:?}", ended.elapsed());
    daemon.end();
}
