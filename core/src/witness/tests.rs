//! What is wished for and what is said, look by look.

use super::*;
use crate::kernel::KsmStat;
use crate::reading::Reading;
use crate::sample::{Process, ProcessId};

fn sample(seconds: u64, run: u64, full_scans: u64) -> Sample {
    let mut sample = Sample { at: Duration::from_secs(seconds), page_size: 4096, ..Sample::default() };
    sample.ksm.run = Reading::Value(run);
    sample.ksm.full_scans = Reading::Value(full_scans);
    sample.ksm.smart_scan = Reading::Value(0);
    sample.processes.push(Process {
        id: ProcessId { pid: 1, start_ticks: 1 },
        name: "guest".into(),
        is_vm: true,
        rss_bytes: 1 << 30,
        cpu_ticks: 0,
        minor_faults: 0,
        ksm: KsmStat::default(),
    });
    sample
}

/// Contents over 100 are merged.
fn print(content: u64) -> Option<Print> {
    lying(content, content > 100)
}

fn lying(content: u64, is_merged: bool) -> Option<Print> {
    Some(Print { guest: 1, content, frame: if is_merged { Frame::Shared } else { Frame::Own } })
}

/// One turn in which four witnesses hold this.
fn turn(ledger: &mut Ledger, sample: &Sample, prints: [u64; 4]) -> Wish {
    let wish = ledger.wish(sample);
    match wish {
        Wish::Nothing | Wish::Glance { .. } => {}
        Wish::Look => ledger.looked(prints.map(print), sample.at),
        Wish::Draw => ledger.drawn(prints.map(print), sample.at),
    }
    wish
}

fn counts(ledger: &Ledger) -> (u32, u32) {
    ledger.witnesses().map(|it| (it.changed, it.rested)).unwrap()
}

#[test]
fn what_changed_during_the_last_clean_pass_or_after_it_counts_and_rests_when_seen_twice() {
    let mut ledger = Ledger::default();
    assert_eq!(turn(&mut ledger, &sample(10, 1, 0), [1, 2, 3, 4]), Wish::Draw);
    assert_eq!(turn(&mut ledger, &sample(11, 1, 0), [0; 4]), Wish::Nothing, "nothing has ended");
    // The first page changed in the first pass, the second in the last: only that was perhaps not visited since.
    assert_eq!(turn(&mut ledger, &sample(12, 1, 1), [9, 2, 3, 4]), Wish::Look);
    turn(&mut ledger, &sample(14, 1, 2), [9, 8, 3, 4]);
    assert_eq!(counts(&ledger), (1, 0));
    assert_eq!(turn(&mut ledger, &sample(14, 0, 2), [0; 4]), Wish::Nothing, "too soon");
    turn(&mut ledger, &sample(16, 0, 2), [9, 8, 7, 4]);
    assert_eq!(counts(&ledger), (2, 1));
    turn(&mut ledger, &sample(22, 0, 2), [9, 8, 7, 4]);
    assert_eq!(counts(&ledger), (2, 2));
    turn(&mut ledger, &sample(30, 0, 2), [9, 8, 6, 4]);
    assert_eq!(counts(&ledger), (2, 1));
}

#[test]
fn a_glance_calls_for_a_look_when_something_changes_and_when_it_comes_to_rest() {
    let mut ledger = Ledger::default();
    ledger.wish(&sample(10, 1, 0));
    ledger.drawn((0..64).map(print), Duration::from_secs(10));
    let mut seconds = 10;
    // Nothing changes, so looks are ever farther apart.
    while ledger.interval < LATEST {
        seconds += 10;
        assert_eq!(ledger.wish(&sample(seconds, 0, 0)), Wish::Look);
        ledger.looked((0..64).map(print), Duration::from_secs(seconds));
    }
    let mut glance = |ledger: &mut Ledger, changed: u64| {
        seconds += 1;
        let Wish::Glance { offset } = ledger.wish(&sample(seconds, 0, 0)) else { panic!("no glance") };
        let prints = (0..64).map(|page| print(page + changed * 100));
        let some = prints.clone().skip(offset).step_by(GLANCE_STEP);
        let is_time = ledger.glanced(offset, some, Duration::from_secs(seconds));
        if is_time {
            ledger.looked(prints, Duration::from_secs(seconds));
        }
        is_time
    };
    assert!(!glance(&mut ledger, 0) && glance(&mut ledger, 2));
    assert_eq!(counts(&ledger), (64, 0));
    assert_eq!(ledger.interval, SOONEST, "it is looked at again at once");
    ledger.interval = LATEST;
    assert!(!glance(&mut ledger, 3), "what changes all the time is no news");
    assert!(!glance(&mut ledger, 4) && glance(&mut ledger, 2));
    assert_eq!(counts(&ledger), (64, 64));
    ledger.interval = LATEST;
    assert!(!glance(&mut ledger, 2));
    assert!(glance(&mut ledger, 5), "what rested and changes again is news");
}

