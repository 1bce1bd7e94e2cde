//! One run: two guests from a daemon's start on.

use ksmith_host::ksmd;
use ksmith_host::root::Root;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::guest::BenchGuest;
use crate::mixture::MemoryMixture;
use crate::options::HugeBenchOptions;
use crate::support::program::{RunningProgram, config_file};

/// The figures of one run; those of the burst come before those of the steady state.
#[derive(Debug, Clone, Copy)]
pub struct HugeRun {
    pub saved_part: f64,
    pub huge_part: f64,
    pub accesses: [f64; 2],
    /// The part of a CPU that ksmd used.
    pub ksmd: [f64; 2],
}

impl HugeRun {
    /// Puts the accesses as parts of others.
    pub fn compared_with(mut self, usual: [f64; 2]) -> Self {
        self.accesses.iter_mut().zip(usual).for_each(|(accesses, usual)| *accesses /= usual);
        self
    }
}

/// Plays a run, under a daemon if there is a configuration for one.
pub fn play(mixture: MemoryMixture, config: Option<&str>, options: &HugeBenchOptions) -> HugeRun {
    let mut guests = [options.start(mixture), options.start(mixture)];
    let mut config = config.map(str::to_owned);
    if options.is_apart {
        guests.iter().for_each(|guest| bind_to_first_cpu(guest.pid()));
        config = config.map(|config| format!("{config}[daemon]\nksmd_cpus = \"{}\"\n", other_cpus()));
    }
    let pss = |guests: &[Box<dyn BenchGuest>]| guests.iter().map(|guest| guest.sums().pss.unwrap()).sum::<u64>();
    let before = pss(&guests);
    let daemon = config.map(|config| {
        let (file, path) = config_file(&config);
        (RunningProgram::start(&["daemon", "--config", &path]), file)
    });
    let phases = options.phases.map(|time| {
        let ksmd_before = ksmd_seconds();
        guests.iter_mut().for_each(|guest| guest.begin(time));
        let accesses: f64 = guests.iter_mut().map(|guest| guest.accesses()).sum();
        (accesses, (ksmd_seconds() - ksmd_before) / time.as_secs_f64())
    });
    let after = pss(&guests);
    let huge: u64 = guests.iter().map(|guest| guest.sums().anon_huge.unwrap()).sum();
    drop(guests);
    if let Some((daemon, _file)) = daemon {
        daemon.end();
    }
    let bytes = ((2 * options.mib) << 20) as f64;
    HugeRun {
        saved_part: before.saturating_sub(after) as f64 / bytes,
        huge_part: huge as f64 / bytes,
        accesses: phases.map(|(accesses, _)| accesses),
        ksmd: phases.map(|(_, ksmd)| ksmd),
    }
}

/// Plays pairs of runs, each without a daemon and then under one, with the same two guests and thus the same frames of memory.
/// Returns the accesses under the daemon as parts of those before and after, and what the guests have saved and in huge pages
/// at the end.
pub fn alternate(mixture: MemoryMixture, config: &str, pairs: usize, options: &HugeBenchOptions) -> AlternateRuns {
    let mut guests = [options.start(mixture), options.start(mixture)];
    let pss = |guests: &[Box<dyn BenchGuest>]| guests.iter().map(|guest| guest.sums().pss.unwrap()).sum::<u64>();
    let before = pss(&guests);
    let mut use_memory = || {
        guests.iter_mut().for_each(|guest| guest.begin(options.phases[0]));
        guests.iter_mut().map(|guest| guest.accesses()).sum::<f64>()
    };
    let mut without = vec![use_memory()];
    let mut parts = Vec::new();
    for _ in 0..pairs {
        let (file, path) = config_file(config);
        let daemon = RunningProgram::start(&["daemon", "--config", &path]);
        let with = use_memory();
        daemon.end();
        drop(file);
        without.push(use_memory());
        parts.push(with / f64::midpoint(without[without.len() - 2], without[without.len() - 1]));
    }
    let bytes = ((2 * options.mib) << 20) as f64;
    let huge: u64 = guests.iter().map(|guest| guest.sums().anon_huge.unwrap()).sum();
    let saved_part = before.saturating_sub(pss(&guests)) as f64 / bytes;
    AlternateRuns { parts, saved_part, huge_part: huge as f64 / bytes }
}

/// The figures of runs by turns.
pub struct AlternateRuns {
    pub parts: Vec<f64>,
    pub saved_part: f64,
    pub huge_part: f64,
}

/// Binds the first thread of a process, which does a guest's work.
fn bind_to_first_cpu(pid: u32) {
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(Pid::from_raw(pid.cast_signed()), &first).unwrap();
}

/// The list of all CPUs but the first.
fn other_cpus() -> String {
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(cpus > 1, "--apart takes two CPUs");
    if cpus == 2 { "1".to_owned() } else { format!("1-{}", cpus - 1) }
}

fn ksmd_seconds() -> f64 {
    ksmd::cpu_ns(&Root::host()).expect("a ksmd") as f64 / 1e9
}
