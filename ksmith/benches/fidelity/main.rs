//! The simulator against the live kernel: each scenario under each policy, played on both.
//!
//! `cargo bench -p ksmith --bench fidelity -- [SCENARIO…] [--policies a,b] [--pages small|huge] [--seconds N] [--repeat N] [--costs FILE]
//! [--record DIR]` needs root, and a host where KSM is not in use. It measures this host's ksmd first. `--record` keeps each first live run as a
//! trace. `--against DIR` plays nothing: it simulates the traces that are there and compares.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]

#[path = "../../../lab/tests/fidelity/runs/mod.rs"]
mod runs;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ksmith_host::ksmd;
use ksmith_host::root::Root;
use ksmith_lab::GuestPages;
use ksmith_lab::simulate::load_costs;
use runs::trace::TracedRun;
use runs::{RecordedTrace, RunDifference, scaled};
use serde_json::Value;
use support::KernelLock;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ksmith");

/// The default scenarios: a part that takes some minutes.
const USUAL: [&str; 2] = ["burst", "zeros"];
const USUAL_POLICIES: &str = "profit,fixed:morfik,reference";

/// The longest run that holds the kernel's lock at a stretch is one run.
const USUAL_SECONDS: f64 = 30.0;

#[derive(Debug)]
struct FidelityOptions {
    scenarios: Vec<String>,
    policies: Vec<String>,
    pages: GuestPages,
    seconds: f64,
    repeat: u32,
    costs: Option<PathBuf>,
    record: Option<PathBuf>,
    against: Option<PathBuf>,
}

impl FidelityOptions {
    fn read() -> Self {
        let policies = |text: &str| text.split(',').map(str::to_owned).collect();
        let mut options = Self {
            scenarios: Vec::new(),
            policies: policies(USUAL_POLICIES),
            pages: GuestPages::Small,
            seconds: USUAL_SECONDS,
            repeat: 1,
            costs: None,
            record: None,
            against: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} takes a value"));
            match word.as_str() {
                "--bench" => {}
                "--policies" => options.policies = policies(&value()),
                "--pages" => options.pages = serde_json::from_value(value().into()).unwrap(),
                "--seconds" => options.seconds = value().parse().unwrap(),
                "--repeat" => options.repeat = value().parse().unwrap(),
                "--costs" => options.costs = Some(value().into()),
                "--record" => options.record = Some(value().into()),
                "--against" => options.against = Some(value().into()),
                other if other.starts_with('-') => panic!("there is no option {other}"),
                scenario => options.scenarios.push(scenario.to_owned()),
            }
        }
        if options.scenarios.is_empty() {
            options.scenarios = USUAL.map(str::to_owned).to_vec();
        }
        options
    }
}

fn main() {
    let options = FidelityOptions::read();
    let directory = tempfile::tempdir().unwrap();
    println!(
        "scenario | policy | saved: greatest difference | mean | ksmd's CPU, simulated / live | passes | within the aim"
    );
    if let Some(traces) = &options.against {
        let mut paths: Vec<PathBuf> = fs::read_dir(traces).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|ending| ending == "json")) {
            let trace: RecordedTrace = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
            if options.scenarios == USUAL || options.scenarios.contains(&trace.scenario) {
                let costs = options.costs.as_deref().map_or(trace.costs, |file| load_costs(file).unwrap());
                row(&RecordedTrace { costs, ..trace }, directory.path());
            }
        }
        return;
    }
    let costs = options.costs.clone().unwrap_or_else(|| directory.path().join("costs.toml"));
    if options.costs.is_none() {
        let Some(_lock) = KernelLock::acquire() else { return };
        run(&["sim", "calibrate", "--out", costs.to_str().unwrap()]);
    }
    let costs = load_costs(&costs).unwrap();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for repeat in 0..options.repeat {
        for scenario in &options.scenarios {
            let file = scaled(&shipped(scenario), options.seconds, directory.path()).unwrap();
            for policy in &options.policies {
                let (before, live, after) = {
                    // The lock for each run apart, so that other tests get their turns.
                    let Some(_lock) = KernelLock::acquire() else { return };
                    let before = ksmd_times();
                    let pages = options.pages.name();
                    let file = file.to_str().unwrap();
                    let live = run(&["lab", "run", file, "--pages", pages, "--policies", policy, "--json"]);
                    (before, live, ksmd_times())
                };
                let [ran_ns, waited_ns] = [0, 1].map(|field| after[field] - before[field]);
                let run = TracedRun::all_of(&serde_json::from_str::<Value>(&live).unwrap()).remove(0);
                let trace = RecordedTrace {
                    scenario: scenario.clone(),
                    policy: policy.clone(),
                    pages: options.pages,
                    seconds: options.seconds,
                    kernel: release.trim().to_owned(),
                    costs,
                    ksmd_before_ms: before[0] / 1_000_000,
                    ksmd_share_permille: u32::try_from(1000 * ran_ns / (ran_ns + waited_ns).max(1)).unwrap(),
                    can_rest: true,
                    run,
                };
                if let Some(record) = options.record.as_ref().filter(|_| repeat == 0) {
                    fs::create_dir_all(record).unwrap();
                    let name = RecordedTrace::file_name(scenario, policy, options.pages);
                    fs::write(record.join(name), serde_json::to_string(&trace).unwrap()).unwrap();
                }
                row(&trace, directory.path());
            }
        }
    }
}

/// ksmd's CPU time so far, and the time for which it could have run and did not, in nanoseconds.
fn ksmd_times() -> [u64; 2] {
    let pid = ksmd::pid(&Root::host()).expect("a ksmd");
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    let mut fields = text.split_whitespace().map(|field| field.parse().unwrap());
    [fields.next().unwrap(), fields.next().unwrap()]
}

/// Path of a shipped scenario.
fn shipped(scenario: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../scenarios/{scenario}.toml"))
}

/// Simulates what was recorded, and prints the comparison.
fn row(trace: &RecordedTrace, directory: &Path) {
    let scenario = scaled(&shipped(&trace.scenario), trace.seconds, directory).unwrap();
    let difference = RunDifference::between(&trace.simulate(&scenario).unwrap(), &trace.run);
    println!("{} | {} | {difference}", trace.scenario, trace.policy);
}

/// Runs ksmith and returns its output.
fn run(words: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(words).stdin(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
