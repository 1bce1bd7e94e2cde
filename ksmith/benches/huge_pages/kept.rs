//! The part that stays merged while khugepaged is hurried, and the error of what is said of it.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::guest::BenchGuest;
use crate::mixture::MemoryMixture;
use crate::options::HugeBenchOptions;
use crate::restorer::hurry_khugepaged;
use crate::support::KernelLock;
use crate::support::program::{RunningProgram, config_file, ksmith, status};

const KHUGEPAGED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged";

/// Guests that do not use their memory, so that nothing but khugepaged changes it.
struct IdleGuests([Box<dyn BenchGuest>; 2]);

impl IdleGuests {
    fn pss(&self) -> u64 {
        self.0.iter().map(|guest| guest.sums().pss.unwrap()).sum()
    }

    fn merged(&self) -> u64 {
        self.0.iter().map(|guest| guest.sums().ksm.unwrap()).sum()
    }
}

/// Merges a mixture under a daemon with its defaults, hurries khugepaged for some time, and prints a row.
pub fn measure(mixture: MemoryMixture, time: Duration, options: &HugeBenchOptions, lock: &KernelLock) {
    let guests = IdleGuests([options.start(mixture), options.start(mixture)]);
    let (before, limits) = (guests.pss(), limits());
    let (_file, path) = config_file("");
    let mut daemon = RunningProgram::start(&["daemon", "--config", &path]);
    daemon.wait_ready();
    let started = Instant::now();
    while !is_parked_after_merging() {
        assert!(started.elapsed() < Duration::from_secs(180), "nothing was merged: {}", daemon.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    let (merged, walks) = (guests.merged(), khugepaged("full_scans"));
    let hurried = hurry_khugepaged().expect("khugepaged's settings");
    let (end, mut samples, mut farthest) = (Instant::now() + time, 0, 0.0_f64);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_secs(1));
        let (said, saved) = (said("saved_bytes"), before.saturating_sub(guests.pss()));
        farthest = farthest.max(said.abs_diff(saved) as f64 / saved as f64);
        samples += 1;
    }
    let kept = guests.merged() as f64 / merged as f64;
    let walks = khugepaged("full_scans") - walks;
    drop(hurried);
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success(), "{}", daemon.log());
    let after_term = is_as_before(limits, lock);
    let mut other = RunningProgram::start(&["daemon", "--config", &path]);
    other.wait_ready();
    other.kill();
    assert_eq!(ksmith(&["restore"]).0, 0);
    println!(
        "| {} | {} MiB | {:.1} % | {:.2} % of {samples} samples | {walks} | {after_term} | {} |",
        mixture.in_words(),
        merged >> 20,
        100.0 * kept,
        100.0 * farthest,
        is_as_before(limits, lock),
    );
}

/// Prints the head of the table.
pub fn print_head() {
    println!(
        "| mixture | merged | of it still merged | `saved_bytes` off what PSS lost, at most | walks | settings as before, \
         after SIGTERM | after SIGKILL and `restore` |"
    );
    println!("|---|---|---|---|---|---|---|");
}

fn is_parked_after_merging() -> bool {
    said("saved_bytes") > 8 << 20 && crate::support::number("run") == 0
}

fn said(key: &str) -> u64 {
    status().and_then(|status| status[key].as_u64()).unwrap_or(0)
}

fn khugepaged(name: &str) -> u64 {
    std::fs::read_to_string(format!("{KHUGEPAGED}/{name}")).unwrap().trim().parse().unwrap()
}

/// The limits that the daemon holds.
fn limits() -> [u64; 2] {
    ["max_ptes_shared", "max_ptes_none"].map(khugepaged)
}

fn is_as_before(before: [u64; 2], lock: &KernelLock) -> &'static str {
    if limits() == before && lock.changed_settings().is_empty() { "yes" } else { "no" }
}
