//! What the daemon costs while ksmd is parked: its own CPU and memory, as the kernel books them.
//!
//! `cargo bench --bench daemon` (as root, on a host whose KSM nobody uses) starts the real `ksmith daemon` beside real
//! processes, with mergeable memory or without, waits until it has parked ksmd, and prints a table. It holds the
//! lock of the tests on the live kernel meanwhile; the daemon restores the settings.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench ends by panicking")]

mod sleepers;

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ksmith::control::Client;
use sleepers::Sleepers;

/// Processes with mergeable memory, and without.
const SCENES: [(usize, usize); 4] = [(0, 0), (100, 0), (1000, 0), (0, 10_000)];

/// How long the parked daemon is watched.
const WATCHED: Duration = Duration::from_secs(15);

/// The longest to wait for the daemon to settle.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    if !rustix::process::geteuid().is_root() || fs::metadata("/sys/kernel/mm/ksm/run").is_err() {
        println!("SKIPPED, nothing was measured: this needs root and a kernel with KSM");
        return;
    }
    let lock = File::options().create(true).append(true).open("/run/lock/ksmith-kernel.lock").unwrap();
    lock.lock().unwrap();
    println!("| with mergeable memory | without | state | CPU ms per second | of a core | RSS |");
    println!("|---|---|---|---|---|---|");
    for (mergeable, plain) in SCENES {
        let _processes = Sleepers::fork(mergeable, plain);
        row(mergeable, plain);
    }
}

fn row(mergeable: usize, plain: usize) {
    let directory = std::env::temp_dir().join(format!("ksmith-bench-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let socket = directory.join("control");
    let config = directory.join("ksmith.toml");
    fs::write(&config, format!("[daemon]\ncontrol_socket = {socket:?}\n")).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_ksmith"))
        .args(["daemon", "--config"])
        .arg(&config)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let daemon = Daemon(child);
    let started = Instant::now();
    let state = || {
        let answer = Client::connect(&socket).and_then(|mut client| client.status()).ok()?;
        Some(answer.json["daemon"]["state"].as_str()?.to_owned())
    };
    while !matches!(state().as_deref(), Some("parked" | "idle" | "quiet")) && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(200));
    }
    let state = state().expect("a daemon that answers");
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
    drop(daemon);
    fs::remove_dir_all(directory).unwrap();
}

/// The daemon at work; ended gently, so that it restores.
struct Daemon(Child);

impl Daemon {
    /// CPU time of all its threads, to the nanosecond (`/proc/PID/stat` counts in ticks of 10 ms).
    fn cpu(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap().flatten();
        let of = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        Duration::from_nanos(tasks.filter_map(of).sum())
    }

    fn rss_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}
