//! `ksmith sim calibrate` on the live kernel: its figures are those of a ksmd, the simulator takes them, and nothing stays changed.

use std::fs;

use crate::support::program::{RunningProgram, ksmith};
use crate::support::{KernelLock, guest, number, wait_until, zero_pages};
use ksmith_core::sim::SimCosts;
use ksmith_host::root::Root;
use ksmith_lab::{GuestPages, MemoryPart};
use rustix::process::Signal;
use serde_json::Value;

/// The memory that is accessed at random, in bytes.
const WORKING_SETS: [u64; 3] = [8 << 20, 64 << 20, 256 << 20];

#[test]
fn costs_are_measured_written_and_taken_by_the_simulator() {
    let Some(lock) = KernelLock::acquire() else { return };
    let tree = tempfile::tempdir().unwrap();
    let out = tree.path().join("costs.toml");
    let (code, text, err) = ksmith(&["sim", "calibrate", "--json", "--out", out.to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("round 5 of 5, about "), "{err}");
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
    assert_eq!((number("pages_shared"), zero_pages()), (0, 0), "nothing stays merged");

    let report: Value = serde_json::from_str(&text).unwrap();
    let costs: SimCosts = toml::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!(serde_json::to_value(costs).unwrap(), report["costs"], "the file has the medians");
    // Each page of 4 KiB is read for its checksum, and compared with others to merge.
    assert!((200..20_000).contains(&costs.checksum), "{costs:?}");
    assert!(costs.unshared > costs.checksum && costs.unshared < 50_000, "{costs:?}");
    assert!(costs.merge > costs.checksum && costs.merge < 100_000, "{costs:?}");
    // No page is read for these.
    assert!(costs.merged < costs.checksum && costs.skip < costs.checksum && costs.walk < costs.merged, "{costs:?}");
    are_huge_pages_measured(&report);
    assert!(costs.batch < 500_000 && costs.write > 100, "{costs:?}");

    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/idle.toml");
    let passes = |costs: &[&str]| {
        let words = [&["sim", scenario, "--policies", "fixed:still", "--json"], costs].concat();
        let (code, text, err) = ksmith(&words);
        assert_eq!(code, 0, "{err}");
        let results: Value = serde_json::from_str(&text).unwrap();
        results["scenarios"][0]["competitors"][0]["summary"]["passes"]["median"].as_f64().unwrap()
    };
    assert!(passes(&["--costs", out.to_str().unwrap()]) > 0.0);
}

/// Checks that splits, collapses, and accesses in huge pages and in small ones are measured where this host has huge pages, and
/// that none is where it has none.
fn are_huge_pages_measured(report: &Value) {
    let are_given = GuestPages::Huge.are_given(&Root::host());
    let measured = |key: &str| {
        let costs = report["measured"].as_array().unwrap();
        let cost = costs.iter().find(|cost| cost["key"] == key).unwrap_or_else(|| panic!("no {key}: {report}"));
        cost["ns"]["median"].is_number()
    };
    assert_eq!(["split", "collapse", "freed"].map(measured), [are_given; 3], "{report}");
    let accesses = report["accesses"].as_array().unwrap();
    let sets: Vec<_> = accesses.iter().map(|access| access["working_set_bytes"].as_u64().unwrap()).collect();
    assert_eq!(sets, if are_given { WORKING_SETS.to_vec() } else { Vec::new() }, "{report}");
    for access in accesses {
        let figures = ["huge_ns", "small_ns"].map(|pages| ["min", "median", "max"].map(|key| &access[pages][key]));
        assert!(figures.into_iter().flatten().all(Value::is_number), "{access}");
        let [huge_ns, small_ns] = figures.map(|[_, median, _]| median.as_f64().unwrap());
        let lost_cpus = access["lost_cpus"].as_f64().unwrap();
        assert!((lost_cpus - (1.0 - huge_ns / small_ns)).abs() < 1e-9, "{access}");
    }
}

#[test]
fn an_interrupted_measurement_leaves_nothing() {
    let Some(lock) = KernelLock::acquire() else { return };
    let mut calibrate = RunningProgram::start(&["sim", "calibrate"]);
    wait_until("ksmd is measured", || number("run") == 1 && number("pages_unshared") > 0);
    calibrate.signal(Signal::INT);
    let ended = calibrate.wait();
    assert_eq!(ended.code(), Some(1), "{ended:?}: {}", calibrate.log());
    assert!(calibrate.log().contains("interrupted; guests are ended"), "{}", calibrate.log());
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
    assert_eq!(number("pages_shared"), 0);
}

#[test]
fn a_host_with_ksm_in_use_is_not_measured() {
    let Some(lock) = KernelLock::acquire() else { return };
    let _guest = guest(&[MemoryPart::Unique { pages: 16_384 }]);
    let (code, _, err) = ksmith(&["sim", "calibrate"]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("KSM is in use on this host (0 B saved,"), "{err}");
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}
