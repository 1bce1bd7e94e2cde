//! The soak: a daemon with everything on, among processes and guests that begin and end all the time.
//!
//! `make soak` (`SOAK_SECONDS=3600`; a day has 86400), as root, on a host where KSM is not in use. It writes the
//! daemon's usage to `target/soak/samples.csv` and draws it in `target/soak/*.svg`. It fails if memory, descriptors,
//! threads or children grow ([`flat`]), if a page has wrong content, or if a setting is not restored. It also fails if
//! a part of the daemon had nothing to do. It holds the lock of the tests on the live kernel. Settings are restored at
//! the end, on a panic, on Ctrl-C, and by the daemon if the soak is killed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]

mod crowd;
mod daemon;
mod flat;
#[path = "../parent_death/mod.rs"]
mod parent_death;
#[path = "../../../preload/tests/support/mod.rs"]
mod preload_library;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crowd::SoakCrowd;
use daemon::DaemonMonitor;
use flat::{DaemonUsage, FIGURES, UsageTrend};
use ksmith_host::signals::{self, Signal};
use ksmith_lab::report::line_plot;
use support::KernelLock;

/// The time between two steps of the crowd.
const STEP: Duration = Duration::from_secs(1);

/// Fewer samples than this say nothing of a quarter.
const LEAST_SECONDS: u64 = 60;

fn main() {
    let Some(seconds) = std::env::var("SOAK_SECONDS").ok() else {
        println!("SKIPPED, nothing was measured: SOAK_SECONDS says for how long (make soak: an hour)");
        return;
    };
    let seconds: u64 = seconds.parse().expect("SOAK_SECONDS: a number");
    assert!(seconds >= LEAST_SECONDS, "SOAK_SECONDS: {LEAST_SECONDS} at least");
    // Before anything is changed that a sudden end would leave behind.
    let signals = signals::catch().and_then(|caught| caught.listen()).unwrap();
    let Some(crowd) = SoakCrowd::make() else { return };
    let Some(lock) = KernelLock::acquire() else { return };
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/soak");
    fs::create_dir_all(&place).unwrap();
    let place = place.canonicalize().unwrap();
    let soak = SoakRun { seconds, place, series: Vec::new() };
    let faults = soak.run(crowd, &lock, || matches!(signals.try_recv(), Ok(Signal::End)));
    assert!(faults.is_empty(), "the soak failed:\n{}", faults.join("\n"));
}

struct SoakRun {
    seconds: u64,
    place: PathBuf,
    series: Vec<DaemonUsage>,
}

impl SoakRun {
    /// Returns what went wrong.
    fn run(mut self, mut crowd: SoakCrowd, lock: &KernelLock, is_ended: impl Fn() -> bool) -> Vec<String> {
        let (daemon, _config) = daemon::start(&self.place);
        let mut watch = DaemonMonitor::over(daemon.pid());
        // A thousand samples make a plot.
        let pause = Duration::from_millis((self.seconds * 1000 / 1200).clamp(1000, 30_000));
        let mut next = Instant::now() + pause;
        while watch.seconds() < self.seconds as f64 && !is_ended() {
            let began = Instant::now();
            crowd.step();
            if Instant::now() >= next {
                next += pause;
                self.series.push(watch.sample_usage(crowd.processes()));
                fs::write(self.place.join("samples.csv"), self.csv()).unwrap();
            }
            if crowd.is_time_to_reload() {
                daemon.signal(rustix::process::Signal::HUP);
            }
            std::thread::sleep(STEP.saturating_sub(began.elapsed()));
        }
        let took = watch.seconds();
        let started = crowd.started;
        crowd.end();
        let log = daemon.end();
        fs::write(self.place.join("daemon.log"), &log).unwrap();
        let mut faults = self.judge(&log);
        faults.extend(lock.changed_settings().into_iter().map(|change| format!("not restored: {change}")));
        if took < self.seconds as f64 {
            faults.push(format!("it was ended after {took:.0} of {} s", self.seconds));
        }
        println!("\n{started} processes and guests in {took:.0} s; plots and samples: {}", self.place.display());
        faults
    }

    /// Draws and compares all figures, and looks whether all parts of the daemon had work.
    fn judge(&self, log: &str) -> Vec<String> {
        let mut faults = Vec::new();
        println!("| figure | second quarter | last quarter | at most | |\n|---|---|---|---|---|");
        for figure in &FIGURES {
            let points = self.series.iter().map(|usage| (usage.seconds, (figure.of)(usage))).collect();
            let plot = line_plot(figure.axis, "the soak", points).unwrap();
            fs::write(self.place.join(figure.name).with_extension("svg"), plot).unwrap();
            let Some(trend) = UsageTrend::from_series(figure, &self.series) else {
                faults.push(format!("{}: too few samples", figure.name));
                continue;
            };
            let [second, last] = trend.medians;
            let bound = trend.bound.map_or("-".to_owned(), |bound| format!("{bound:.0}"));
            let verdict = trend.bound.map_or("", |_| if trend.is_flat() { "flat" } else { "GROWS" });
            println!("| {} | {second:.1} | {last:.1} | {bound} | {verdict} |", figure.axis);
            if !trend.is_flat() {
                faults.push(format!("{} grows: {second:.1}, and {last:.1} in the last quarter", figure.name));
            }
        }
        for (part, sentence) in PARTS {
            let times = log.matches(sentence).count();
            println!("| {part} | | {times} times | | |");
            if times == 0 {
                faults.push(format!("{part}: the log never says {sentence:?}"));
            }
        }
        if self.series.iter().all(|usage| usage.saved_mib < 1.0) {
            faults.push("nothing was merged".to_owned());
        }
        faults
    }

    fn csv(&self) -> String {
        let mut text = "seconds".to_owned();
        FIGURES.iter().for_each(|figure| write!(text, ",{}", figure.name).unwrap());
        for usage in &self.series {
            write!(text, "\n{:.1}", usage.seconds).unwrap();
            FIGURES.iter().for_each(|figure| write!(text, ",{:.2}", (figure.of)(usage)).unwrap());
        }
        text + "\n"
    }
}

/// Log lines that show each part of the daemon at work.
const PARTS: [(&str, &str); 5] = [
    ("guests of another domain switched off", "INFO merging of foreign-"),
    ("scans for users", "scanning for users"),
    ("scans on demand", "scanning on demand"),
    ("memory taken by balance", "MiB ("),
    ("configuration read again", "configuration read again"),
];
