//! Writes to zero pages, each followed at once by a change of mappings with which folding might race.

use std::fs;

use serde_json::Value;

use crate::fold_loop::FoldLoop;
use crate::support::hold_off_ksm;
use crate::support::program::PROGRAM;

use super::kernel_log::KernelLog;
use super::program::StressProgram;
use super::{long_seconds, print_outcome};

/// The attacks of `attacks.c`.
pub const ATTACKS: [&str; 6] = ["seal", "lock", "discard", "move", "jit", "group"];

#[test]
fn no_write_is_lost_beside_changes_of_mappings() {
    let Some(program) = StressProgram::compile() else { return };
    fold_beside(&program, "attacks", 5);
}

#[test]
fn no_write_is_lost_under_a_run_that_folds() {
    let Some(program) = StressProgram::compile() else { return };
    fold_by_run(&program, 5);
}

#[test]
#[ignore = "for make stress: each attack as long as STRESS_SECONDS says, and all once more under `ksmith run`"]
fn for_long_attacks() {
    let Some(program) = StressProgram::compile() else { return };
    for attack in ATTACKS {
        fold_beside(&program, attack, long_seconds());
    }
    fold_by_run(&program, long_seconds());
}

/// Runs `ksmith fold` in a loop beside one attack or all.
fn fold_beside(program: &StressProgram, attack: &str, seconds: u64) {
    let Some(mut folds) = FoldLoop::prepare() else { return };
    let _lock = hold_off_ksm();
    let mut log = KernelLog::from_now();
    let mut stress = program.start(seconds, &[attack]);
    while stress.is_running() {
        stress.fold_once(&mut folds);
        assert_eq!(log.faults(), Vec::<String>::new());
    }
    let counts = stress.finish();
    print_outcome(&format!("{attack}, {seconds} s: {folds}, {counts}"));
    assert!(folds.freed_bytes() > 0, "nothing was folded: {counts}");
}

/// Runs all attacks under `ksmith run`, which folds them each second.
fn fold_by_run(program: &StressProgram, seconds: u64) {
    if FoldLoop::prepare().is_none() {
        return;
    }
    let _lock = hold_off_ksm();
    let mut log = KernelLog::from_now();
    let report = program.path().with_file_name("report.json");
    let line = [PROGRAM, "run", "--fold=every=1s", "--scan", "never", "--report"];
    let line = [&line[..], &[report.to_str().unwrap(), "--"]].concat();
    let counts = program.start_under(&line, seconds, &["attacks"]).finish();
    let json: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    let folded = json["folded_bytes"].as_u64();
    print_outcome(&format!(
        "ksmith run --fold=every=1s, {seconds} s: {} MiB freed, {counts}",
        folded.unwrap_or(0) >> 20
    ));
    assert_eq!(log.faults(), Vec::<String>::new());
    assert!(folded.is_some_and(|bytes| bytes > 0), "nothing was folded: {json}");
}
