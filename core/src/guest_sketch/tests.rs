//! Tests of the schedule of reading, and of its budget.

use super::*;
use crate::kernel::KsmStat;
use crate::sample::{PageSamples, ProcessSample};

fn id(pid: u32) -> ProcessId {
    ProcessId { pid, start_ticks: 1 }
}

fn process(pid: u32, mib: u64) -> ProcessSample {
    let ksm = KsmStat { mergeable: Some(true), ..KsmStat::default() };
    ProcessSample { rss_bytes: mib << 20, ksm, ..ProcessSample::new(id(pid), "guest".into(), true) }
}

/// A sample with guests of so many MiB and passes that have ended.
fn sample(seconds: u64, full_scans: u64, guests: &[(u32, u64)]) -> Sample {
    let processes = guests.iter().map(|(pid, mib)| process(*pid, *mib)).collect();
    let mut sample = Sample { at: Duration::from_secs(seconds), page_size: 4096, processes, ..Sample::default() };
    sample.ksm.full_scans = Reading::Value(full_scans);
    sample.ksm.run = Reading::Value(1);
    sample.ksm.smart_scan = Reading::Value(1);
    sample
}

/// A guest that holds these contents.
fn sketch(pid: u32, contents: &[u64]) -> GuestSketch {
    let mut sketch = GuestSketch::new(id(pid), contents.len() as u64);
    for (place, content) in (0..).zip(contents) {
        sketch.add(ReadPage { place, fingerprint: content << 32, mappings: 0 });
    }
    sketch
}

fn keeper(guests: &[(u32, &[u64])]) -> SketchKeeper {
    let mut keeper = SketchKeeper::default();
    keeper.follow(&sample(1, 0, &guests.iter().map(|(pid, _)| (*pid, 100)).collect::<Vec<_>>()));
    for (pid, contents) in guests.iter().rev() {
        assert_eq!(keeper.next_request(), SketchRequest::Read(id(*pid)));
        keeper.record_sketch(id(*pid), Some(sketch(*pid, contents)), 0.0);
    }
    assert_eq!(keeper.next_request(), SketchRequest::Nothing);
    keeper
}

#[test]
fn a_guest_is_read_when_it_comes_and_when_it_has_grown() {
    let mut keeper = keeper(&[(1, &[1]), (2, &[2])]);
    let mut due = |seconds, mib| {
        keeper.follow(&sample(seconds, 0, &[(1, 100), (2, mib)]));
        keeper.next_request()
    };
    assert_eq!(due(2, 110), SketchRequest::Nothing, "it has hardly grown");
    assert_eq!(due(3, 150), SketchRequest::Nothing, "it grows");
    assert_eq!(due(4, 200), SketchRequest::Nothing);
    assert_eq!(due(5, 201), SketchRequest::Read(id(2)));
}

#[test]
fn a_guest_that_has_just_started_is_read_a_little_later() {
    let mut keeper = SketchKeeper::default();
    let young = ProcessId { pid: 7, start_ticks: 1_000_000 };
    let mut due = |(at, mib)| {
        let mut sample = Sample { at: Duration::from_millis(at), ..sample(0, 0, &[(7, mib)]) };
        sample.processes[0].id = young;
        keeper.follow(&sample);
        keeper.next_request()
    };
    let at_first = [(10_000_050, 20), (10_000_300, 60), (10_000_400, 60)];
    assert_eq!(at_first.map(&mut due), [SketchRequest::Nothing, SketchRequest::Nothing, SketchRequest::Nothing]);
    assert_eq!(due((10_000_600, 100)), SketchRequest::Read(young), "it may go on growing for long");
}

#[test]
fn what_ended_guests_held_is_forgotten() {
    let mut keeper = keeper(&[(1, &[1]), (2, &[2])]);
    keeper.follow(&sample(2, 0, &[(2, 100)]));
    let guests = keeper.sketches().value().unwrap().clone().guests.clone();
    assert_eq!(guests.iter().map(|guest| guest.id).collect::<Vec<_>>(), [id(2)]);
}

#[test]
fn guests_that_may_not_merge_are_not_read() {
    let mut keeper = SketchKeeper::default();
    let mut sample = sample(1, 0, &[(1, 100)]);
    sample.processes[0].ksm = KsmStat { mergeable: Some(false), merge_any: Some(false), ..KsmStat::default() };
    keeper.follow(&sample);
    assert_eq!((keeper.next_request(), keeper.sketches()), (SketchRequest::Nothing, Reading::Absent));
}

