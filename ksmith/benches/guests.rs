//! The time in which a daemon answers for a thousand guests.
//!
//! `cargo bench -p ksmith --bench guests` (as root, on a host where KSM is not in use) times the whole command
//! `ksmith guests --json`, and the daemon's reply alone.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench ends by panicking")]

mod running;
mod sleepers;

use std::process::Command;
use std::time::{Duration, Instant};

use ksmith_service::control::ControlClient;
use running::BenchDaemon;
use sleepers::SleepingChildren;

const GUESTS: [usize; 3] = [10, 100, 1000];

/// Repetitions of each measurement.
const TIMES: usize = 21;

fn main() {
    let Some(_lock) = running::kernel_lock() else { return };
    println!("| guests | the command: median | longest | the daemon alone: median | longest |");
    println!("|---|---|---|---|---|");
    for guests in GUESTS {
        let _processes = SleepingChildren::fork(guests, 0);
        let daemon = BenchDaemon::start();
        daemon.settle();
        let [median, longest] = spread(|| {
            let output = Command::new(env!("CARGO_BIN_EXE_ksmith"))
                .arg("--config")
                .arg(daemon.config())
                .args(["guests", "--json"])
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        });
        let [alone, longest_alone] = spread(|| {
            let report = ControlClient::connect(&daemon.socket()).unwrap().guests().unwrap();
            assert!(report.guests.len() >= guests, "{} of {guests} are listed", report.guests.len());
        });
        println!("| {guests} | {median:.1?} | {longest:.1?} | {alone:.1?} | {longest_alone:.1?} |");
    }
}

/// The median and the longest of the times that `work` takes.
fn spread(mut work: impl FnMut()) -> [Duration; 2] {
    let mut times: Vec<Duration> = (0..TIMES)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    [times[TIMES / 2], times[TIMES - 1]]
}
