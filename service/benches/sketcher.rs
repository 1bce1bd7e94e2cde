//! The CPU share of the daemon's sketcher: CPU time of the whole process against the limit and against its own account.
//!
//! `cargo bench -p ksmith-service --bench sketcher` (`KSMITH_BENCH_GUESTS`, `_MIB`, `_SECONDS`). This process does only
//! what the daemon does for the sketch file: it hands over samples of this host as often as the daemon does, and its
//! thread reads guests and writes the file. The file is due each minute, so that writing is in the figures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]

#[path = "../../sketch/benches/holders/mod.rs"]
mod holders;

use std::fs;
use std::time::{Duration, Instant};

use holders::{HolderProcess, hold, setting};
use ksmith_core::guest::{Guest, GuestMemoryFigures};
use ksmith_core::sample::ProcessId;
use ksmith_host::memory::process::OpenProcess;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_service::sketcher::{SketchConfig, Sketcher};
use ksmith_sketch::new_secret;
use rustix::time::{ClockId, clock_gettime};

/// The interval between two samples offered; the sketcher takes those that are due.
const TICK: Duration = Duration::from_secs(1);

fn process_cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// CPU time of the children that read for this process, in seconds.
fn readers_cpu(holders: &[HolderProcess]) -> f64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let children =
        tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok()).collect::<String>();
    let pids = children.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
    let readers = pids.filter(|pid| holders.iter().all(|holder| holder.pid() != *pid));
    let of =
        |pid| fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?.split(' ').next()?.parse::<f64>().ok();
    readers.filter_map(of).sum::<f64>() / 1e9
}

fn guest(holder: &HolderProcess, mib: usize) -> Guest {
    let process = OpenProcess::open(holder.pid()).unwrap();
    let id = ProcessId { pid: process.pid, start_ticks: process.start_ticks };
    let figures = GuestMemoryFigures { rss_bytes: Some((mib as u64) << 20), ..GuestMemoryFigures::default() };
    Guest { figures, ..Guest::plain(&format!("guest-{}", holder.pid()), id) }
}

fn main() {
    hold();
    let (guests, mib) = (setting("KSMITH_BENCH_GUESTS", 4), setting("KSMITH_BENCH_MIB", 32));
    let seconds = setting("KSMITH_BENCH_SECONDS", 240) as u64;
    let holders: Vec<HolderProcess> = (0..guests).map(|number| HolderProcess::start(number as u64, mib)).collect();
    let tree = tempfile::tempdir().unwrap();
    let secret = tree.path().join("fleet.key");
    new_secret(&secret).unwrap();
    let config = SketchConfig {
        enabled: true,
        secret,
        directory: tree.path().join("sketch"),
        host: Some("bench".to_owned()),
        every_minutes: 1,
        ..SketchConfig::default()
    };
    let sample = HostObserver::new(Root::host()).sample();
    let list: Vec<Guest> = holders.iter().map(|holder| guest(holder, mib)).collect();
    let (readers, process, began) = (readers_cpu(&holders), process_cpu(), Instant::now());
    let mut sketcher = Sketcher::start(&Root::host(), &config, Default::default(), move |_| list.clone()).unwrap();
    let mut sample = sample;
    while began.elapsed() < Duration::from_secs(seconds) {
        sample.at += TICK;
        sketcher.offer_sample(&sample);
        std::thread::sleep(TICK);
    }
    let wall = began.elapsed().as_secs_f64();
    let share = |cpu: f64| cpu / wall * 100.0;
    let status = sketcher.status();
    let (process, readers) = (process_cpu() - process, readers_cpu(&holders) - readers);
    println!("{guests} guests of {mib} MiB, {wall:.0} s, limit {} % of a CPU", config.max_cpu_percent);
    println!("the process: {:.4} %, {:.1} ms", share(process), process * 1e3);
    println!("its readers of page tables: {:.4} %, {:.1} ms", share(readers), readers * 1e3);
    println!("by the account: {:.4} %, {:.1} ms", share(status.cpu_seconds), status.cpu_seconds * 1e3);
    println!("guests with a sketch: {}, files: {}, bytes: {}", status.guests, status.written, status.bytes);
    assert!(share(process + readers) <= config.max_cpu_percent, "over the limit");
}