#[test]
fn a_guest_that_cannot_be_read_is_not_tried_at_every_sample() {
    let mut keeper = SketchKeeper::default();
    keeper.follow(&sample(1, 0, &[(1, 100)]));
    assert_eq!(keeper.next_request(), SketchRequest::Read(id(1)));
    keeper.record_sketch(id(1), None, 0.001);
    keeper.follow(&sample(2, 0, &[(1, 100)]));
    assert_eq!((keeper.next_request(), keeper.sketches()), (SketchRequest::Nothing, Reading::Absent));
}

#[test]
fn after_a_pass_common_unmerged_contents_are_looked_at_again() {
    let mut keeper = keeper(&[(1, &[1, 2, 3]), (2, &[3, 4, 1])]);
    keeper.follow(&sample(2, 1, &[(1, 100), (2, 100)]));
    let before = keeper.sketches().value().unwrap().clone().full_scans;
    let SketchRequest::Look(places) = keeper.next_request() else { panic!("nothing to look at") };
    assert_eq!(places, [(id(1), vec![0, 2]), (id(2), vec![0, 2])]);
    let merged = |place, content: u64| (place, Some(ReadPage { place, fingerprint: content << 32, mappings: 2 }));
    let looked = [
        (id(1), [merged(0, 1), merged(2, 3)].into_iter().collect()),
        (id(2), [merged(0, 3), merged(2, 1)].into_iter().collect()),
    ];
    keeper.record_pages(&looked, 0.0);
    let after = keeper.sketches().value().unwrap().clone();
    assert_eq!((before, after.full_scans), (0, 1), "now it is known what the pass has merged");
    let mappings: Vec<_> = after.guests[0].kept().iter().map(|page| page.mappings()).collect();
    assert_eq!(mappings, [2, 0, 2]);
    keeper.follow(&sample(3, 2, &[(1, 100), (2, 100)]));
    assert_eq!(keeper.next_request(), SketchRequest::Nothing, "all that they have in common is merged");
}

#[test]
fn a_new_guest_has_merged_contents_of_others_counted_again() {
    let mut keeper = SketchKeeper::default();
    keeper.follow(&sample(1, 0, &[(1, 100)]));
    assert_eq!(keeper.next_request(), SketchRequest::Read(id(1)));
    let mut old = GuestSketch::new(id(1), 1);
    old.add(ReadPage { place: 5, fingerprint: 7 << 32, mappings: 3 });
    keeper.record_sketch(id(1), Some(old), 0.0);
    keeper.follow(&sample(2, 0, &[(1, 100), (2, 100)]));
    assert_eq!(keeper.next_request(), SketchRequest::Read(id(2)));
    keeper.record_sketch(id(2), Some(sketch(2, &[7])), 0.0);
    assert_eq!(keeper.next_request(), SketchRequest::Look(vec![(id(1), vec![5])]));
}

/// However many guests come, a thousandth of a CPU is spent on average, and an hour's worth at once.
#[test]
fn the_account_bounds_what_reading_costs() {
    let mut keeper = SketchKeeper::default();
    let hours = 4;
    for second in 1..hours * 3600 {
        keeper.follow(&sample(second, 0, &[(second as u32, 4096)]));
        while let SketchRequest::Read(id) = keeper.next_request() {
            keeper.record_sketch(id, Some(sketch(id.pid, &[1])), 0.03);
        }
    }
    let spent = keeper.cpu_seconds();
    let granted = 0.001 * (hours * 3600) as f64 + 3.6;
    assert!(spent > 0.9 * granted && spent < granted + 0.1, "{spent} of {granted}");
}

#[test]
fn a_sketch_is_renewed_where_memory_changes_and_nothing_is_owed() {
    let after = |seconds, changed, unpaid| {
        let mut keeper = keeper(&[(1, &[1])]);
        keeper.charge(unpaid);
        let mut sample = sample(seconds, 0, &[(1, 100)]);
        sample.page_samples = Reading::Value(PageSamples { pages: 512, changed, ..PageSamples::default() });
        keeper.follow(&sample);
        keeper.next_request()
    };
    assert_eq!(after(400, 100, 0.0), SketchRequest::Read(id(1)));
    assert_eq!(after(200, 100, 0.0), SketchRequest::Nothing, "it is new");
    assert_eq!(after(400, 2, 0.0), SketchRequest::Nothing, "nothing changes");
    assert_eq!(after(400, 100, 1.0), SketchRequest::Nothing, "it can't be afforded");
}
