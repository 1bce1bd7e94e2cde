//! Exclusive use of the machine's one KSM for tests on the live kernel, and its settings put back.
//!
//! This restores by its own plain writes and not by ksmith's, so that a fault in ksmith's restoring shows.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

pub mod attack;
pub mod image;
pub mod ksmtuned;
pub mod linux;
pub mod own;
pub mod page_commands;
pub mod pool;
pub mod program;
pub mod qmp;
pub mod serve;
pub mod settings;
pub mod spoof;
pub mod tmux;
pub mod units;
pub mod vm;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ksmith_core::kernel::PidStat;
use ksmith_core::sample::ProcessId;
use ksmith_host::guests::{GuestTracker, LibvirtUri};
use ksmith_host::root::Root;
use ksmith_lab::{GuestContents, MemoryGuest, MemoryPart};
use ksmith_service::balance::{ActuatorError, MemoryActuator, MemoryLedger, actuator};

use self::settings::{SavedSettings, Settings};

pub const KSM: &str = "/sys/kernel/mm/ksm";
const LOCK: &str = "/run/lock/ksmith-kernel.lock";

/// `ksm_zero_pages` while no process offers memory.
static ZERO_PAGES_AT_FIRST: AtomicI64 = AtomicI64::new(0);

/// The identity of a running process.
pub fn process_id(pid: u32) -> ProcessId {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    ProcessId { pid, start_ticks: PidStat::parse(&text).unwrap().start_ticks }
}

/// The way by which balance resizes a running guest.
pub fn actuator_of(pid: u32, name: &str, ledger: &MemoryLedger) -> Result<Box<dyn MemoryActuator>, ActuatorError> {
    let target =
        GuestTracker::new(Root::host(), LibvirtUri::default()).target_by_id(process_id(pid).into()).unwrap();
    actuator(&Root::host(), &target, name, ledger)
}

/// Reports that a test ends without having tested anything. By a plain write: the test harness swallows what
/// `eprintln!` says in a test that passes. `make test` counts these lines.
#[allow(clippy::disallowed_methods, reason = "a test's own words")]
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED, nothing was tested: {why}");
}

/// Returns the directory in which `make target/guest-kernel` unpacks a kernel for guests of QEMU.
pub fn guest_kernel() -> PathBuf {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/guest-kernel");
    std::env::var_os("GUEST_KERNEL").map_or(usual, PathBuf::from)
}

/// The machine's KSM, for one test at a time over all processes.
pub struct KernelLock {
    settings: Settings,
    // Dropped in this order: what was there before is back when the next test may go on.
    _before: SavedSettings,
    _file: File,
}

impl KernelLock {
    /// Waits for the lock. `None`, said loudly, where there is no KSM that a test may use: then the test ends
    /// having shown nothing.
    pub fn acquire() -> Option<Self> {
        if let Err(why) = OpenOptions::new().write(true).open(Path::new(KSM).join("run")) {
            skipped(&format!("{KSM}/run can't be written ({why})"));
            return None;
        }
        let file = wait_for_lock().expect("the kernel lock");
        if let Some(why) = settings::in_use(&settings::now()) {
            skipped(&why);
            return None;
        }
        // Another test's guests may be on their way out. Other memory would merge along and be counted.
        let started = Instant::now();
        while !offering().is_empty() && started.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
        }
        if !offering().is_empty() {
            skipped(&format!("processes {:?} offer memory to KSM", offering()));
            return None;
        }
        if number("pages_shared") > 0 && !is_anything_merged() {
            // What ended processes left: with ksmd stopped the gauges keep it until it is unmerged.
            write("run", "2");
            write("run", "0");
        }
        if number("pages_shared") > 0 {
            skipped(&format!("KSM is in use (pages_shared={})", ksm("pages_shared")));
            return None;
        }
        let is_counted = Path::new(KSM).join("ksm_zero_pages").exists();
        ZERO_PAGES_AT_FIRST.store(if is_counted { signed("ksm_zero_pages") } else { 0 }, Ordering::Relaxed);
        let before = SavedSettings::with_defaults_set();
        Some(Self { settings: settings::now(), _before: before, _file: file })
    }

    /// Every setting that is not as it was when the lock was taken: `name: then -> now`.
    pub fn changed_settings(&self) -> Vec<String> {
        let now = settings::now();
        let changed = self.settings.iter().filter(|(name, then)| now.get(*name) != Some(then));
        changed.map(|(name, then)| format!("{name}: {then} -> {:?}", now.get(name))).collect()
    }
}

/// Holds off all tests that have a [`KernelLock`] or this: for a test that asks monitors, which answer one program at a
/// time. `None` where the lock can't be had: then no test has it.
pub fn hold_off_others() -> Option<File> {
    wait_for_lock().ok()
}

