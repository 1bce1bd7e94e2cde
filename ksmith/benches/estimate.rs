//! The cost of an estimate, compared with the raw speed of `/proc/PID/mem` and with ksmd's passes over the same
//! memory.
//!
//! `cargo bench --bench estimate` (root; `KSMITH_BENCH_MIB=16384 KSMITH_BENCH_ROUNDS=3` for another size; ksmd's
//! passes are measured if KSM is not in use).
//!
//! Prints medians of several rounds that take turns, so that noise from outside hits all alike.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use ksmith_host::estimate::{EstimateMode, EstimateOptions, EstimateReport, TargetSelection, estimate};
use ksmith_lab::{MemoryGuest, MemoryPart};
use support::{KernelLock, guest, number, write};

const PAGE: usize = 4096;
/// More memory than this is not given to ksmd: its passes would keep the machine's one KSM for minutes.
const MOST_FOR_KSMD: usize = 4096;

fn setting(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn main() {
    let (mib, rounds) = (setting("KSMITH_BENCH_MIB", 1024), setting("KSMITH_BENCH_ROUNDS", 5));
    let pages = mib * 256 / 4;
    let unique = pages - pages / 2 - pages / 8;
    let parts = [
        MemoryPart::Equal { seed: 1, pages: pages / 2 },
        MemoryPart::Zero { pages: pages / 8 },
        MemoryPart::Unique { pages: unique },
    ];
    // No process may merge during the measurement; otherwise the count below shows it.
    let lock = if mib > MOST_FOR_KSMD { None } else { KernelLock::acquire() };
    println!("pages merged on this host: {}", number("pages_shared"));
    let guests: Vec<MemoryGuest> = (0..4).map(|_| guest(&parts)).collect();
    let bytes = (4 * pages * PAGE) as f64;
    println!(
        "{mib} MiB in 4 guests: half equal in all, an eighth zero, the rest unique; medians of {rounds} rounds\n"
    );

    let lanes: [(&str, EstimateVariant); 8] = [
        ("raw /proc/PID/mem, 1 thread", EstimateVariant::Raw(1)),
        ("raw /proc/PID/mem, 2 threads", EstimateVariant::Raw(2)),
        ("exact, 1 thread", EstimateVariant::Estimate(EstimateMode::Exact, 1)),
        ("exact, 2 threads", EstimateVariant::Estimate(EstimateMode::Exact, 2)),
        ("sketch, 1 thread", EstimateVariant::Estimate(EstimateMode::Sketch, 1)),
        ("sketch, 2 threads", EstimateVariant::Estimate(EstimateMode::Sketch, 2)),
        ("sample of 1 %, 1 thread", EstimateVariant::Estimate(EstimateMode::Sample(0.01), 1)),
        ("sample of 1 %, 2 threads", EstimateVariant::Estimate(EstimateMode::Sample(0.01), 2)),
    ];
    let mut results: Vec<Vec<EstimateRun>> = lanes.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for ((_, lane), runs) in lanes.iter().zip(&mut results) {
            runs.push(lane.run(&guests));
        }
    }
    let medians: Vec<EstimateRun> = results.iter().map(|runs| median(runs)).collect();
    println!("{:30} {:>9} {:>9} {:>9} {:>12}", "", "seconds", "GB/s", "CPU s", "peak KiB");
    for ((name, _), run) in lanes.iter().zip(&medians) {
        let rate = bytes / run.seconds / 1e9;
        println!("{name:30} {:>9.4} {rate:>9.2} {:>9.4} {:>12}", run.seconds, run.cpu, run.peak_kib);
    }
    let [raw, raw2, exact, exact2, _, _, sample, _] = medians[..] else { unreachable!() };
    println!("\nexact / raw speed, 1 thread:     {:.2} (wanted: 0.75)", raw.seconds / exact.seconds);
    println!("exact, 2 threads / 1 thread:     {:.2} (wanted: 1.7)", exact.seconds / exact2.seconds);
    println!("raw,   2 threads / 1 thread:     {:.2}", raw.seconds / raw2.seconds);
    println!("exact / sample of 1 %:           {:.1} (wanted: 25)", exact.seconds / sample.seconds);
    println!(
        "exact's memory per page:         {:.1} bytes (wanted: 24)",
        exact.peak_kib as f64 * 1024.0 / (4 * pages) as f64
    );

    println!("the same in CPU time:            {:.2}", raw.cpu / exact.cpu);
    println!("the same in CPU time, sample:    {:.1}", exact.cpu / sample.cpu);

    let passes = if lock.is_some() { ksmd_passes() } else { Vec::new() };
    for (pass, seconds) in (1..).zip(&passes) {
        println!("ksmd pass {pass}: {seconds:.3} CPU s, {:.1} x exact's CPU time (wanted: 6)", seconds / exact.cpu);
    }
}

