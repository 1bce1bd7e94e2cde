//! Requests and counts of the sampler, reading by reading.

use super::*;
use crate::reading::Reading;
use crate::sample::{LASTING, ProcessId, ProcessSample};

fn sample(seconds: u64, run: u64, full_scans: u64) -> Sample {
    let mut sample = Sample { at: Duration::from_secs(seconds), page_size: 4096, ..Sample::default() };
    sample.ksm.run = Reading::Value(run);
    sample.ksm.full_scans = Reading::Value(full_scans);
    sample.ksm.smart_scan = Reading::Value(0);
    sample.processes.push(ProcessSample {
        rss_bytes: Some(1 << 30),
        ..ProcessSample::new(ProcessId { pid: 1, start_ticks: 1 }, "guest".into(), true)
    });
    sample
}

/// Contents over 100 are merged.
fn print(content: u64) -> Option<PageFingerprint> {
    lying(content, content > 100)
}

fn lying(content: u64, is_merged: bool) -> Option<PageFingerprint> {
    Some(PageFingerprint { guest: 1, content, frame: if is_merged { FrameKind::Shared } else { FrameKind::Own } })
}

/// Runs one turn in which four pages hold these contents.
fn turn(sampler: &mut PageSampler, sample: &Sample, fingerprints: [u64; 4]) -> PageSampleRequest {
    let request = sampler.next_request(sample);
    match request {
        PageSampleRequest::Nothing | PageSampleRequest::ReadPart(_) => {}
        PageSampleRequest::Read => sampler.record_read(fingerprints.map(print), sample.at),
        PageSampleRequest::Draw => sampler.record_drawn(fingerprints.map(print), sample.at),
    }
    request
}

fn counts(sampler: &PageSampler) -> (u32, u32) {
    sampler.page_samples().map(|it| (it.changed, it.stable)).unwrap()
}

#[test]
fn a_page_that_changed_since_the_last_clean_pass_began_counts_and_is_stable_when_read_twice() {
    let mut sampler = PageSampler::default();
    assert_eq!(turn(&mut sampler, &sample(10, 1, 0), [1, 2, 3, 4]), PageSampleRequest::Draw);
    assert_eq!(turn(&mut sampler, &sample(11, 1, 0), [0; 4]), PageSampleRequest::Nothing, "nothing has ended");
    // The first page changed in the first pass, the second in the last: only that was perhaps not visited since.
    assert_eq!(turn(&mut sampler, &sample(12, 1, 1), [9, 2, 3, 4]), PageSampleRequest::Read);
    turn(&mut sampler, &sample(14, 1, 2), [9, 8, 3, 4]);
    assert_eq!(counts(&sampler), (1, 0));
    assert_eq!(turn(&mut sampler, &sample(14, 0, 2), [0; 4]), PageSampleRequest::Nothing, "too soon");
    turn(&mut sampler, &sample(16, 0, 2), [9, 8, 7, 4]);
    assert_eq!(counts(&sampler), (2, 1));
    turn(&mut sampler, &sample(22, 0, 2), [9, 8, 7, 4]);
    assert_eq!(counts(&sampler), (2, 2));
    turn(&mut sampler, &sample(30, 0, 2), [9, 8, 6, 4]);
    assert_eq!(counts(&sampler), (2, 1));
}

/// Returns the number of changing pages after each reading, given as its second, `run`, `full_scans` and the contents.
fn changing(readings: &[(u64, u64, u64, [u64; 4])]) -> Vec<u32> {
    let mut sampler = PageSampler::default();
    let look = |&(seconds, run, full_scans, contents): &(u64, u64, u64, [u64; 4])| {
        turn(&mut sampler, &sample(seconds, run, full_scans), contents);
        sampler.page_samples().unwrap().changing
    };
    readings.iter().map(look).collect()
}

#[test]
fn a_page_that_changes_during_two_passes_in_a_row_is_changing() {
    // The second page is written to once, and the third in passes that are not in a row.
    let readings = [[1, 2, 3, 4], [11, 2, 13, 4], [21, 12, 13, 4], [31, 12, 23, 4], [31, 12, 23, 4]];
    let readings: Vec<_> = (0..).zip(readings).map(|(ends, pages)| (10 + 2 * ends, 1, ends, pages)).collect();
    assert_eq!(changing(&readings), [0, 0, 1, 1, 0]);
}

