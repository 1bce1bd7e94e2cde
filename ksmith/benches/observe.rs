//! Benchmark of the observer: CPU and memory at one sample a second, and the time of one sample.
//!
//! `cargo bench --bench observe` prints both. The processes are real ones, forked from this program: with
//! mergeable memory, or without. The time of one sample is that of many in a row, of which one in a tenth of a second reads the host's
//! figures in `/proc`; the CPU per tick has them all. Process events are on where the kernel gives them (as root).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench ends by panicking")]

mod sleepers;

use std::time::{Duration, Instant};

use criterion::Criterion;
use crossbeam_channel::{Receiver, bounded};
use ksmith_host::observe::{HostObserver, ProcessEvent, ProcessEvents};
use ksmith_host::root::Root;
use rustix::time::{ClockId, clock_gettime};
use sleepers::SleepingChildren;

/// Processes with mergeable memory, and without.
const SCENES: [(usize, usize); 4] = [(0, 0), (100, 0), (1000, 0), (100, 10_000)];

/// Samples in a row, one a second: a sixth of the round in which every process is looked at.
const TICKS: u32 = 10;

fn main() {
    println!(
        "| with mergeable memory | without | first sample | CPU per tick | of a core at 1 s | RSS | RSS grown |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (mergeable, plain) in SCENES {
        let _processes = SleepingChildren::fork(mergeable, plain);
        row(mergeable, plain);
    }
    let mut criterion = Criterion::default().configure_from_args();
    for (mergeable, plain) in SCENES {
        let processes = SleepingChildren::fork(mergeable, plain);
        let mut watch = ObserverWithEvents::new();
        assert!(watch.sample() >= mergeable, "not every process was found");
        let name = format!("sample/{mergeable} mergeable, {plain} plain");
        criterion.bench_function(&name, |bencher| bencher.iter(|| watch.sample()));
        drop(processes);
    }
    criterion.final_summary();
}

/// An observer with its events.
struct ObserverWithEvents {
    observer: HostObserver,
    events: Option<(ProcessEvents, Receiver<Vec<ProcessEvent>>)>,
}

impl ObserverWithEvents {
    fn new() -> Self {
        let (sender, receiver) = bounded(64);
        let events = ProcessEvents::listen(sender).ok();
        Self { observer: HostObserver::new(Root::host()), events: events.map(|events| (events, receiver)) }
    }

    fn sample(&mut self) -> usize {
        if let Some((_, receiver)) = &self.events {
            self.observer.notice_all(receiver.try_iter().flatten());
        }
        self.observer.sample().processes.len()
    }
}

fn row(mergeable: usize, plain: usize) {
    let rss_before = rss_kib();
    let mut watch = ObserverWithEvents::new();
    let before = cpu();
    assert!(watch.sample() >= mergeable, "not every process was found");
    let first = cpu() - before;
    std::thread::sleep(Duration::from_secs(1));
    watch.sample();
    let before = cpu();
    let started = Instant::now();
    for tick in 1..=TICKS {
        std::thread::sleep((started + Duration::from_secs(tick.into())).saturating_duration_since(Instant::now()));
        watch.sample();
    }
    let per_tick = (cpu() - before) / TICKS;
    println!(
        "| {mergeable} | {plain} | {:.1} ms | {:.3} ms | {:.3} % | {} KiB | {} KiB |",
        first.as_secs_f64() * 1e3,
        per_tick.as_secs_f64() * 1e3,
        per_tick.as_secs_f64() * 100.0,
        rss_kib(),
        rss_kib().saturating_sub(rss_before),
    );
}

/// CPU time of all threads of this process.
fn cpu() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

fn rss_kib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64 / 1024
}
