//! One run of a job, with its time, memory and CPU.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ksmith_core::kernel::{KsmStat, PidStat, RMAP_ITEM_BYTES, SmapsRollup};
use ksmith_core::units::Bytes;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_lab::measure::Spread;
use serde::Serialize;

use crate::contender::{ControlledKsm, HpcContender};
use crate::foretold::ForetoldScans;
use crate::opt_in::opt_in;

/// Between two looks at a job's memory. Looking costs the kernel a walk over all its page tables.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// The figures of a job's run, from the start of the command to its end.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct JobRun {
    /// Wall time from start to end.
    pub(crate) wall_seconds: f64,
    /// PSS and swap of all processes together, with KSM's metadata for them: on average over time.
    pub(crate) mean_bytes: f64,
    /// The same over the second half of the run: what a long run comes to.
    pub(crate) late_bytes: f64,
    /// The median over the second half: of a job whose memory swings, what it holds between the swings.
    pub(crate) usual_late_bytes: f64,
    /// The most of it.
    pub(crate) peak_bytes: u64,
    /// CPU time of the job with its system time, which other load on the host hardly changes. Processes that
    /// their parent did not wait for are missing, such as workers of Node's cluster.
    pub(crate) job_seconds: f64,
    /// ksmd's CPU.
    pub(crate) ksmd_seconds: f64,
    /// The daemon's own CPU.
    pub(crate) daemon_seconds: f64,
    /// Merged pages that were copied on a write.
    pub(crate) breaks: u64,
    /// The results that the job printed: the same in all runs.
    pub(crate) shown: String,
    /// The daemon's forecasts; of no daemon, none.
    pub(crate) foretold: ForetoldScans,
    /// Seconds from the start, bytes.
    pub(crate) looks: Vec<(f64, u64)>,
}

impl fmt::Display for JobRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} s, {:.2} CPU-s, {} on average, {} at most, ksmd {:.2} CPU-s, daemon {:.2} CPU-s, {} copied, {}",
            self.wall_seconds,
            self.job_seconds,
            Bytes(self.mean_bytes as i128),
            Bytes::from(self.peak_bytes),
            self.ksmd_seconds,
            self.daemon_seconds,
            self.breaks,
            self.shown,
        )
    }
}

/// Runs the command in `place` to its end. `shows` finds its result in what it prints.
pub(crate) fn play(
    contender: HpcContender,
    control: &ControlledKsm,
    words: &[String],
    place: &Path,
    shows: fn(&str) -> Option<String>,
) -> JobRun {
    let root = Root::host();
    let mut observer = HostObserver::new(root.clone());
    let output = place.join("output");
    let mut command = command(contender, control, words, place);
    let file = File::create(&output).unwrap();
    command.current_dir(place).stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    let before = observer.sample();
    let daemon_before = control.pid().map_or(0.0, cpu_seconds);
    let children_before = children_seconds();
    let began = Instant::now();
    let mut child = command.spawn().unwrap();
    let (mut looks, mut next) = (Vec::new(), BETWEEN_LOOKS);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() >= next {
            next += BETWEEN_LOOKS;
            let bytes = memory(child.id());
            looks.push((began.elapsed().as_secs_f64(), bytes));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let wall_seconds = began.elapsed().as_secs_f64();
    // The last one may have met processes on their way out.
    looks.pop();
    let after = observer.sample();
    let said = fs::read_to_string(&output).unwrap();
    assert!(status.success(), "{words:?}: {status}: {said}");
    let ksmd = |sample: &ksmith_core::sample::Sample| sample.ksmd_cpu_ns.get().unwrap_or(0) as f64 / 1e9;
    let copied = |sample: &ksmith_core::sample::Sample| {
        sample.host.vmstat.as_ref().value().and_then(|vmstat| vmstat.cow_ksm).unwrap_or(0)
    };
    JobRun {
        wall_seconds,
        mean_bytes: mean(&looks),
        late_bytes: mean(&looks[looks.len() / 2..]),
        usual_late_bytes: Spread::from_values(
            looks[looks.len() / 2..].iter().map(|(_, bytes)| Some(*bytes as f64)),
        )
        .median
        .unwrap_or(0.0),
        peak_bytes: looks.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0),
        job_seconds: children_seconds() - children_before,
        ksmd_seconds: ksmd(&after) - ksmd(&before),
        daemon_seconds: control.pid().map_or(0.0, cpu_seconds) - daemon_before,
        breaks: copied(&after) - copied(&before),
        foretold: ForetoldScans::read(&fs::read_to_string(place.join("daemon.log")).unwrap_or_default()),
        shown: shows(&said).unwrap_or_else(|| panic!("{words:?} shows no result: {said}")),
        looks,
    }
}

fn mean(looks: &[(f64, u64)]) -> f64 {
    looks.iter().map(|(_, bytes)| *bytes as f64).sum::<f64>() / looks.len().max(1) as f64
}

fn command(contender: HpcContender, control: &ControlledKsm, words: &[String], place: &Path) -> Command {
    let (program, rest) = words.split_first().unwrap();
    if let Some(config) = &control.config {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ksmith"));
        command.arg("run").args(contender.options()).args(["--quiet", "--config"]).arg(config);
        command.arg("--report").arg(place.join("report.json")).arg("--").args(words);
        return command;
    }
    let mut command = Command::new(program);
    command.args(rest);
    if contender.opts_in() {
        opt_in(&mut command);
    }
    command
}

/// PSS, swap and KSM's metadata of a process and all its descendants.
fn memory(of: u32) -> u64 {
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let text = |pid: u32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let parents: Vec<(u32, u32)> =
        pids.filter_map(|pid| Some((pid, PidStat::parse(&text(pid, "stat")).ok()?.parent))).collect();
    let mut family = BTreeSet::from([of]);
    loop {
        let known = family.len();
        family.extend(
            parents.iter().filter(|(_, parent)| family.contains(parent)).map(|(pid, _)| *pid).collect::<Vec<_>>(),
        );
        if family.len() == known {
            break;
        }
    }
    let bytes = |pid: u32| {
        let rollup = SmapsRollup::parse(&text(pid, "smaps_rollup")).unwrap_or_default();
        let ksm = KsmStat::parse(&text(pid, "ksm_stat")).unwrap_or_default();
        rollup.pss.unwrap_or(0) + rollup.swap.unwrap_or(0) + ksm.rmap_items.unwrap_or(0) * RMAP_ITEM_BYTES
    };
    family.into_iter().map(bytes).sum()
}

/// The CPU time of all children of ours that have ended, and theirs: fields 16 and 17 of the text, in hundredths of a second.
fn children_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap();
    let behind_name = text.rsplit_once(')').unwrap().1;
    let ticks = behind_name.split_whitespace().skip(13).take(2).map(|field| field.parse::<f64>().unwrap());
    ticks.sum::<f64>() / 100.0
}

/// The CPU time of all threads of a process.
fn cpu_seconds(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    tasks.filter_map(of).sum::<u64>() as f64 / 1e9
}
