//! The daemon's own CPU where a guest comes and one goes each four seconds: the guests of `scenarios/churn.toml`, of half their size.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench ends by panicking")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ksmith_host::ksm_counts::KsmCounts;
use ksmith_host::ksmd;
use ksmith_host::root::Root;
use ksmith_lab::{GuestContents, MemoryGuest};

use crate::running::{self, BenchDaemon};

const EVERY: Duration = Duration::from_secs(4);

/// Visitors that are there at a time, besides the two guests that stay.
const VISITORS: usize = 4;

/// The churn goes on for so long before it is measured, and while it is.
const BEFORE: u32 = 2;
const MEASURED: u32 = 15;

const STAYING: &str = "equal:1:24576 unique:8192 work:2048:5";
const VISITOR: &str = "equal:1:16384 equal:2:8192 zero:4096 unique:8192 churn:2048:1000 work:2048:10";

/// Prints one row of a table: the share of a core that the daemon takes, ksmd's, and what is saved at the end.
pub fn measure() {
    let staying = [guest(STAYING), guest(STAYING)];
    let daemon = BenchDaemon::start_quiet();
    let mut visitors = VecDeque::new();
    let mut next = Instant::now();
    let mut churn = |times: u32| {
        for _ in 0..times {
            visitors.push_back(guest(VISITOR));
            if visitors.len() > VISITORS {
                visitors.pop_front();
            }
            next += EVERY;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    };
    churn(BEFORE);
    let (began, own, ksmd) = (Instant::now(), daemon.cpu_of_all(), ksmd_cpu());
    churn(MEASURED);
    let percent = |used: Duration| used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
    let (own, ksmd) = (percent(daemon.cpu_of_all() - own), percent(ksmd_cpu() - ksmd));
    let saved_mib = KsmCounts::new(&Root::host()).read_merged().saved_pages() / 256;
    println!("| the daemon, of a core | ksmd, of a core | saved at the end | RSS |");
    println!("|---|---|---|---|");
    println!("| {own:.2} % | {ksmd:.1} % | {saved_mib} MiB | {} KiB |", daemon.rss_kib());
    drop(daemon);
    drop(staying);
}

fn guest(parts: &str) -> MemoryGuest {
    let parts = parts.split(' ').map(|part| part.parse().expect("a part")).collect();
    MemoryGuest::start(&running::program(), &GuestContents(parts)).unwrap()
}

fn ksmd_cpu() -> Duration {
    Duration::from_nanos(ksmd::cpu_ns(&Root::host()).expect("a ksmd"))
}