#[test]
fn a_smart_pass_leaves_what_has_changed_as_changed() {
    let mut ledger = Ledger::default();
    turn(&mut ledger, &sample(10, 0, 0), [1, 2, 3, 4]);
    turn(&mut ledger, &sample(20, 0, 0), [5, 2, 3, 4]);
    let mut smart = sample(30, 1, 1);
    smart.ksm.smart_scan = Reading::Value(1);
    turn(&mut ledger, &smart, [5, 2, 3, 4]);
    assert_eq!(counts(&ledger), (1, 1));
    turn(&mut ledger, &sample(31, 1, 2), [5, 2, 3, 4]);
    assert_eq!(counts(&ledger), (0, 0), "a clean one has visited it");
}

#[test]
fn a_content_that_was_merged_before_is_familiar_when_it_comes_back() {
    let mut ledger = Ledger::default();
    ledger.know(77);
    turn(&mut ledger, &sample(10, 1, 0), [101, 102, 3, 4]);
    turn(&mut ledger, &sample(12, 1, 1), [101, 102, 3, 4]);
    turn(&mut ledger, &sample(14, 1, 2), [101, 102, 3, 4]);
    turn(&mut ledger, &sample(20, 1, 3), [5, 6, 7, 8]);
    turn(&mut ledger, &sample(22, 1, 4), [5, 6, 7, 8]);
    for seconds in [30, 40] {
        turn(&mut ledger, &sample(seconds, 0, 4), [101, 9, 102, 77]);
    }
    let seen = ledger.witnesses().unwrap();
    assert_eq!((seen.rested, seen.familiar), (4, 3), "wherever it is now");
    assert_eq!((seen.familiar_part(), seen.unfamiliar_part(), seen.returned), (0.75, 0.25, 0));
}

#[test]
fn what_is_merged_when_witnesses_are_drawn_after_a_clean_pass_is_known() {
    let mut ledger = Ledger::default();
    turn(&mut ledger, &sample(10, 1, 0), [1, 2, 3, 4]);
    // The guest has grown during the pass.
    let grown = |seconds, run| {
        let mut sample = sample(seconds, run, 1);
        sample.processes[0].rss_bytes *= 2;
        sample
    };
    assert_eq!(turn(&mut ledger, &grown(12, 1), [101, 2, 3, 4]), Wish::Draw);
    turn(&mut ledger, &grown(20, 0), [5, 101, 3, 4]);
    turn(&mut ledger, &grown(30, 0), [5, 101, 3, 4]);
    let seen = ledger.witnesses().unwrap();
    assert_eq!((seen.rested, seen.familiar), (2, 1));
}

#[test]
fn a_page_that_was_written_to_and_holds_the_same_again_has_returned() {
    let mut ledger = Ledger::default();
    ledger.know(1);
    turn(&mut ledger, &sample(10, 1, 0), [101, 102, 1, 4]);
    turn(&mut ledger, &sample(12, 1, 1), [101, 102, 1, 4]);
    turn(&mut ledger, &sample(14, 1, 2), [101, 102, 1, 4]);
    assert_eq!(counts(&ledger), (0, 0));
    for at in [20, 30].map(Duration::from_secs) {
        ledger.wish(&Sample { at, ..sample(0, 0, 2) });
        let apart = lying(101, false);
        ledger.looked([apart, print(102), print(1), print(4)], at);
    }
    let seen = ledger.witnesses().unwrap();
    assert_eq!((seen.changed, seen.rested, seen.familiar, seen.returned), (1, 1, 1, 1));
}

/// What is expected of six pages, three of each of two guests, which shared them two by two, once they hold this.
fn seats(frames: [(u64, Frame); 6]) -> (u32, u32, u32, u32) {
    let mut ledger = Ledger::default();
    let all = |pages: [(u64, Frame); 6]| {
        let guests = [1, 1, 1, 2, 2, 2].into_iter().zip(pages);
        guests.map(|(guest, (content, frame))| Some(Print { guest, content, frame })).collect::<Vec<_>>()
    };
    let shared = [101, 102, 103, 101, 102, 103].map(|content| (content, Frame::Merged { mappings: 2 }));
    ledger.wish(&sample(10, 1, 0));
    ledger.drawn(all(shared), Duration::from_secs(10));
    for (seconds, full_scans) in [(12, 1), (14, 2)] {
        ledger.wish(&sample(seconds, 1, full_scans));
        ledger.looked(all(shared), Duration::from_secs(seconds));
    }
    for seconds in [20, 30] {
        ledger.wish(&sample(seconds, 0, 2));
        ledger.looked(all(frames), Duration::from_secs(seconds));
    }
    ledger.witnesses().map(|it| (it.familiar, it.seated, it.paired, it.mutual)).unwrap()
}