/// Holds off tests that have a [`KernelLock`] while memory is offered to KSM here. Tests that hold this run side by side.
pub fn hold_off_ksm() -> Option<File> {
    let file = lock_file().ok()?;
    file.lock_shared().ok()?;
    Some(file)
}

fn wait_for_lock() -> std::io::Result<File> {
    let file = lock_file()?;
    file.lock()?;
    Ok(file)
}

fn lock_file() -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(LOCK)
}

/// The journal of settings that a ksmith must undo.
pub const UNDO: &str = "/run/ksmith/undo.json";

/// Processes that offer memory to KSM.
pub fn offering() -> Vec<u32> {
    let offers = |line: &str| line == "ksm_mergeable: yes" || line == "ksm_merge_any: yes";
    ksm_stats().into_iter().filter(|(_, stat)| stat.lines().any(offers)).map(|(pid, _)| pid).collect()
}

fn is_anything_merged() -> bool {
    let merged = |line: &str| line.strip_prefix("ksm_merging_pages ").is_some_and(|pages| pages != "0");
    ksm_stats().iter().any(|(_, stat)| stat.lines().any(merged))
}

fn ksm_stats() -> Vec<(u32, String)> {
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| Some((pid, fs::read_to_string(format!("/proc/{pid}/ksm_stat")).ok()?))).collect()
}

/// The text of a KSM file.
pub fn ksm(name: &str) -> String {
    fs::read_to_string(Path::new(KSM).join(name)).expect(name).trim().to_owned()
}

/// The number in a KSM file. The count of zero pages may be below zero, see [`zero_pages`].
pub fn number(name: &str) -> u64 {
    signed(name).max(0).cast_unsigned()
}

fn signed(name: &str) -> i64 {
    ksm(name).parse().expect(name)
}

/// Zero pages merged since the lock was taken. The kernel's own count falls by what forked children have mapped, and
/// never recovers.
pub fn zero_pages() -> u64 {
    (signed("ksm_zero_pages") - zero_pages_at_first()).max(0).cast_unsigned()
}

/// Returns the kernel's count of zero pages at the time when the lock was taken.
pub fn zero_pages_at_first() -> i64 {
    ZERO_PAGES_AT_FIRST.load(Ordering::Relaxed)
}

/// Zero pages that the kernel counts for ever though no process has them, as the lock was taken.
pub fn lost_zero_pages() -> u64 {
    zero_pages_at_first().max(0).cast_unsigned()
}

/// Writes a KSM file.
pub fn write(name: &str, value: &str) {
    fs::write(Path::new(KSM).join(name), value).unwrap_or_else(|why| panic!("{name}={value}: {why}"));
}

/// A number in `/proc/vmstat`.
pub fn vmstat(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).expect(name)
}

/// A memory guest of the tested binary, with its memory filled.
pub fn guest(parts: &[MemoryPart]) -> MemoryGuest {
    let program = Path::new(env!("CARGO_BIN_EXE_ksmith"));
    let mut guest = MemoryGuest::start(program, &GuestContents(parts.to_vec())).expect("a guest");
    guest.wait_ready().expect("a guest that is ready");
    guest
}

/// Copies a program. In a process of its own: a test that forks while the copy is open for writing here would keep it
/// from being started (`ETXTBSY`).
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("--").args([from, to]).status();
    assert!(status.unwrap().success(), "{} can be copied", from.display());
}

/// Waits until `done` holds; a generous bound only keeps a broken test from hanging.
pub fn wait_until(what: &str, done: impl FnMut() -> bool) {
    wait_within(Duration::from_secs(60), what, done);
}

/// Waits as [`wait_until`] does, with another bound for conditions that take long by themselves.
pub fn wait_within(bound: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < bound, "waited too long until {what}; KSM: {}", figures());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the values of all KSM files, in one line.
fn figures() -> String {
    let Ok(files) = fs::read_dir(KSM) else { return "absent".to_owned() };
    let names: BTreeSet<_> = files.filter_map(|file| file.ok()?.file_name().into_string().ok()).collect();
    names.iter().map(|name| format!("{name} {}, ", ksm(name))).collect()
}

/// As [`clean_passes`], and then as many more as it takes until `done` holds. ksmd passes over a page that something else
/// holds for a moment (a reader, a list of the kernel's that is not drained yet), and merges it a pass later.
pub fn passes_until(what: &str, mut done: impl FnMut() -> bool) {
    clean_passes(3);
    wait_until(what, || {
        done() || {
            clean_passes(1);
            done()
        }
    });
}

/// Pages that may be missing if ksmd makes no further pass.
pub const A_HANDFUL: u64 = 16;

/// Lets ksmd make `passes` full passes that visit every page, as fast as it can, and stops it.
pub fn clean_passes(passes: u64) {
    write("smart_scan", "0");
    write("pages_to_scan", "100000");
    write("sleep_millisecs", "1");
    let before = number("full_scans");
    write("run", "1");
    wait_until("the passes are done", || number("full_scans") >= before + passes);
    write("run", "0");
}
