//! A daemon for benches: the real program, with a control socket of its own.

#![allow(dead_code, reason = "each bench uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench ends by panicking")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ksmith_service::control::Client;

/// The longest to wait for a daemon to settle.
const PATIENCE: Duration = Duration::from_secs(60);

/// The lock of the tests on the live kernel. `None`, and said, where there is no KSM to be had.
pub fn kernel_lock() -> Option<File> {
    if !rustix::process::geteuid().is_root() || fs::metadata("/sys/kernel/mm/ksm/run").is_err() {
        println!("SKIPPED, nothing was measured: this needs root and a kernel with KSM");
        return None;
    }
    let lock = File::options().create(true).append(true).open("/run/lock/ksmith-kernel.lock").unwrap();
    lock.lock().unwrap();
    Some(lock)
}

/// A daemon at work with the default settings; ended gently, so that it restores.
pub struct Daemon {
    child: Child,
    directory: PathBuf,
}

impl Daemon {
    pub fn start() -> Self {
        let directory = std::env::temp_dir().join(format!("ksmith-bench-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let config = directory.join("ksmith.toml");
        fs::write(&config, format!("[daemon]\ncontrol_socket = {:?}\n", directory.join("control"))).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_ksmith"))
            .args(["daemon", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, directory }
    }

    /// Waits until it has parked ksmd. Returns the state that it is in by then.
    pub fn settle(&self) -> String {
        let started = Instant::now();
        while !matches!(self.state().as_deref(), Some("parked" | "idle" | "quiet")) && started.elapsed() < PATIENCE
        {
            std::thread::sleep(Duration::from_millis(200));
        }
        self.state().expect("a daemon that answers")
    }

    fn state(&self) -> Option<String> {
        let answer = Client::connect(&self.socket()).and_then(|mut client| client.status()).ok()?;
        Some(answer.daemon?.state)
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("control")
    }

    /// For commands that are to ask it.
    pub fn config(&self) -> PathBuf {
        self.directory.join("ksmith.toml")
    }

    /// CPU time of all its threads, to the nanosecond (`/proc/PID/stat` counts in ticks of 10 ms).
    pub fn cpu(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten();
        let of = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        Duration::from_nanos(tasks.filter_map(of).sum())
    }

    pub fn rss_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        );
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory as &Path);
    }
}
