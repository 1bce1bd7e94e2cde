//! The pages that `smart_scan` skips, and the trap in it.

use super::*;

/// Two guests with `pages` equal pages, the second one `distance` passes behind the first, and smart_scan on.
fn late(distance: u64, pages: u64) -> SimMachine {
    let mut machine = today();
    machine.write(Knob::SmartScan, 1).unwrap();
    machine.add_guest("early", 1..=pages);
    passes(&mut machine, distance);
    machine.add_guest("late", 1..=pages);
    machine
}

/// Seen on Linux 6.18 with the same population: nothing merged after 211 passes.
#[test]
fn equal_pages_thirteen_passes_apart_never_meet() {
    let mut machine = late(13, 8192);
    passes(&mut machine, 211);
    assert_eq!(gauges(&machine)[..2], [0, 0]);
    machine.write(Knob::SmartScan, 0).unwrap();
    passes(&mut machine, 2);
    assert_eq!(gauges(&machine), [8192, 8192, 0, 0]);
    audit(&machine).unwrap();
}

/// An old page is visited on 13, 22, 31, …, which is 4 modulo 9, and a young one on 1, 2, 3, 5, 8, 13, … of its
/// own: they never coincide if the distance is 4, 6 or 7 modulo 9.
#[test]
fn a_third_of_all_distances_are_traps() {
    let traps: Vec<u64> = (13..31)
        .filter(|&distance| {
            let mut machine = late(distance, 10);
            passes(&mut machine, 100);
            gauges(&machine)[1] == 0
        })
        .collect();
    assert_eq!(traps, [13, 15, 16, 22, 24, 25]);
}

#[test]
fn skipped_pages_count_as_volatile_and_not_as_scanned() {
    let mut machine = today();
    machine.write(Knob::SmartScan, 1).unwrap();
    machine.add_guest("a", repeat_n(UNIQUE, 50));
    passes(&mut machine, 4);
    assert_eq!(gauges(&machine), [0, 0, 50, 0]);
    let visited = machine.ksmd.scanned;
    passes(&mut machine, 1);
    assert_eq!(gauges(&machine), [0, 0, 0, 50]);
    let ksm = machine.sample().ksm;
    assert_eq!((ksm.pages_scanned.get(), ksm.pages_skipped.get()), (Some(visited), Some(50)));
    audit(&machine).unwrap();
}

#[test]
fn merged_pages_are_visited_in_every_pass() {
    let mut machine = today();
    machine.write(Knob::SmartScan, 1).unwrap();
    machine.add_guest("a", [5; 50]);
    passes(&mut machine, 30);
    assert_eq!(machine.ksmd.skipped, 0);
    assert_eq!(machine.ksmd.scanned, 30 * 50);
}