#[test]
fn pages_that_come_back_find_room_where_others_have_stayed_or_meet_each_other_or_nobody() {
    let own = |content| (content, Frame::Own);
    let lone = |content| (content, Frame::Merged { mappings: 1 });
    let both = |content| (content, Frame::Merged { mappings: 2 });
    let stayed = [own(101), own(102), own(103), lone(101), lone(102), lone(103)];
    assert_eq!(seats(stayed), (3, 3, 0, 0));
    let is_away = [own(101), own(102), own(103), own(7), own(8), own(9)];
    assert_eq!(seats(is_away), (3, 0, 0, 0), "the others hold something else");
    let are_back = [own(101), own(102), own(103), own(101), own(102), own(103)];
    assert_eq!(seats(are_back), (6, 0, 6, 6));
    let one_of_each = [own(101), own(102), both(103), lone(104), own(8), both(103)];
    assert_eq!(seats(one_of_each), (2, 1, 0, 0));
}

#[test]
fn of_three_that_shared_a_page_two_show_that_one_has_left_as_far_as_they_have_been_seen_together() {
    let mut entry = Entry::default();
    let mut lies = |content, mappings| {
        entry.lies(Some(Print { guest: 1, content, frame: Frame::Merged { mappings } }));
        entry.last = Some(content);
        entry.room()
    };
    assert_eq!(lies(101, 3), 0.0);
    assert_eq!(lies(101, 2), 0.5);
    assert_eq!(lies(101, 1), 2.0);
    assert_eq!(lies(102, 2), 0.0);
    assert_eq!(lies(102, 1), 1.0);
}

#[test]
fn zeros_find_room_always_and_so_does_everything_where_the_kernel_does_not_tell_how_many_share_a_page() {
    let mut ledger = Ledger::default();
    ledger.know(77);
    for (seconds, full_scans) in [(10, 0), (12, 1), (14, 2)] {
        turn(&mut ledger, &sample(seconds, 1, full_scans), [101, 102, 103, 4]);
    }
    let seen = |ledger: &mut Ledger, now: u64, prints: [Option<Print>; 4]| {
        for seconds in [now, now + 10] {
            ledger.wish(&sample(seconds, 0, 2));
            ledger.looked(prints, Duration::from_secs(seconds));
        }
        ledger.witnesses().map(|it| (it.familiar, it.seated)).unwrap()
    };
    let apart = [lying(77, false), lying(102, false), lying(3, false), lying(4, false)];
    assert_eq!(seen(&mut ledger, 20, apart), (2, 1));
    let apart = [lying(77, false), lying(102, false), lying(103, true), lying(4, false)];
    assert_eq!(seen(&mut ledger, 40, apart), (2, 2));
}

#[test]
fn what_came_of_contents_that_nobody_knew_is_told() {
    let mut ledger = Ledger::default();
    for (seconds, full_scans) in [(10, 0), (12, 1), (14, 2)] {
        turn(&mut ledger, &sample(seconds, 1, full_scans), [1, 2, 3, 104]);
    }
    for seconds in [20, 30] {
        turn(&mut ledger, &sample(seconds, 0, 2), [5, 6, 7, 104]);
    }
    let look = |ledger: &mut Ledger, seconds, full_scans, is_merged: [bool; 4]| {
        ledger.wish(&sample(seconds, 1, full_scans));
        let prints = [5, 6, 8, 104].into_iter().zip(is_merged);
        let prints = prints.map(|(content, is_merged)| lying(content, is_merged));
        ledger.looked(prints, Duration::from_secs(seconds));
        ledger.witnesses().map(|it| (it.tried, it.met)).unwrap()
    };
    assert_eq!(look(&mut ledger, 31, 2, [false, false, false, true]), (2, 0), "the third has changed again");
    assert_eq!(look(&mut ledger, 32, 3, [false, false, false, true]), (2, 0));
    assert_eq!(look(&mut ledger, 33, 4, [true, false, false, true]), (2, 1));
}

/// How long what comes back is taken to stay, look by look; the second page is merged all the time.
fn lasts(looks: &[(u64, u64, (u64, bool))]) -> Vec<Option<u64>> {
    let mut ledger = Ledger::default();
    let look = |&(seconds, full_scans, (content, is_merged)): &(u64, u64, (u64, bool))| {
        let sample = sample(seconds, u64::from(seconds < 16), full_scans);
        let prints = [lying(content, is_merged), lying(101, true), print(3), print(4)];
        match ledger.wish(&sample) {
            Wish::Draw => ledger.drawn(prints, sample.at),
            _ => ledger.looked(prints, sample.at),
        }
        ledger.witnesses().unwrap().lasts.map(|lasts| lasts.as_secs())
    };
    looks.iter().map(look).collect()
}

