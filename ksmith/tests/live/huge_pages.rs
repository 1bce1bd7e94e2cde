//! Memory in huge pages stays merged while ksmith holds khugepaged's settings, and is lost where it may not.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ksmith_core::kernel::SmapsRollup;
use ksmith_core::knobs::Knob;
use ksmith_lab::{MemoryGuest, MemoryPart};
use rustix::process::Signal;

use crate::fold_stress::restorer::hurry_khugepaged;
use crate::scripted::ScriptedProgram;
use crate::support::program::{RunningProgram, config_file, ksmith, status};
use crate::support::{KernelLock, guest, number, skipped, wait_until};

pub const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage";

/// Pages of each of two guests: 16 huge pages.
const PAGES: usize = 8192;

/// One page in so many is equal in both guests. khugepaged takes no range with more shared pages than half of them.
const EQUAL_ONE_IN: usize = 4;

/// Bytes that both guests have merged together.
const MERGED: u64 = (2 * PAGES / EQUAL_ONE_IN * 4096) as u64;

/// The configuration of a daemon that has ksmd scan fast, or park, and holds khugepaged's settings or not.
pub fn config(keep: bool, run: u64) -> String {
    format!(
        "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = {{ run = {run}, pages_to_scan = 20000, sleep_millisecs = 10, \
         smart_scan = 0 }}\n[huge_pages]\nkeep = {keep}\n"
    )
}

/// A field of `/proc/PID/smaps_rollup` in bytes.
pub fn rollup(guest: &MemoryGuest, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", guest.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
}

pub fn merged(guests: &[MemoryGuest; 2]) -> u64 {
    guests.iter().map(|guest| rollup(guest, "KSM")).sum()
}

pub fn khugepaged(name: &str) -> u64 {
    fs::read_to_string(format!("{HUGE_PAGES}/khugepaged/{name}")).unwrap().trim().parse().unwrap()
}

pub fn held() -> (u64, u64) {
    (khugepaged("max_ptes_shared"), khugepaged("max_ptes_none"))
}

/// Waits until khugepaged has gone over all memory twice from now on. The walk under way may have begun before.
fn walk_twice() {
    let begun = khugepaged("full_scans");
    wait_until("khugepaged has gone over all memory", || khugepaged("full_scans") >= begun + 3);
}

/// The first address of the guest's memory in huge pages.
pub fn huge_memory(guest: &MemoryGuest) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/smaps", guest.pid())).unwrap();
    let mut first = 0;
    for line in text.lines() {
        if let Some((range, _)) = line.split_once('-')
            && let Ok(address) = u64::from_str_radix(range, 16)
        {
            first = address;
        }
        let huge = line.strip_prefix("AnonHugePages:").and_then(|text| text.trim().strip_suffix(" kB"));
        if huge.is_some_and(|kib| kib != "0") {
            return first;
        }
    }
    panic!("a guest without huge pages");
}

/// Two guests in huge pages, with one equal page in so many. `None` where the machine gives no huge pages.
pub fn scattered_guests(pages: usize, equal_one_in: usize) -> Option<[MemoryGuest; 2]> {
    paired_guests(70, pages, |page| page % equal_one_in == 0)
}

/// Two guests in huge pages, which have the pages of a seed in common where `is_equal` says so.
pub fn paired_guests(seed: u64, pages: usize, is_equal: impl Fn(usize) -> bool) -> Option<[MemoryGuest; 2]> {
    let part = [MemoryPart::Huge { seed, pages }];
    let guests = [guest(&part), guest(&part)];
    if guests.iter().any(|guest| rollup(guest, "AnonHugePages") < (pages * 4096) as u64) {
        skipped("this machine gave no transparent huge pages");
        return None;
    }
    let memory = File::options().write(true).open(format!("/proc/{}/mem", guests[1].pid())).unwrap();
    let first = huge_memory(&guests[1]);
    for page in (0..pages).filter(|page| !is_equal(*page)) {
        memory.write_all_at(&(page as u64 | 1 << 63).to_ne_bytes(), first + page as u64 * 4096).unwrap();
    }
    Some(guests)
}

/// The configuration of a daemon: the file, and its path.
type ConfigFile = (tempfile::NamedTempFile, String);

/// Has a daemon merge two guests and park, and returns it with the guests once khugepaged may set to work.
fn merge(keep: bool) -> Option<(RunningProgram, ConfigFile, [MemoryGuest; 2])> {
    let guests = scattered_guests(PAGES, EQUAL_ONE_IN)?;
    let (file, path) = config_file(&config(keep, 1));
    let daemon = RunningProgram::start(&["daemon", "--config", &path]);
    wait_until("the equal pages are merged", || merged(&guests) >= MERGED / 100 * 99);
    // ksmd would merge again what khugepaged undoes.
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("run = 1", "run = 0")).unwrap();
    daemon.signal(Signal::HUP);
    wait_until("ksmd is parked", || number("run") == 0);
    Some((daemon, (file, path), guests))
}

pub fn has_khugepaged() -> bool {
    let enabled = fs::read_to_string(format!("{HUGE_PAGES}/enabled")).unwrap_or_default();
    let is_there = Path::new(Knob::MaxPtesShared.path()).exists() && !enabled.contains("[never]");
    if !is_there || enabled.is_empty() {
        skipped("khugepaged does not run here");
    }
    is_there && !enabled.is_empty()
}

