//! The cost of the daemon while ksmd is parked: its own CPU and memory, as the kernel counts them.
//!
//! `cargo bench -p ksmith --bench daemon` (as root, on a host where KSM is not in use) starts the real `ksmith
//! daemon` beside real processes, with mergeable memory or without, waits until it has parked ksmd, and prints a
//! table. It holds the lock of the tests on the live kernel meanwhile; the daemon restores the settings.

mod running;
mod sleepers;

use std::time::{Duration, Instant};

use running::Daemon;
use sleepers::Sleepers;

/// Processes with mergeable memory, and without.
const SCENES: [(usize, usize); 4] = [(0, 0), (100, 0), (1000, 0), (0, 10_000)];

/// How long the parked daemon is watched.
const WATCHED: Duration = Duration::from_secs(15);

fn main() {
    let Some(_lock) = running::kernel_lock() else { return };
    println!("| with mergeable memory | without | state | CPU ms per second | of a core | RSS |");
    println!("|---|---|---|---|---|---|");
    for (mergeable, plain) in SCENES {
        let _processes = Sleepers::fork(mergeable, plain);
        row(mergeable, plain);
    }
}

fn row(mergeable: usize, plain: usize) {
    let daemon = Daemon::start();
    let state = daemon.settle();
    let before = daemon.cpu();
    let began = Instant::now();
    std::thread::sleep(WATCHED);
    let share = (daemon.cpu() - before).as_secs_f64() / began.elapsed().as_secs_f64();
    println!(
        "| {mergeable} | {plain} | {state} | {:.2} | {:.3} % | {} KiB |",
        share * 1e3,
        share * 100.0,
        daemon.rss_kib(),
    );
}
