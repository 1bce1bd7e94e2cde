//! The simulator against recorded runs of the live kernel (`testdata/fidelity`): saved memory over time, ksmd's CPU and its passes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::fidelity::{Difference, Run, Trace, scaled};
use crate::support::program::ksmith;
use serde_json::Value;

/// How far the simulated run may be from the recorded one. The bounds are a little above what was measured
/// (docs/measurements/2026-11-sim.md), and hold for the trace of this scenario and policy.
struct Bound {
    trace: &'static str,
    /// The mean difference of saved memory over the run.
    mean: f64,
    /// ksmd's CPU time, simulated over live.
    cpu: [f64; 2],
    /// Passes more or less.
    passes: u64,
}

BOUNDS

fn traces() -> BTreeMap<String, Trace> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/fidelity");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    let name = |path: &PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    files.map(|path| (name(&path), serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap())).collect()
}

/// Simulates what was recorded, with its host's costs changed by `change`.
fn simulated(trace: &Trace, change: impl Fn(&mut toml::Table), more: &[&str]) -> Difference {
    let directory = tempfile::tempdir().unwrap();
    let file = scaled(&trace.scenario, trace.seconds, directory.path());
    let costs = directory.path().join("costs.toml");
    let mut table = trace.costs.clone();
    change(&mut table);
    fs::write(&costs, table.to_string()).unwrap();
    let (file, costs) = (file.to_str().unwrap(), costs.to_str().unwrap());
    let words = ["sim", file, "--policies", &trace.policy, "--costs", costs, "--json"];
    let (code, text, err) = ksmith(&[&words, more].concat());
    assert_eq!(code, 0, "{err}");
    let results: Value = serde_json::from_str(&text).unwrap();
    Difference::of(&Run::all_of(&results)[0], &trace.run)
}

impl Bound {
    fn holds(&self, difference: &Difference) -> bool {
        let [least, most] = self.cpu;
        difference.mean.abs() <= self.mean
            && (least..=most).contains(&difference.cpu_ratio())
            && difference.passes[0].abs_diff(difference.passes[1]) <= self.passes
    }
}

#[test]
fn simulated_runs_are_near_the_recorded_ones() {
    let traces = traces();
    assert_eq!(traces.len(), BOUNDS.len(), "each trace has its bounds");
    for bound in &BOUNDS {
        let difference = simulated(&traces[bound.trace], |_| (), &[]);
        assert!(bound.holds(&difference), "{}: {difference}", bound.trace);
    }
}

/// The bounds are tight enough to tell a wrong simulator.
#[test]
fn wrong_costs_and_a_ksmd_without_smart_scan_are_told() {
    let traces = traces();
    let twice = |key: &'static str| {
        move |table: &mut toml::Table| {
            let ns = table[key].as_integer().unwrap();
            table.insert(key.to_owned(), (2 * ns).into());
        }
    };
    for key in ["unshared", "merge"] {
        let told = BOUNDS.iter().filter(|bound| !bound.holds(&simulated(&traces[bound.trace], twice(key), &[]))).count();
        assert!(told > 0, "twice the cost of {key} is not told");
    }
    // Linux 6.6 visits each page in each pass.
    let without = |bound: &&Bound| !bound.holds(&simulated(&traces[bound.trace], |_| (), &["--kernel", "6.6"]));
    assert!(BOUNDS.iter().filter(without).count() > 0, "smart_scan makes no difference");
}