#[test]
fn what_is_merged_in_huge_pages_stays_so_and_what_held_it_is_restored() {
    let Some(lock) = KernelLock::acquire() else { return };
    if !has_khugepaged() {
        return;
    }
    let before = held();
    let Some((mut daemon, _file, guests)) = merge(true) else { return };
    assert_eq!(held(), (0, 0), "{}", daemon.log());
    let status = status().unwrap();
    assert_eq!((&status["max_ptes_shared"], &status["max_ptes_none"]), (&0.into(), &0.into()));
    assert!(daemon.log().contains("max_ptes_shared 256 -> 0 ([huge_pages] keep"), "{}", daemon.log());
    let (kept, pss) = (merged(&guests), rollup(&guests[0], "Pss"));
    {
        let Some(_hurried) = hurry_khugepaged() else { return skipped("khugepaged can't be hurried") };
        walk_twice();
    }
    assert!(merged(&guests) >= kept / 100 * 95, "{} of {kept} bytes are still merged", merged(&guests));
    assert!(rollup(&guests[0], "Pss") <= pss / 100 * 105, "{} bytes after {pss}", rollup(&guests[0], "Pss"));

    // Another program's value is noticed and set back.
    fs::write(Knob::MaxPtesShared.path(), "256").unwrap();
    wait_until("the setting is held again", || held() == (0, 0));
    let said = "another program changed a setting: max_ptes_shared 0 -> 256";
    wait_until("the daemon says so", || daemon.log().contains(said));

    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    assert_eq!((held(), lock.changed_settings()), (before, Vec::new()));
}

/// Memory of a program with halves.
const HALVED: u64 = 64 << 20;

/// Fills memory in small pages, of which the first half is equal in every process that runs this. When it is told to, it has
/// khugepaged put all of it together that may be, and visits each page.
const HALVES: &str = r#"
import mmap, os, random, sys
PAGE = mmap.PAGESIZE
pages = int(sys.argv[1]) // PAGE
memory = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
own = random.Random(os.getpid())
for page in range(pages):
    source = random.Random(page) if page < pages // 2 else own
    memory[page * PAGE:(page + 1) * PAGE] = source.randbytes(PAGE)
memory.madvise(mmap.MADV_MERGEABLE)
print("ready", flush=True)
for line in sys.stdin:
    memory.madvise(mmap.MADV_HUGEPAGE)
    for page in range(pages):
        memory[page * PAGE]
    print("visited", flush=True)
"#;

#[test]
fn under_the_hold_ranges_without_merged_pages_are_still_put_together() {
    let Some(_lock) = KernelLock::acquire() else { return };
    if !has_khugepaged() {
        return;
    }
    let start = || ScriptedProgram::start(&["-c", HALVES, &HALVED.to_string()]);
    let (Some(one), Some(other)) = (start(), start()) else { return skipped("there is no Python") };
    let mut programs = [one, other];
    if programs[0].sums().ksm.is_none() {
        return skipped("smaps_rollup shows merged memory from Linux 6.7 on");
    }
    let sums = |programs: &[ScriptedProgram; 2]| {
        let sum = |figure: fn(&SmapsRollup) -> Option<u64>| {
            programs.iter().map(|program| figure(&program.sums()).unwrap()).sum::<u64>()
        };
        (sum(|sums| sums.ksm), sum(|sums| sums.anon_huge))
    };
    let (_file, path) = config_file(&config(true, 1));
    let daemon = RunningProgram::start(&["daemon", "--config", &path]);
    // In both programs half of the memory is equal.
    wait_until("the equal halves are merged", || sums(&programs).0 >= HALVED / 100 * 99);
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("run = 1", "run = 0")).unwrap();
    daemon.signal(Signal::HUP);
    wait_until("ksmd is parked", || number("run") == 0);
    // Python's own memory may be in huge pages.
    let (kept, others) = sums(&programs);
    assert_eq!(held(), (0, 0), "{}", daemon.log());
    let Some(_hurried) = hurry_khugepaged() else { return skipped("khugepaged can't be hurried") };
    // A range at each end of a half may have pages beyond it.
    let (least, most) = (HALVED - 4 * (2 << 20), HALVED);
    wait_until("the other halves are put together", || {
        for program in &mut programs {
            assert_eq!(program.obey("visit"), "visited");
        }
        sums(&programs).1 >= others + least
    });
    walk_twice();
    let (merged, huge) = sums(&programs);
    assert!(
        huge <= others + most && merged >= kept / 100 * 95,
        "{huge} bytes in huge pages, {merged} of {kept} merged"
    );
    daemon.end();
}

#[test]
fn without_the_hold_khugepaged_undoes_what_was_merged() {
    let Some(_lock) = KernelLock::acquire() else { return };
    if !has_khugepaged() {
        return;
    }
    let before = held();
    let Some((daemon, (_file, path), guests)) = merge(false) else { return };
    assert_eq!(held(), before, "the files are not touched: {}", daemon.log());
    let kept = merged(&guests);
    let Some(_hurried) = hurry_khugepaged() else { return skipped("khugepaged can't be hurried") };
    wait_until("most is lost", || merged(&guests) < kept / 2);
    assert!(status().unwrap()["pages_sharing"].as_u64() >= Some(kept / 2 / 4096 / 100 * 99), "no counter shows it");
    let (_, out, _) = ksmith(&["doctor", "--config", &path]);
    assert!(out.contains("khugepaged undoes merges") && out.contains("keep = true in [huge_pages]"), "{out}");
    daemon.end();
}
