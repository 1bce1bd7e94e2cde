//! All kinds of writes and changes at once.

use std::fs;
use std::time::Instant;

use crate::fold_loop::FoldLoop;
use crate::support::pool::{CgroupPool, SwapArea};
use crate::support::{self, KernelLock, skipped, vmstat};

use super::kernel_log::KernelLog;
use super::program::StressProgram;
use super::restorer::{RestoringShell, hurry_khugepaged};
use super::{long_seconds, print_outcome};

const MIB: u64 = 1 << 20;

/// ksmd beside everything else: a few per cent of a core.
const KSMD: [(&str, &str); 4] =
    [("smart_scan", "0"), ("use_zero_pages", "1"), ("pages_to_scan", "1000"), ("sleep_millisecs", "20")];

#[test]
fn no_byte_is_lost_under_everything_at_once() {
    play(10);
}

#[test]
#[ignore = "for make stress: as long as STRESS_SECONDS says"]
fn for_long_everything() {
    play(long_seconds());
}

/// Folds the program for so many seconds, with all parts that this host can have.
fn play(seconds: u64) {
    let Some(mut folds) = FoldLoop::prepare() else { return };
    let Some(program) = StressProgram::compile() else { return };
    // In the order in which other tests take these locks.
    let swap = SwapArea::on(512 * MIB);
    let lock = KernelLock::acquire();
    let khugepaged = lock.as_ref().and_then(|_| hurry_khugepaged());
    if khugepaged.is_none() {
        skipped("fold stress: khugepaged can't be hurried here");
    }
    // Its memory fits only with swap.
    let limited = swap.as_ref().and_then(|_| CgroupPool::make(48 * MIB));
    let victims = CgroupPool::make(48 * MIB);
    let mut words = vec!["all".to_owned()];
    let mut leftovers = vec!["echo 0 > /sys/kernel/mm/ksm/run".to_owned()];
    if swap.is_some() {
        words.push("swap".to_owned());
    }
    if lock.is_some() {
        words.push("ksm".to_owned());
    }
    if let Some(pool) = &limited {
        let directory = pool.directory();
        // Reclaim without a limit, where the kernel has that.
        let _ = fs::write(directory.join("memory.high"), (40 * MIB).to_string());
        words.push(format!("limited={}", directory.display()));
        leftovers.push(format!("rmdir {}", directory.display()));
    }
    if let Some(pool) = &victims {
        pool.drop_cache_only();
        let _ = fs::write(pool.directory().join("memory.swap.max"), "0");
        words.push(format!("victims={}", pool.directory().display()));
        leftovers.push(format!("rmdir {}", pool.directory().display()));
    }
    let _restorer = lock.as_ref().map(|_| RestoringShell::new(&leftovers));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();

    let mut log = KernelLog::from_now();
    let cow_before = vmstat_or_zero("cow_ksm");
    let mut most_merged = 0;
    let begin = Instant::now();
    let mut stress = program.start(seconds, &words);
    if lock.is_some() {
        for (knob, value) in KSMD {
            support::write(knob, value);
        }
        support::write("run", "1");
    }
    while stress.is_running() {
        stress.fold_once(&mut folds);
        assert_eq!(log.faults(), Vec::<String>::new());
        if lock.is_some() {
            most_merged = most_merged.max(support::number("pages_sharing"));
            support::write("use_zero_pages", if begin.elapsed().as_secs().is_multiple_of(2) { "1" } else { "0" });
        }
    }
    let counts = stress.finish();
    let merges = vmstat_or_zero("cow_ksm") - cow_before;
    let outcome =
        format!("{folds}, {counts}, {most_merged} pages merged at most, {merges} merged pages written to");
    print_outcome(&format!("{} s: {outcome}", begin.elapsed().as_secs()));
    assert_eq!(log.faults(), Vec::<String>::new());
    assert!(folds.freed_bytes() > 0, "nothing was folded: {outcome}");
    if victims.is_some() {
        assert!(counts.contains("oom_kills"), "no process was killed for want of memory: {outcome}");
    }
}

fn vmstat_or_zero(name: &str) -> u64 {
    if fs::read_to_string("/proc/vmstat").is_ok_and(|text| text.contains(name)) { vmstat(name) } else { 0 }
}