/// A thing to measure.
#[derive(Clone, Copy)]
enum EstimateVariant {
    Raw(usize),
    Estimate(EstimateMode, usize),
}

#[derive(Clone, Copy)]
struct EstimateRun {
    seconds: f64,
    cpu: f64,
    peak_kib: u64,
}

impl EstimateVariant {
    fn run(self, guests: &[MemoryGuest]) -> EstimateRun {
        // Lets the peak start from here (Documentation/filesystems/proc.rst).
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = status("VmHWM:");
        let (started, cpu) = (Instant::now(), cpu_seconds());
        match self {
            Self::Raw(threads) => raw(guests, threads),
            Self::Estimate(mode, threads) => drop(std::hint::black_box(run_estimate(guests, mode, threads))),
        }
        let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        EstimateRun { seconds, cpu, peak_kib: status("VmHWM:").saturating_sub(before) }
    }
}

fn run_estimate(guests: &[MemoryGuest], mode: EstimateMode, threads: usize) -> EstimateReport {
    let pids = guests.iter().map(MemoryGuest::pid).collect();
    let mut options = EstimateOptions::new(TargetSelection { pids, ..TargetSelection::default() });
    options.mode = mode;
    options.threads = threads;
    estimate(&options).unwrap()
}

/// The limit: the same bytes through the same file, with nothing done to them.
fn raw(guests: &[MemoryGuest], threads: usize) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let guests = guests.iter().skip(thread).step_by(threads);
            let ranges: Vec<(File, Vec<(u64, u64)>)> = guests.map(|guest| mergeable(guest.pid())).collect();
            scope.spawn(move || {
                let mut buffer = vec![0_u8; 256 << 10];
                for (mem, ranges) in ranges {
                    for (start, end) in ranges {
                        for at in (start..end).step_by(buffer.len()) {
                            let length = buffer.len().min((end - at) as usize);
                            mem.read_exact_at(&mut buffer[..length], at).unwrap();
                        }
                    }
                }
            });
        }
    });
}

fn mergeable(pid: u32) -> (File, Vec<(u64, u64)>) {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mappings = ksmith_core::kernel::ProcessMapping::parse_all(&smaps).unwrap();
    let marked = mappings.iter().filter(|mapping| mapping.is_mergeable() == Some(true));
    (File::open(format!("/proc/{pid}/mem")).unwrap(), marked.map(|it| (it.start, it.end)).collect())
}

/// CPU seconds of ksmd for each of the first four clean passes.
fn ksmd_passes() -> Vec<f64> {
    write("smart_scan", "0");
    write("use_zero_pages", "1");
    write("sleep_millisecs", "0");
    write("pages_to_scan", "20000");
    let mut seconds = Vec::new();
    let (mut before, mut scans) = (ksmd_cpu(), number("full_scans"));
    write("run", "1");
    while seconds.len() < 4 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        if number("full_scans") > scans {
            let now = ksmd_cpu();
            seconds.push(now - before);
            (before, scans) = (now, number("full_scans"));
        }
    }
    write("run", "0");
    seconds
}

fn ksmd_cpu() -> f64 {
    let pid = fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let comm = fs::read_to_string(entry.path().join("comm")).ok()?;
        (comm.trim() == "ksmd").then(|| entry.path())
    });
    let text = fs::read_to_string(pid.expect("ksmd").join("schedstat")).unwrap();
    text.split_ascii_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// KiB of a line of /proc/self/status.
fn status(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn median(runs: &[EstimateRun]) -> EstimateRun {
    let mut sorted = runs.to_vec();
    sorted.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    sorted[sorted.len() / 2]
}