#[test]
fn what_stayed_for_a_moment_is_taken_to_go_as_soon_until_it_has_rested_for_longer() {
    let (own, merged, other) = ((101, false), (101, true), (5, false));
    let seen = lasts(&[(10, 0, own), (12, 1, merged), (15, 2, merged), (16, 2, other), (20, 2, own), (22, 2, own)]);
    assert_eq!(seen[3..], [None, None, Some(45)], "since when it had held that nobody knows");
    let seen = lasts(&[(10, 0, other), (11, 0, own), (12, 1, own), (15, 2, merged), (18, 2, other), (20, 2, own)]);
    assert_eq!(seen, [None; 6], "it has not come to rest");
    let came_back = [(10, 0, other), (11, 0, own), (12, 1, own), (15, 2, merged), (18, 2, other), (20, 2, own)];
    let seen = lasts(&[&came_back[..], &[(22, 2, own), (50, 2, own), (80, 2, own)]].concat());
    assert_eq!(seen[6..], [Some(7), Some(30), Some(45)]);
    let seen = lasts(&[&came_back[..], &[(22, 2, own), (24, 2, other), (26, 2, own), (27, 2, own)]].concat());
    assert_eq!(seen.last(), Some(&Some(4)), "that it was not merged does not make it shorter");
}

#[test]
fn what_is_written_to_and_holds_the_same_again_has_ended_too() {
    let (own, merged) = ((101, false), (101, true));
    let seen =
        lasts(&[(10, 0, (5, false)), (11, 0, own), (12, 1, own), (15, 2, merged), (18, 2, own), (19, 2, own)]);
    assert_eq!(seen[4..], [Some(7), Some(7)]);
}

#[test]
fn who_finds_nobody_does_not_tell_how_long_the_others_stay() {
    let now = Duration::from_secs(100);
    let familiar = |content, lived: Option<u64>| Entry {
        familiar: true,
        last: Some(content),
        frame: Some(Frame::Own),
        lived: lived.map(Duration::from_secs),
        since: Some(now),
        ..Entry::default()
    };
    let host = Entry { last: Some(101), frame: Some(Frame::Merged { mappings: 1 }), most: 1, ..Entry::default() };
    let lasts = |entries: &[Entry]| {
        let seats = Ledger { entries: entries.to_vec(), ..Ledger::default() }.seats(now);
        (seats.seated, seats.lasts.map(|lasts| lasts.as_secs()))
    };
    assert_eq!(lasts(&[host, familiar(101, None), familiar(101, Some(5))]), (2, Some(25)));
    let none = Entry { frame: Some(Frame::Own), last: Some(102), ..Entry::default() };
    assert_eq!(lasts(&[none, familiar(103, Some(5))]), (0, None));
}

#[test]
fn people_are_told_how_long_it_may_stay_if_that_is_not_long() {
    let mut seen =
        Witnesses { pages: 9, changed: 8, rested: 7, familiar: 6, seated: 3, paired: 2, ..Witnesses::default() };
    let text = "of 9 pages at random 8 have changed since, 7 of these rest, 6 hold what was merged before and 5 would find \
                others that hold it";
    assert_eq!(seen.in_words(), text);
    seen.lasts = Some(LASTING);
    assert_eq!((seen.in_words().as_str(), seen.lasting_part()), (text, 1.0));
    seen.lasts = Some(LASTING / 10);
    assert_eq!(seen.in_words(), format!("{text}, though perhaps for 4.5 s only"));
    assert_eq!(seen.lasting_part(), 0.1);
}

#[test]
fn another_population_has_other_witnesses() {
    let mut ledger = Ledger::default();
    turn(&mut ledger, &sample(10, 0, 0), [1, 2, 3, 4]);
    let mut grown = sample(20, 0, 0);
    grown.processes[0].rss_bytes = (1 << 30) + (1 << 28);
    assert_eq!(turn(&mut ledger, &grown, [1, 2, 3, 4]), Wish::Draw);
    grown.at = Duration::from_secs(30);
    assert_eq!(turn(&mut ledger, &grown, [1, 2, 3, 4]), Wish::Look);
    grown.at = Duration::from_secs(40);
    grown.processes[0].id.start_ticks = 2;
    assert_eq!(turn(&mut ledger, &grown, [1, 2, 3, 4]), Wish::Draw);
}

#[test]
fn what_cannot_be_read_is_no_witness() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.witnesses(), None);
    ledger.wish(&sample(10, 0, 0));
    ledger.drawn([print(1), None, print(3)], Duration::from_secs(10));
    ledger.wish(&sample(20, 0, 0));
    ledger.looked([None, print(2), print(4)], Duration::from_secs(20));
    let seen = ledger.witnesses().unwrap();
    assert_eq!((seen.pages, seen.changed, seen.rested), (2, 1, 0));
}
