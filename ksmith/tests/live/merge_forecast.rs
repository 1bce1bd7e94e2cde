//! A forecast keeps ksmd from splitting all huge pages for little.

use rustix::process::Signal;

use crate::doctor::doctor;
use crate::huge_pages::{merged, paired_guests, rollup, scattered_guests};
use crate::merge_readings::hold_khugepaged;
use crate::support::program::{RunningProgram, config_file, ksmith, status};
use crate::support::{KernelLock, clean_passes, number, wait_until};

/// Pages of each of two guests: 48 MiB in 24 huge pages.
const PAGES: usize = 12_288;

/// One page in so many is equal in both guests: merging would save a fortieth of the huge pages, and split all.
const EQUAL_ONE_IN: usize = 20;

/// Estimates of one memory.
const ESTIMATES: usize = 9;

/// Bytes that both guests can merge together.
const EQUAL: u64 = (2 * PAGES / EQUAL_ONE_IN * 4096) as u64;

#[test]
fn the_doctor_foretells_what_merging_would_split() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(guests) = scattered_guests(PAGES, EQUAL_ONE_IN) else { return };
    let report = doctor(guests[0].pid(), 10);
    let huge = (PAGES * 4096) as u64;
    assert_eq!(report["splits"]["split_bytes"], huge, "{report}");
    // Of two equal pages one is saved.
    let equal = (PAGES.div_ceil(EQUAL_ONE_IN) * 4096) as u64;
    assert_eq!(report["splits"]["saved_bytes"], equal / 2, "{report}");
}

#[test]
fn an_estimate_foretells_for_each_guest_what_merging_would_split() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let runs = paired_guests(70, PAGES, |page| page / 1024 % 2 == 0);
    let scattered = paired_guests(71, PAGES, |page| page % 50 == 0);
    let (Some(runs), Some(scattered)) = (runs, scattered) else { return };
    let pids: Vec<String> = runs.iter().chain(&scattered).map(|guest| guest.pid().to_string()).collect();
    let arguments: Vec<&str> = ["estimate", "--json"].into_iter().chain(pids.iter().map(String::as_str)).collect();
    let estimate = || {
        let (code, out, err) = ksmith(&arguments);
        assert_eq!(code, 0, "{err}");
        serde_json::from_str::<serde_json::Value>(&out).unwrap()
    };
    // Each draws pages of its own: the middle one of several is near what comes of a scan.
    let reports: Vec<serde_json::Value> = (0..ESTIMATES).map(|_| estimate()).collect();
    let report = &reports[0];
    for guest in report["guests"].as_array().unwrap() {
        let [split, part] =
            ["split_bytes", "split_for_saved"].map(|key| guest["huge_pages"][key].as_f64().unwrap());
        // Half of the huge pages are equal in two guests, or a hundredth of all memory would be saved for all of them.
        if runs.iter().any(|one| guest["pid"] == one.pid()) {
            let part_of_all = split / (PAGES * 4096) as f64;
            assert!((0.35..0.65).contains(&part_of_all) && (1.5..3.0).contains(&part), "{guest}");
        } else {
            assert!(part > 20.0, "{guest}");
        }
    }

    let huge = || runs.iter().chain(&scattered).map(|guest| rollup(guest, "AnonHugePages")).sum::<u64>();
    let figure = |key: &str| {
        let mut values: Vec<u64> =
            reports.iter().map(|report| report["huge_pages"][key].as_u64().unwrap()).collect();
        values.sort_unstable();
        values[values.len() / 2]
    };
    let (whole, estimated) = (huge(), figure("huge_bytes"));
    assert!(whole.abs_diff(estimated) <= whole / 20, "{whole} bytes in huge pages, and {estimated} as estimated");
    hold_khugepaged();
    clean_passes(4);
    // The frames that are kept are mapped by two.
    let (split, saved) = (whole - huge(), (merged(&runs) + merged(&scattered)) / 2);
    assert!(split > whole / 2 && split < whole, "{split} of {whole} bytes were split");
    let is_near = |real: u64, estimated: u64| real.abs_diff(estimated) <= real / 4;
    assert!(is_near(split, figure("split_bytes")), "{split} bytes were split: {reports:?}");
    assert!(is_near(saved, figure("saved_bytes")), "{saved} bytes are saved: {reports:?}");
}

#[test]
fn huge_pages_with_few_equal_pages_stay_whole_until_they_are_worth_little() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(guests) = scattered_guests(PAGES, EQUAL_ONE_IN) else { return };
    let huge = || guests.iter().map(|guest| rollup(guest, "AnonHugePages")).sum::<u64>();
    let (whole, passes) = (huge(), number("full_scans"));
    let (_file, path) = config_file("[policy.profit]\nsplit_saves_percent = 5.0\n");
    let daemon = RunningProgram::start(&["daemon", "--config", &path]);
    let waits = || {
        let status = status();
        let reason = status.as_ref().and_then(|status| status["daemon"]["reason"].as_str());
        reason.is_some_and(|reason| reason.starts_with("merging would split huge pages for little"))
    };
    wait_until("a forecast has ksmd wait", waits);
    assert_eq!((huge(), merged(&guests), number("full_scans")), (whole, 0, passes), "{}", daemon.log());

    std::fs::write(&path, "[policy.profit]\nsplit_saves_percent = 0.1\n").unwrap();
    daemon.signal(Signal::HUP);
    wait_until("the equal pages are merged", || merged(&guests) >= EQUAL / 100 * 99);
    assert!(huge() < whole / 10, "{} of {whole} bytes in huge pages", huge());
    daemon.end();
}
