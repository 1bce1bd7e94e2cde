//! A daemon for benches: the real program, with a control socket of its own.

#![allow(dead_code, reason = "each bench uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench ends by panicking")]

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ksmith_service::control::ControlClient;

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

/// Runs a program with the priority that the unit gives it (`Nice=` in packaging/systemd/ksmith.service).
#[allow(unsafe_code, reason = "the kernel is asked between fork and exec")]
fn as_the_unit_does(command: &mut Command) {
    let ask = || Ok(rustix::process::setpriority_process(None, -5)?);
    // SAFETY: one system call, which allocates nothing and takes no lock.
    unsafe { command.pre_exec(ask) };
}

/// The program that is measured: that of this build, or the one at `KSMITH_PROGRAM`.
pub fn program() -> PathBuf {
    std::env::var_os("KSMITH_PROGRAM").map_or_else(|| env!("CARGO_BIN_EXE_ksmith").into(), PathBuf::from)
}

/// CPU time in ns of the thread or process with this directory.
fn used(directory: &Path) -> Option<u64> {
    let text = fs::read_to_string(directory.join("schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// A daemon at work with the default settings; ended gently, so that it restores.
pub struct BenchDaemon {
    child: Child,
    directory: PathBuf,
}

impl BenchDaemon {
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// Starts the daemon with further lines in its configuration.
    pub fn start_with(lines: &str) -> Self {
        Self::start_saying(lines, true)
    }

    /// Starts a daemon that logs no more than a service does: to log a turn costs more than some turns.
    pub fn start_quiet() -> Self {
        Self::start_saying("", false)
    }

    fn start_saying(lines: &str, verbose: bool) -> Self {
        let directory = std::env::temp_dir().join(format!("ksmith-bench-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let config = directory.join("ksmith.toml");
        let sockets = format!(
            "[daemon]\ncontrol_socket = {:?}\n[view]\nsocket = {:?}\n[optin]\nsocket = {:?}\ngroup = \"nogroup\"\n",
            directory.join("control"),
            directory.join("view"),
            directory.join("users"),
        );
        fs::write(&config, format!("{lines}{sockets}")).unwrap();
        let log = File::create(directory.join("log")).unwrap();
        let mut command = Command::new(program());
        command
            .args(verbose.then_some("--verbose"))
            .args(["daemon", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stderr(log);
        as_the_unit_does(&mut command);
        Self { child: command.spawn().unwrap(), directory }
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

    /// Waits until it has taken so many turns.
    pub fn settle_for(&self, turns: usize) {
        while self.turns().len() < turns {
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn state(&self) -> Option<String> {
        let answer = ControlClient::connect(&self.socket()).and_then(|mut client| client.status()).ok()?;
        Some(answer.daemon?.state)
    }

    /// The socket for ordinary users.
    pub fn users_socket(&self) -> PathBuf {
        self.directory.join("users")
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("control")
    }

    /// The configuration file for commands that send requests to the daemon.
    pub fn config(&self) -> PathBuf {
        self.directory.join("ksmith.toml")
    }

    /// CPU time of all its threads and children, to the nanosecond (`/proc/PID/stat` counts in ticks of 10 ms).
    pub fn cpu(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten();
        let own = tasks.filter_map(|task| used(&task.path())).sum();
        // The children read files of processes for it.
        Duration::from_nanos(own) + self.cpu_of_children()
    }

    /// CPU time since the start, of threads and children that have ended too. `/proc/PID/stat` counts in ticks of 10 ms.
    pub fn cpu_of_all(&self) -> Duration {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
        // Own and of children, in user mode and in the kernel: fields 14 to 17 of proc(5), counted from the state, which is 3.
        let ticks: u64 = fields[11..15].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        let of_stat = Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second());
        of_stat + self.cpu_of_children()
    }

    /// CPU time of the children that it has now.
    fn cpu_of_children(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten();
        let of = |task: fs::DirEntry| {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            children.split_ascii_whitespace().filter_map(|pid| used(&Path::new("/proc").join(pid))).sum::<u64>()
        };
        Duration::from_nanos(tasks.map(of).sum())
    }

    /// Returns the duration of each turn so far, in microseconds.
    pub fn turns(&self) -> Vec<u64> {
        let log = fs::read_to_string(self.directory.join("log")).unwrap();
        let turn = |line: &str| line.split_once("a turn took ")?.1.strip_suffix(" us")?.parse().ok();
        log.lines().filter_map(turn).collect()
    }

    pub fn rss_kib(&self) -> u64 {
        self.memory_kib("VmRSS:")
    }

    /// The most memory that it had so far.
    pub fn most_kib(&self) -> u64 {
        self.memory_kib("VmHWM:")
    }

    fn memory_kib(&self, key: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("its memory");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for BenchDaemon {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        );
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory as &Path);
    }
}
