//! Captured live runs (`testdata/fidelity`), simulated at the costs that were measured beside them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends by panicking")]

mod bounds;
mod runs;

use std::fs;
use std::path::Path;

use bounds::{BOUNDS, DifferenceBounds};
use ksmith_core::sim::SimCosts;
use runs::{RecordedTrace, RunDifference, scaled};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn trace(bounds: &DifferenceBounds) -> RecordedTrace {
    let name = RecordedTrace::file_name(bounds.scenario, bounds.policy, bounds.pages);
    serde_json::from_str(&fs::read_to_string(repository().join("testdata/fidelity").join(name)).unwrap()).unwrap()
}

fn difference(trace: &RecordedTrace) -> RunDifference {
    let directory = tempfile::tempdir().unwrap();
    let scenario = repository().join(format!("scenarios/{}.toml", trace.scenario));
    let scenario = scaled(&scenario, trace.seconds, directory.path()).unwrap();
    RunDifference::between(&trace.simulate(&scenario).unwrap(), &trace.run)
}

/// The rows that are out of their bounds with changed traces.
fn told_by(changed: impl Fn(RecordedTrace) -> RecordedTrace) -> Vec<&'static DifferenceBounds> {
    BOUNDS.iter().filter(|bounds| !bounds.hold(&difference(&changed(trace(bounds))))).collect()
}

#[test]
fn captured_runs_come_out_as_near_as_they_did() {
    let mut wrong = Vec::new();
    for bounds in BOUNDS {
        let difference = difference(&trace(bounds));
        if !bounds.hold(&difference) {
            wrong.push(format!("{} {} {}: {difference}", bounds.scenario, bounds.policy, bounds.pages.name()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_trace_has_its_bounds() {
    let count = fs::read_dir(repository().join("testdata/fidelity")).unwrap().count();
    assert_eq!(count, BOUNDS.len());
}

#[test]
fn doubled_costs_are_told() {
    let double = |SimCosts { checksum, unshared, merge, join, merged, .. }: SimCosts, costs: SimCosts| SimCosts {
        checksum: 2 * checksum,
        unshared: 2 * unshared,
        merge: 2 * merge,
        join: 2 * join,
        merged: 2 * merged,
        ..costs
    };
    let told = told_by(|trace| RecordedTrace { costs: double(trace.costs, trace.costs), ..trace });
    assert!(told.len() >= BOUNDS.len() * 3 / 4, "{told:#?}");
}

#[test]
fn the_rules_of_an_older_kernel_are_told() {
    let told = told_by(|trace| RecordedTrace { kernel: "6.6.0".to_owned(), ..trace });
    assert!(told.len() >= BOUNDS.len() / 2, "{told:#?}");
}

#[test]
fn a_chain_that_costs_nothing_is_told_where_empty_pages_merge_with_each_other() {
    let told = told_by(|trace| RecordedTrace { costs: SimCosts { chain: 0, ..trace.costs }, ..trace });
    assert!(told.iter().any(|bounds| (bounds.scenario, bounds.policy) == ("zeros", "fixed:morfik")), "{told:#?}");
}
