//! Programs that were not written for KSM, started by `ksmith run`: what is merged, and whether it is what it was.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::support::program::{PROGRAM, await_sample};
use crate::support::{KernelLock, clean_passes, skipped};
use serde_json::Value;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
const MIB: u64 = 1 << 20;

/// Runs a service of `examples/` until ksmd has been over its memory often enough. What it says of itself, and what
/// `ksmith run` reports. `None` where it can't be started.
fn served(program: &str, arguments: &[&str]) -> Option<(Value, Value)> {
    let there = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        skipped(&format!("{program} is not installed"));
        return None;
    }
    let _lock = KernelLock::acquire()?;
    let tree = tempfile::tempdir().unwrap();
    let (report, log) = (tree.path().join("report.json"), tree.path().join("log"));
    let mut child = Command::new(PROGRAM)
        .args(["run", "--prctl", "--scan", "never", "-vv", "--report"])
        .arg(&report)
        .args(["--", program])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "a service with its data loaded");
    // ksmd may stand in the middle of a pass, and a page merges on its second visit.
    clean_passes(4);
    await_sample(|| fs::read_to_string(&log).unwrap());
    drop(child.stdin.take());
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}: {said} {}", fs::read_to_string(&log).unwrap());
    let report = fs::read_to_string(report).unwrap();
    Some((serde_json::from_str(&said).unwrap(), serde_json::from_str(&report).unwrap()))
}

/// Asserts that equal memory, `each` bytes in each of `workers`, is kept about once.
fn assert_saved(workers: u64, each: u64, (said, report): &(Value, Value)) {
    assert_eq!(said["wrong"], 0, "every page was read at the end: {said}");
    let merged = said["merged_bytes"].as_u64().unwrap();
    assert!(merged >= workers * each, "{said}");
    let saved = report["peak_saved_bytes"].as_u64().unwrap();
    assert!(saved >= (workers - 1) * each, "{report}");
    let difference = said["rss_bytes"].as_u64().unwrap() - said["pss_bytes"].as_u64().unwrap();
    assert!(difference >= (workers - 1) * each, "RSS counts what is merged, PSS does not: {said}");
}

#[test]
fn python_workers_that_load_the_same_after_the_fork_keep_it_about_once() {
    let service = format!("{EXAMPLES}/python-service/service.py");
    let arguments =
        [&service, "--workers", "4", "--records", "20000", "--table", "16", "--cache", "4", "--seconds", "0"];
    let Some(seen) = served("python3", &arguments) else { return };
    assert_saved(4, 16 * MIB, &seen);
    // The objects hold references; they are equal because all workers were forked from the same heap.
    assert!(seen.0["merged_bytes"].as_u64().unwrap() >= 4 * 20 * MIB, "objects merge too: {}", seen.0);
}

#[test]
fn node_workers_keep_their_tables_about_once() {
    let service = format!("{EXAMPLES}/node-service/service.js");
    let Some(seen) = served("node", &[&service, "3", "0"]) else { return };
    assert_saved(3, 30 * MIB, &seen);
}