#[test]
fn what_changed_while_ksmd_was_parked_is_not_taken_to_change_all_the_time() {
    let readings = [
        (10, 1, 0, [1, 2, 3, 4]),
        (12, 1, 1, [11, 2, 3, 4]),
        (14, 0, 1, [21, 12, 3, 4]),
        (20, 1, 1, [31, 12, 3, 4]),
        (22, 1, 2, [41, 22, 3, 4]),
        (24, 1, 3, [51, 22, 3, 4]),
    ];
    assert_eq!(changing(&readings), [0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_page_that_changes_and_is_merged_each_time_is_not_left_to_another_pass() {
    let readings = [(10, 1, 0, [1, 2, 3, 4]), (12, 1, 1, [101, 12, 3, 4]), (14, 1, 2, [102, 22, 3, 4])];
    assert_eq!(changing(&readings), [0, 0, 1]);
}

#[test]
fn a_page_that_changes_in_both_halves_of_a_long_clean_pass_is_changing() {
    let mut sampler = PageSampler::default();
    let passing = |seconds, full_scans, passed| {
        let mut sample = sample(seconds, 1, full_scans);
        sample.ksm.pages_unshared = Reading::Value(1000);
        sample.ksm.pages_scanned = Reading::Value(passed);
        sample
    };
    let changing = |sampler: &PageSampler| sampler.page_samples().map(|it| (it.changing, it.reads));
    turn(&mut sampler, &passing(10, 0, 0), [1, 2, 3, 4]);
    assert_eq!(turn(&mut sampler, &passing(11, 0, 499), [0; 4]), PageSampleRequest::Nothing, "not the middle");
    assert_eq!(turn(&mut sampler, &passing(13, 0, 500), [11, 12, 103, 4]), PageSampleRequest::Read);
    assert_eq!(changing(&sampler), Some((0, 1)), "that is known at the end");
    assert_eq!(turn(&mut sampler, &passing(15, 0, 700), [0; 4]), PageSampleRequest::Nothing, "it was read once");
    turn(&mut sampler, &passing(18, 1, 1000), [21, 12, 23, 4]);
    assert_eq!(changing(&sampler), Some((1, 2)), "the third was merged in the middle");
    assert_eq!(
        turn(&mut sampler, &passing(19, 1, 1900), [0; 4]),
        PageSampleRequest::Nothing,
        "the pass is a short one"
    );
    turn(&mut sampler, &passing(20, 2, 2000), [21, 22, 33, 4]);
    assert_eq!(changing(&sampler), Some((2, 3)), "two passes in a row");
    let mut smart = passing(25, 2, 2800);
    smart.ksm.smart_scan = Reading::Value(1);
    assert_eq!(turn(&mut sampler, &smart, [0; 4]), PageSampleRequest::Nothing);
    assert_eq!(turn(&mut sampler, &passing(26, 2, 2800), [21, 32, 33, 4]), PageSampleRequest::Read);
    let mut parked = passing(27, 2, 2800);
    parked.ksm.run = Reading::Value(0);
    turn(&mut sampler, &parked, [21, 32, 33, 4]);
    turn(&mut sampler, &passing(30, 2, 2900), [21, 42, 33, 4]);
    assert_eq!(changing(&sampler).map(|(changing, _)| changing), Some(0), "ksmd was stopped meanwhile");
}

#[test]
fn reading_a_part_calls_for_reading_all_when_pages_change_and_when_they_are_stable() {
    let mut sampler = PageSampler::default();
    sampler.next_request(&sample(10, 1, 0));
    sampler.record_drawn((0..64).map(print), Duration::from_secs(10));
    let mut seconds = 10;
    // Nothing changes, so looks are ever farther apart.
    while sampler.interval < LATEST {
        seconds += 10;
        assert_eq!(sampler.next_request(&sample(seconds, 0, 0)), PageSampleRequest::Read);
        sampler.record_read((0..64).map(print), Duration::from_secs(seconds));
    }
    let mut part = |sampler: &mut PageSampler, changed: u64| {
        seconds += 1;
        let PageSampleRequest::ReadPart(part) = sampler.next_request(&sample(seconds, 0, 0)) else {
            panic!("no reading of a part")
        };
        let fingerprints = (0..64).map(|page| print(page + changed * 100));
        let some = part.select(fingerprints.clone());
        let is_time = sampler.read_part(part, some, Duration::from_secs(seconds));
        if is_time {
            sampler.record_read(fingerprints, Duration::from_secs(seconds));
        }
        is_time
    };
    assert!(!part(&mut sampler, 0) && part(&mut sampler, 2));
    assert_eq!(counts(&sampler), (64, 0));
    assert_eq!(sampler.interval, SOONEST, "it is looked at again at once");
    sampler.interval = LATEST;
    assert!(!part(&mut sampler, 3), "what changes all the time is no news");
    assert!(!part(&mut sampler, 4) && part(&mut sampler, 2));
    assert_eq!(counts(&sampler), (64, 64));
    sampler.interval = LATEST;
    assert!(!part(&mut sampler, 2));
    assert!(part(&mut sampler, 5), "what rested and changes again is news");
}

#[test]
fn a_smart_pass_leaves_changed_pages_changed() {
    let mut sampler = PageSampler::default();
    turn(&mut sampler, &sample(10, 0, 0), [1, 2, 3, 4]);
    turn(&mut sampler, &sample(20, 0, 0), [5, 2, 3, 4]);
    let mut smart = sample(30, 1, 1);
    smart.ksm.smart_scan = Reading::Value(1);
    turn(&mut sampler, &smart, [5, 2, 3, 4]);
    assert_eq!(counts(&sampler), (1, 1));
    turn(&mut sampler, &sample(31, 1, 2), [5, 2, 3, 4]);
    assert_eq!(counts(&sampler), (0, 0), "a clean one has visited it");
}

#[test]
fn a_content_that_was_merged_before_is_recurring() {
    let mut sampler = PageSampler::default();
    sampler.add_always_merging(77);
    turn(&mut sampler, &sample(10, 1, 0), [101, 102, 3, 4]);
    turn(&mut sampler, &sample(12, 1, 1), [101, 102, 3, 4]);
    turn(&mut sampler, &sample(14, 1, 2), [101, 102, 3, 4]);
    turn(&mut sampler, &sample(20, 1, 3), [5, 6, 7, 8]);
    turn(&mut sampler, &sample(22, 1, 4), [5, 6, 7, 8]);
    for seconds in [30, 40] {
        turn(&mut sampler, &sample(seconds, 0, 4), [101, 9, 102, 77]);
    }
    let seen = sampler.page_samples().unwrap();
    assert_eq!((seen.stable, seen.recurring), (4, 3), "wherever it is now");
    assert_eq!((seen.recurring_part(), seen.unknown_part(), seen.reverted), (0.75, 0.25, 0));
}

#[test]
fn a_content_that_is_merged_when_pages_are_drawn_after_a_clean_pass_is_known() {
    let mut sampler = PageSampler::default();
    turn(&mut sampler, &sample(10, 1, 0), [1, 2, 3, 4]);
    // The guest has grown during the pass.
    let grown = |seconds, run| {
        let mut sample = sample(seconds, run, 1);
        sample.processes[0].rss_bytes = Some(2 << 30);
        sample
    };
    assert_eq!(turn(&mut sampler, &grown(12, 1), [101, 2, 3, 4]), PageSampleRequest::Draw);
    turn(&mut sampler, &grown(20, 0), [5, 101, 3, 4]);
    turn(&mut sampler, &grown(30, 0), [5, 101, 3, 4]);
    let seen = sampler.page_samples().unwrap();
    assert_eq!((seen.stable, seen.recurring), (2, 1));
}

#[test]
fn a_page_that_was_written_to_and_holds_the_same_again_has_reverted() {
    let mut sampler = PageSampler::default();
    sampler.add_always_merging(1);
    turn(&mut sampler, &sample(10, 1, 0), [101, 102, 1, 4]);
    turn(&mut sampler, &sample(12, 1, 1), [101, 102, 1, 4]);
    turn(&mut sampler, &sample(14, 1, 2), [101, 102, 1, 4]);
    assert_eq!(counts(&sampler), (0, 0));
    for at in [20, 30].map(Duration::from_secs) {
        sampler.next_request(&Sample { at, ..sample(0, 0, 2) });
        let apart = lying(101, false);
        sampler.record_read([apart, print(102), print(1), print(4)], at);
    }
    let seen = sampler.page_samples().unwrap();
    assert_eq!((seen.changed, seen.stable, seen.recurring, seen.reverted), (1, 1, 1, 1));
}

/// Returns the matches of six pages, three of each of two guests that shared them in pairs, once they hold these.
fn slots(frames: [(u64, FrameKind); 6]) -> (u32, u32, u32, u32) {
    let mut sampler = PageSampler::default();
    let all = |pages: [(u64, FrameKind); 6]| {
        let guests = [1, 1, 1, 2, 2, 2].into_iter().zip(pages);
        guests.map(|(guest, (content, frame))| Some(PageFingerprint { guest, content, frame })).collect::<Vec<_>>()
    };
    let shared = [101, 102, 103, 101, 102, 103].map(|content| (content, FrameKind::Merged { mappings: 2 }));
    sampler.next_request(&sample(10, 1, 0));
    sampler.record_drawn(all(shared), Duration::from_secs(10));
    for (seconds, full_scans) in [(12, 1), (14, 2)] {
        sampler.next_request(&sample(seconds, 1, full_scans));
        sampler.record_read(all(shared), Duration::from_secs(seconds));
    }
    for seconds in [20, 30] {
        sampler.next_request(&sample(seconds, 0, 2));
        sampler.record_read(all(frames), Duration::from_secs(seconds));
    }
    sampler.page_samples().map(|it| (it.recurring, it.matches_merged, it.matches_unmerged, it.mutual)).unwrap()
}

#[test]
fn recurring_pages_match_merged_pages_or_unmerged_ones_or_none() {
    let own = |content| (content, FrameKind::Own);
    let lone = |content| (content, FrameKind::Merged { mappings: 1 });
    let both = |content| (content, FrameKind::Merged { mappings: 2 });
    let stayed = [own(101), own(102), own(103), lone(101), lone(102), lone(103)];
    assert_eq!(slots(stayed), (3, 3, 0, 0));
    let is_away = [own(101), own(102), own(103), own(7), own(8), own(9)];
    assert_eq!(slots(is_away), (3, 0, 0, 0), "the others hold something else");
    let are_back = [own(101), own(102), own(103), own(101), own(102), own(103)];
    assert_eq!(slots(are_back), (6, 0, 6, 6));
    let one_of_each = [own(101), own(102), both(103), lone(104), own(8), both(103)];
    assert_eq!(slots(one_of_each), (2, 1, 0, 0));
}

#[test]
fn of_three_pages_that_shared_a_frame_two_show_that_one_has_left() {
    let mut entry = SampleEntry::default();
    let mut lies = |content, mappings| {
        entry.follow_frame(Some(PageFingerprint { guest: 1, content, frame: FrameKind::Merged { mappings } }));
        entry.last = Some(content);
        entry.free_partners()
    };
    assert_eq!(lies(101, 3), 0.0);
    assert_eq!(lies(101, 2), 0.5);
    assert_eq!(lies(101, 1), 2.0);
    assert_eq!(lies(102, 2), 0.0);
    assert_eq!(lies(102, 1), 1.0);
}

#[test]
fn zeros_always_match_and_so_does_every_content_where_the_kernel_tells_no_mappings() {
    let mut sampler = PageSampler::default();
    sampler.add_always_merging(77);
    for (seconds, full_scans) in [(10, 0), (12, 1), (14, 2)] {
        turn(&mut sampler, &sample(seconds, 1, full_scans), [101, 102, 103, 4]);
    }
    let seen = |sampler: &mut PageSampler, now: u64, fingerprints: [Option<PageFingerprint>; 4]| {
        for seconds in [now, now + 10] {
            sampler.next_request(&sample(seconds, 0, 2));
            sampler.record_read(fingerprints, Duration::from_secs(seconds));
        }
        sampler.page_samples().map(|it| (it.recurring, it.matches_merged)).unwrap()
    };
    let apart = [lying(77, false), lying(102, false), lying(3, false), lying(4, false)];
    assert_eq!(seen(&mut sampler, 20, apart), (2, 1));
    let apart = [lying(77, false), lying(102, false), lying(103, true), lying(4, false)];
    assert_eq!(seen(&mut sampler, 40, apart), (2, 2));
}

#[test]
fn merged_pages_of_unknown_contents_are_counted() {
    let mut sampler = PageSampler::default();
    for (seconds, full_scans) in [(10, 0), (12, 1), (14, 2)] {
        turn(&mut sampler, &sample(seconds, 1, full_scans), [1, 2, 3, 104]);
    }
    for seconds in [20, 30] {
        turn(&mut sampler, &sample(seconds, 0, 2), [5, 6, 7, 104]);
    }
    let look = |sampler: &mut PageSampler, seconds, full_scans, is_merged: [bool; 4]| {
        sampler.next_request(&sample(seconds, 1, full_scans));
        let fingerprints = [5, 6, 8, 104].into_iter().zip(is_merged);
        let fingerprints = fingerprints.map(|(content, is_merged)| lying(content, is_merged));
        sampler.record_read(fingerprints, Duration::from_secs(seconds));
        sampler.page_samples().map(|it| (it.unknown_tried, it.unknown_merged)).unwrap()
    };
    assert_eq!(look(&mut sampler, 31, 2, [false, false, false, true]), (2, 0), "the third has changed again");
    assert_eq!(look(&mut sampler, 32, 3, [false, false, false, true]), (2, 0));
    assert_eq!(look(&mut sampler, 33, 4, [true, false, false, true]), (2, 1));
    assert_eq!(sampler.page_samples().unwrap().unknown_gone, 1);
    turn(&mut sampler, &sample(50, 0, 4), [5, 6, 8, 104]);
    assert_eq!(sampler.page_samples().unwrap().unknown_gone, 0, "ksmd is parked");
}

/// Returns the expected lifetime, reading by reading; the second page is always merged.
fn lifetime(reads: &[(u64, u64, (u64, bool))]) -> Vec<Option<u64>> {
    let mut sampler = PageSampler::default();
    let look = |&(seconds, full_scans, (content, is_merged)): &(u64, u64, (u64, bool))| {
        let sample = sample(seconds, u64::from(seconds < 16), full_scans);
        let fingerprints = [lying(content, is_merged), lying(101, true), print(3), print(4)];
        match sampler.next_request(&sample) {
            PageSampleRequest::Draw => sampler.record_drawn(fingerprints, sample.at),
            _ => sampler.record_read(fingerprints, sample.at),
        }
        sampler.page_samples().unwrap().lifetime.map(|lifetime| lifetime.as_secs())
    };
    reads.iter().map(look).collect()
}

#[test]
fn what_stayed_for_a_moment_is_taken_to_go_as_soon_until_it_has_rested_for_longer() {
    let (own, merged, other) = ((101, false), (101, true), (5, false));
    let seen =
        lifetime(&[(10, 0, own), (12, 1, merged), (15, 2, merged), (16, 2, other), (20, 2, own), (22, 2, own)]);
    assert_eq!(seen[3..], [None, None, Some(45)], "since when it held that is not known");
    let seen =
        lifetime(&[(10, 0, other), (11, 0, own), (12, 1, own), (15, 2, merged), (18, 2, other), (20, 2, own)]);
    assert_eq!(seen, [None; 6], "it has not come to rest");
    let came_back = [(10, 0, other), (11, 0, own), (12, 1, own), (15, 2, merged), (18, 2, other), (20, 2, own)];
    let seen = lifetime(&[&came_back[..], &[(22, 2, own), (50, 2, own), (80, 2, own)]].concat());
    assert_eq!(seen[6..], [Some(7), Some(30), Some(45)]);
    let seen = lifetime(&[&came_back[..], &[(22, 2, own), (24, 2, other), (26, 2, own), (27, 2, own)]].concat());
    assert_eq!(seen.last(), Some(&Some(4)), "that it was not merged does not make it shorter");
}

#[test]
fn a_content_that_is_written_again_has_ended_too() {
    let (own, merged) = ((101, false), (101, true));
    let seen =
        lifetime(&[(10, 0, (5, false)), (11, 0, own), (12, 1, own), (15, 2, merged), (18, 2, own), (19, 2, own)]);
    assert_eq!(seen[4..], [Some(7), Some(7)]);
}

#[test]
fn a_page_without_a_match_does_not_count_for_the_lifetime() {
    let now = Duration::from_secs(100);
    let recurring = |content, lived: Option<u64>| SampleEntry {
        recurring: true,
        last: Some(content),
        frame: Some(FrameKind::Own),
        lived: lived.map(Duration::from_secs),
        since: Some(now),
        ..SampleEntry::default()
    };
    let host = SampleEntry {
        last: Some(101),
        frame: Some(FrameKind::Merged { mappings: 1 }),
        most: 1,
        ..SampleEntry::default()
    };
    let lifetime = |entries: &[SampleEntry]| {
        let slots = PageSampler { entries: entries.to_vec(), ..PageSampler::default() }.slots(now);
        (slots.matches_merged, slots.lifetime.map(|lifetime| lifetime.as_secs()))
    };
    assert_eq!(lifetime(&[host, recurring(101, None), recurring(101, Some(5))]), (2, Some(25)));
    let none = SampleEntry { frame: Some(FrameKind::Own), last: Some(102), ..SampleEntry::default() };
    assert_eq!(lifetime(&[none, recurring(103, Some(5))]), (0, None));
}

#[test]
fn a_short_lifetime_is_named() {
    let mut seen = PageSamples {
        pages: 9,
        changed: 8,
        stable: 7,
        recurring: 6,
        matches_merged: 3,
        matches_unmerged: 2,
        ..PageSamples::default()
    };
    let text = "of 9 sampled pages 8 have changed, 7 of these are stable, 6 hold what was merged before and 5 match another page";
    assert_eq!(seen.in_words(), text);
    seen.lifetime = Some(LASTING);
    assert_eq!((seen.in_words().as_str(), seen.lifetime_part()), (text, 1.0));
    seen.lifetime = Some(LASTING / 10);
    assert_eq!(seen.in_words(), format!("{text}, though perhaps for 4.5 s only"));
    assert_eq!(seen.lifetime_part(), 0.1);
}

#[test]
fn other_processes_have_other_samples() {
    let mut sampler = PageSampler::default();
    turn(&mut sampler, &sample(10, 0, 0), [1, 2, 3, 4]);
    let mut grown = sample(20, 0, 0);
    grown.processes[0].rss_bytes = Some((1 << 30) + (1 << 28));
    assert_eq!(turn(&mut sampler, &grown, [1, 2, 3, 4]), PageSampleRequest::Draw);
    grown.at = Duration::from_secs(30);
    assert_eq!(turn(&mut sampler, &grown, [1, 2, 3, 4]), PageSampleRequest::Read);
    grown.at = Duration::from_secs(40);
    grown.processes[0].id.start_ticks = 2;
    assert_eq!(turn(&mut sampler, &grown, [1, 2, 3, 4]), PageSampleRequest::Draw);
}

#[test]
fn a_page_that_cannot_be_read_is_not_counted() {
    let mut sampler = PageSampler::default();
    assert_eq!(sampler.page_samples(), None);
    sampler.next_request(&sample(10, 0, 0));
    sampler.record_drawn([print(1), None, print(3)], Duration::from_secs(10));
    sampler.next_request(&sample(20, 0, 0));
    sampler.record_read([None, print(2), print(4)], Duration::from_secs(20));
    let seen = sampler.page_samples().unwrap();
    assert_eq!((seen.pages, seen.changed, seen.stable), (2, 1, 0));
}
