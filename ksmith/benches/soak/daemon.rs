//! The daemon of the soak: everything on, watched from outside.

use std::fs;
use std::path::Path;
use std::time::Instant;

use ksmith_core::kernel::PidStat;
use ksmith_host::ksmd;
use ksmith_host::root::Root;
use rustix::process::Signal;

use crate::flat::DaemonUsage;
use crate::parent_death::end_with_parent;
use crate::support::number;
use crate::support::program::RunningProgram;

/// Every part of the daemon at work: pruning, trust domains, scans for users, and balance.
const CONFIG: &str = r#"
[policy]
kind = "profit"
[policy.profit]
growth_mib = 1.0
[guests]
prune = true
prune_after_passes = 4
prune_retry_seconds = 30
[domains]
mode = "one"
admit = "own"
remaining_mergeable_mib = 4
[[domains.rule]]
domain = "foreign"
name = "foreign-*"
[[domains.rule]]
domain = "own"
user = "root"
[[domains.rule]]
domain = "own"
user = "*"
[optin]
group = "nogroup"
cpu_seconds_per_hour = 3600.0
passes_per_hour = 100000
[balance]
enabled = true
policy = "squeeze"
cooldown_seconds = 0.5
[balance.squeeze]
interval_seconds = 1.0
step_percent = 5.0
rest_seconds = 5.0
"#;

/// A daemon of the release build with everything on. If the soak is killed, the daemon is told to end, and restores.
pub fn start(place: &Path) -> (RunningProgram, tempfile::NamedTempFile) {
    let history = format!("[history]\npath = {:?}\n", place.join("history.db"));
    let (file, path) = crate::support::program::config_file(&format!("{CONFIG}{history}"));
    let mut daemon = RunningProgram::start_with(&["-v", "daemon", "--config", &path], |command| {
        end_with_parent(command, Signal::TERM)
    });
    daemon.wait_ready();
    (daemon, file)
}

/// A monitor of a daemon's resources.
pub struct DaemonMonitor {
    pid: u32,
    began: Instant,
    /// The moment of the sample before, and what the daemon and ksmd had used by then, in seconds.
    before: (f64, [f64; 2]),
}

impl DaemonMonitor {
    pub fn over(pid: u32) -> Self {
        let mut watch = Self { pid, began: Instant::now(), before: (0.0, [0.0; 2]) };
        watch.before = (0.0, watch.cpu(&watch.family()));
        watch
    }

    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Samples the present usage, with the shares of CPU since the call before.
    pub fn sample_usage(&mut self, processes: usize) -> DaemonUsage {
        let family = self.family();
        let seconds = self.seconds();
        let cpu = self.cpu(&family);
        let (then, used) = std::mem::replace(&mut self.before, (seconds, cpu));
        // A child that has ended takes its time with it.
        let percent = |at: usize| 100.0 * (cpu[at] - used[at]).max(0.0) / (seconds - then).max(0.001);
        let sum = |of: fn(u32) -> f64| family.iter().map(|pid| of(*pid)).sum::<f64>();
        DaemonUsage {
            seconds,
            rss_kib: rss_kib(self.pid),
            child_rss_kib: family.iter().skip(1).map(|pid| rss_kib(*pid)).fold(0.0, f64::max),
            descriptors: sum(|pid| entries(pid, "fd")),
            threads: sum(|pid| entries(pid, "task")),
            children: family.len() as f64 - 1.0,
            cpu_percent: percent(0),
            ksmd_cpu_percent: percent(1),
            saved_mib: number("pages_sharing") as f64 / 256.0,
            processes: processes as f64,
        }
    }

    /// The daemon, and its children, which read files of other processes for it.
    fn family(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children =
            texts.flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>());
        [self.pid].into_iter().chain(children).collect()
    }

    fn cpu(&self, family: &[u32]) -> [f64; 2] {
        let ticks = |pid: &u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some(PidStat::parse(&text).ok()?.cpu_ticks)
        };
        let own =
            family.iter().filter_map(ticks).sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64;
        let ksmd = ksmd::cpu_ns(&Root::host()).unwrap_or(0) as f64 / 1e9;
        [own, ksmd]
    }
}

/// The resident memory of a process, or 0 if it has ended.
fn rss_kib(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0.0)
}

/// The number of entries of a directory of a process, or 0 if the process has ended.
fn entries(pid: u32, directory: &str) -> f64 {
    fs::read_dir(format!("/proc/{pid}/{directory}")).map_or(0.0, |all| all.count() as f64)
}
