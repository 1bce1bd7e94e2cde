//! The effects of one visit.

use super::*;

#[test]
fn a_page_merges_at_its_second_visit_with_an_unchanged_checksum() {
    let mut machine = today();
    machine.add_guest("a", 1..=100);
    machine.add_guest("b", 1..=100);
    passes(&mut machine, 1);
    assert_eq!(gauges(&machine), [0, 0, 0, 200]);
    passes(&mut machine, 1);
    assert_eq!(gauges(&machine), [100, 100, 0, 0]);
    audit(&machine).unwrap();
}

#[test]
fn a_new_guest_needs_two_visits_even_for_what_is_merged_already_but_one_before_6_11() {
    for (minor, needed) in [(18, 2), (11, 2), (10, 1), (1, 1)] {
        let mut machine = running(KernelVersion::new(6, minor));
        machine.add_guest("a", 1..=10);
        machine.add_guest("b", 1..=10);
        passes(&mut machine, 2);
        machine.add_guest("c", 1..=10);
        for pass in 1..=needed {
            passes(&mut machine, 1);
            let merged = if pass == needed { 20 } else { 10 };
            assert_eq!(gauges(&machine)[1], merged, "6.{minor} after {pass} passes");
        }
        audit(&machine).unwrap();
    }
}

#[test]
fn a_unique_page_is_volatile_then_unshared() {
    let mut machine = today();
    machine.add_guest("a", repeat_n(UNIQUE, 7));
    passes(&mut machine, 1);
    assert_eq!(gauges(&machine), [0, 0, 0, 7]);
    passes(&mut machine, 3);
    assert_eq!(gauges(&machine), [0, 0, 7, 0]);
    assert_eq!(machine.sample().ksm.general_profit.get(), Some(-7 * 64));
}

#[test]
fn a_page_that_changes_between_visits_stays_volatile() {
    let mut machine = today();
    let guest = machine.add_guest("a", [5, 5]);
    for content in 100..110 {
        passes(&mut machine, 1);
        machine.write_page(guest, 0, content);
        machine.write_page(guest, 1, content);
        assert_eq!(gauges(&machine), [0, 0, 0, 2]);
    }
    passes(&mut machine, 2);
    assert_eq!(gauges(&machine), [1, 1, 0, 0]);
}

#[test]
fn the_content_that_comes_back_has_the_checksum_it_had() {
    let mut machine = today();
    let guest = machine.add_guest("a", [5, 6]);
    passes(&mut machine, 1);
    machine.write_page(guest, 0, 7);
    machine.write_page(guest, 0, 5);
    passes(&mut machine, 1);
    assert_eq!(gauges(&machine), [0, 0, 2, 0]);
}

#[test]
fn empty_pages_merge_like_others_unless_the_zero_page_is_used() {
    for (use_zero_pages, expected) in [(0, [1, 99, 0, 0]), (1, [0, 0, 0, 0])] {
        let mut machine = today();
        machine.write(Knob::UseZeroPages, use_zero_pages).unwrap();
        machine.add_guest("a", [ZERO; 100]);
        passes(&mut machine, 3);
        assert_eq!(gauges(&machine), expected);
        assert_eq!(machine.sample().ksm.zero_pages(), 100 * use_zero_pages);
        audit(&machine).unwrap();
    }
}

#[test]
fn pages_on_the_zero_page_keep_their_metadata_until_the_next_pass_and_are_not_visited() {
    let mut machine = today();
    machine.write(Knob::UseZeroPages, 1).unwrap();
    let guest = machine.add_guest("a", [ZERO; 10]);
    passes(&mut machine, 2);
    assert_eq!(gauges(&machine), [0, 0, 0, 10]);
    let visited = machine.ksmd.scanned;
    passes(&mut machine, 2);
    assert_eq!((gauges(&machine), machine.ksmd.scanned), ([0, 0, 0, 0], visited));
    // It is no resident memory, and all of it is saved.
    assert_eq!(machine.sample().processes[0].rss_bytes, Some(0));
    assert!(machine.write_page(guest, 0, 9));
    let sample = machine.sample();
    assert_eq!((sample.ksm.ksm_zero_pages.get(), cow(&sample)), (Some(9), 0));
    audit(&machine).unwrap();
}

#[test]
fn a_full_frame_takes_no_more_and_two_further_pages_make_another() {
    let mut machine = today();
    machine.write(Knob::MaxPageSharing, 4).unwrap();
    machine.add_guest("a", [5; 9]);
    passes(&mut machine, 3);
    // Two full frames, and the ninth page waits for an equal.
    assert_eq!(gauges(&machine), [2, 6, 1, 0]);
    let chains = |machine: &SimMachine| {
        let ksm = machine.sample().ksm;
        (ksm.stable_node_chains.get().unwrap(), ksm.stable_node_dups.get().unwrap())
    };
    assert_eq!(chains(&machine), (1, 2));
    machine.add_guest("b", [5]);
    passes(&mut machine, 2);
    assert_eq!(gauges(&machine), [3, 7, 0, 0]);
    assert_eq!(chains(&machine), (1, 3));
    audit(&machine).unwrap();
}

#[test]
fn a_chain_with_one_frame_that_is_not_full_is_pruned() {
    let mut machine = today();
    machine.write(Knob::MaxPageSharing, 2).unwrap();
    machine.write(Knob::StableNodeChainsPruneMillisecs, 50).unwrap();
    let guest = machine.add_guest("a", [5; 4]);
    passes(&mut machine, 2);
    assert_eq!(machine.memory.stable.chains(), 1);
    // One page leaves each frame, then one of the frames goes for good.
    for page in 0..3 {
        machine.write_page(guest, page, 100 + page as u64);
    }
    machine.advance(Duration::from_millis(100));
    machine.write_page(guest, 0, 5);
    passes(&mut machine, 3);
    assert_eq!((machine.memory.stable.chains(), machine.memory.stable.dups), (0, 0));
    assert_eq!(gauges(&machine)[..2], [1, 1]);
    audit(&machine).unwrap();
}

#[test]
fn a_page_of_an_earlier_pass_is_no_match() {
    let mut machine = today();
    machine.write(Knob::PagesToScan, 1).unwrap();
    let guest = machine.add_guest("a", [5, 6]);
    passes(&mut machine, 2);
    assert_eq!(gauges(&machine), [0, 0, 2, 0]);
    // Both are in the unstable tree. The new content of the first must not match at its old place.
    machine.write_page(guest, 0, 6);
    passes(&mut machine, 1);
    assert_eq!(gauges(&machine), [0, 0, 1, 1]);
    passes(&mut machine, 1);
    assert_eq!(gauges(&machine), [1, 1, 0, 0]);
}
