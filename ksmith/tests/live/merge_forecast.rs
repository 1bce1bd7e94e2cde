//! A forecast keeps ksmd from splitting all huge pages for little.

use rustix::process::Signal;

use crate::doctor::doctor;
use crate::huge_pages::{merged, rollup, scattered_guests};
use crate::support::program::{RunningProgram, config_file, status};
use crate::support::{KernelLock, number, wait_until};

/// Pages of each of two guests: 48 MiB in 24 huge pages.
const PAGES: usize = 12_288;

/// One page in so many is equal in both guests: merging would save a fortieth of the huge pages, and split all.
const EQUAL_ONE_IN: usize = 20;

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
        reason.is_some_and(|reason| reason.contains("of huge pages for it: ksmd waits"))
    };
    wait_until("a forecast has ksmd wait", waits);
    assert_eq!((huge(), merged(&guests), number("full_scans")), (whole, 0, passes), "{}", daemon.log());

    std::fs::write(&path, "[policy.profit]\nsplit_saves_percent = 0.1\n").unwrap();
    daemon.signal(Signal::HUP);
    wait_until("the equal pages are merged", || merged(&guests) >= EQUAL / 100 * 99);
    assert!(huge() < whole / 10, "{} of {whole} bytes in huge pages", huge());
    daemon.end();
}
