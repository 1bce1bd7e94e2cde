//! One case for each cause, and a property: every byte has one cause.

use proptest::prelude::*;

use super::*;
use crate::kernel::{KsmStat, ProcessMapping, SmapsFigures};

const PAGE: u64 = 4096;

/// 1,000 marked pages none of them merged and four sampled, on a host where ksmd has made many passes.
fn patient(look: WatchedPage) -> ProcessExamination {
    let flags = vec![*b"rd", *b"wr", *b"mg"];
    let figures = Some(SmapsFigures { rss: 1000 * PAGE, anonymous: 1000 * PAGE, ..SmapsFigures::default() });
    let mapping = ProcessMapping { start: 0x1000, end: 0x40_0000, figures, flags, ..ProcessMapping::default() };
    let pages = Some(AnonymousPages { unmerged: 1000, ..AnonymousPages::default() });
    ProcessExamination {
        page_size: PAGE,
        ksm: KsmStat { rmap_items: Some(1000), ..KsmStat::default() },
        drives_device: Some(false),
        mappings: vec![MappingExamination { mapping, pages, looks: vec![look; 4], merged_looks: Vec::new() }],
        host: HostState {
            is_scanning: true,
            max_page_sharing: 256,
            full_scans: 100,
            pass_milliseconds: 1000,
            ..HostState::default()
        },
        watch: ScanWatch { seconds: 5.0, passes: 3, skipped: 0, lost_opt_in: false },
        searched_pages: 5000,
        searchable_pages: 5000,
        age_seconds: Some(100.0),
        ..ProcessExamination::default()
    }
}

const EQUAL: WatchedPage = WatchedPage {
    then: LaterState::Same,
    is_huge: false,
    is_zero: false,
    equals: Some(EqualPages { copies: 1, merged: 0, frames: 0 }),
};

fn alone() -> WatchedPage {
    WatchedPage { equals: Some(EqualPages::default()), ..EQUAL }
}

/// The main cause after `change`, which must be the only one.
fn cause(look: WatchedPage, change: impl FnOnce(&mut ProcessExamination)) -> Cause {
    let mut seen = patient(look);
    change(&mut seen);
    let diagnosis = judge(&seen);
    assert_eq!(diagnosis.causes.len(), 1, "{:?}", diagnosis.causes);
    assert_eq!(diagnosis.causes[0].bytes, 1000 * PAGE);
    diagnosis.main.unwrap()
}

fn figures(seen: &mut ProcessExamination) -> &mut SmapsFigures {
    seen.mappings[0].mapping.figures.as_mut().unwrap()
}

fn flags(seen: &mut ProcessExamination) -> &mut Vec<[u8; 2]> {
    &mut seen.mappings[0].mapping.flags
}

#[test]
fn each_cause_is_told_from_the_others() {
    assert_eq!(cause(EQUAL, |_| ()), Cause::Held);
    assert_eq!(cause(WatchedPage { is_huge: true, ..EQUAL }, |_| ()), Cause::HugePage);
    assert_eq!(cause(EQUAL, |seen| seen.host.is_scanning = false), Cause::Stopped);
    assert_eq!(cause(alone(), |_| ()), Cause::Unique);
    assert_eq!(cause(alone(), |seen| seen.searched_pages = 4999), Cause::NoEqualSeen);
    assert_eq!(cause(WatchedPage { then: LaterState::Changed, ..EQUAL }, |_| ()), Cause::Changing);
    assert_eq!(cause(WatchedPage { then: LaterState::Merged, ..EQUAL }, |_| ()), Cause::Merged);
    assert_eq!(cause(WatchedPage { equals: None, ..EQUAL }, |_| ()), Cause::Unseen);
    assert_eq!(cause(EQUAL, |seen| seen.drives_device = Some(true)), Cause::Vfio);
    assert_eq!(cause(EQUAL, |seen| *flags(seen) = vec![*b"rd"]), Cause::NotMarked);
    assert_eq!(cause(EQUAL, |seen| seen.mappings[0].mapping.is_shared = true), Cause::Shared);
    for (mergeable, expected) in
        [(None, Cause::Unseen), (Some(true), Cause::Unseen), (Some(false), Cause::NotMarked)]
    {
        let without_flags = |seen: &mut ProcessExamination| {
            flags(seen).clear();
            seen.ksm.mergeable = mergeable;
        };
        assert_eq!(cause(EQUAL, without_flags), expected, "ksm_mergeable {mergeable:?}");
    }
    let hugetlb = |seen: &mut ProcessExamination| {
        *figures(seen) = SmapsFigures { hugetlb: 1000 * PAGE, ..SmapsFigures::default() };
        *flags(seen) = vec![*b"ht"];
    };
    assert_eq!(cause(EQUAL, hugetlb), Cause::Hugetlb);
    assert_eq!(cause(EQUAL, |seen| flags(seen).push(*b"pf")), Cause::Device);
    let of_file = |seen: &mut ProcessExamination| {
        figures(seen).anonymous = 0;
        seen.mappings[0].pages = Some(AnonymousPages::default());
    };
    assert_eq!(cause(EQUAL, of_file), Cause::File);
    let zero = |seen: &mut ProcessExamination| {
        (figures(seen).rss, figures(seen).anonymous) = (0, 0);
        seen.mappings[0].pages = Some(AnonymousPages { zero: 1000, ..AnonymousPages::default() });
    };
    assert_eq!(cause(EQUAL, zero), Cause::ZeroPage);
    let swapped = |seen: &mut ProcessExamination| {
        *figures(seen) = SmapsFigures { swap: 1000 * PAGE, ..SmapsFigures::default() };
        seen.mappings[0].pages = Some(AnonymousPages::default());
    };
    assert_eq!(cause(EQUAL, swapped), Cause::Swapped);
}

#[test]
fn smart_scan_is_blamed_only_where_it_passed_over_pages() {
    let trapped = |seen: &mut ProcessExamination| {
        seen.host.smart_scan = true;
        seen.watch.skipped = 500;
    };
    assert_eq!(cause(EQUAL, trapped), Cause::SmartScan);
    assert_eq!(cause(EQUAL, |seen| seen.host.smart_scan = true), Cause::Held);
    // Not watched for long enough: an inference, and the evidence says so.
    let mut seen = patient(EQUAL);
    seen.host.smart_scan = true;
    seen.host.pages_skipped = 500;
    seen.watch.passes = 2;
    let diagnosis = judge(&seen);
    assert_eq!(diagnosis.main, Some(Cause::SmartScan));
    assert!(diagnosis.causes[0].evidence.as_ref().unwrap().starts_with("most likely"));
    // A young process may simply not have been visited twice.
    seen.age_seconds = Some(2.0);
    assert_eq!(judge(&seen).main, Some(Cause::NotVisitedTwice));
}

#[test]
fn a_process_that_ksmd_does_not_track_yet_was_not_visited() {
    let unvisited = |seen: &mut ProcessExamination| {
        seen.watch.passes = 0;
        seen.ksm.rmap_items = Some(100);
    };
    assert_eq!(cause(EQUAL, unvisited), Cause::NotVisitedTwice);
    assert_eq!(cause(EQUAL, |seen| (seen.watch.passes, seen.host.full_scans) = (0, 1)), Cause::NotVisitedTwice);
}

#[test]
fn the_remedy_is_one_that_helps_this_process() {
    let remedy = |look, change: &dyn Fn(&mut ProcessExamination)| {
        let mut seen = patient(look);
        change(&mut seen);
        judge(&seen).causes[0].remedy.unwrap_or_default()
    };
    let stopped = |runs| remedy(EQUAL, &|seen| (seen.host.is_scanning, seen.daemon_runs) = (false, runs));
    assert!(stopped(false).starts_with("`ksmith daemon`") && stopped(true).starts_with("`ksmith scan`"));
    let unmarked = |is_qemu| {
        remedy(EQUAL, &move |seen| {
            seen.is_qemu = is_qemu;
            *flags(seen) = vec![*b"rd"];
        })
    };
    assert!(unmarked(true).starts_with("`ksmith merge on GUEST`"), "{}", unmarked(true));
    assert!(unmarked(false).starts_with("mark it"));
    // The heap of a QEMU whose guest's memory is marked.
    let mut seen = ProcessExamination { is_qemu: true, ..patient(alone()) };
    let mut heap = seen.mappings[0].clone();
    heap.looks.clear();
    heap.mapping.figures = Some(SmapsFigures { rss: 10 * PAGE, anonymous: 10 * PAGE, ..SmapsFigures::default() });
    heap.mapping.flags = vec![*b"rd"];
    heap.pages = Some(AnonymousPages { unmerged: 10, ..AnonymousPages::default() });
    seen.mappings.push(heap);
    let causes = judge(&seen).causes;
    let found = causes.iter().find(|total| total.cause == Cause::NotMarked).unwrap();
    assert_eq!((found.bytes, found.remedy), (10 * PAGE, None));
}

#[test]
fn an_opt_in_is_lost_only_if_there_was_one() {
    let lost = |seen: &mut ProcessExamination| {
        *flags(seen) = vec![*b"rd"];
        seen.ksm.merge_any = Some(false);
        seen.meant_to_opt_in = Some("its service has MemoryKSM=yes".to_owned());
    };
    assert_eq!(cause(EQUAL, lost), Cause::OptInLost);
    let mut seen = patient(EQUAL);
    lost(&mut seen);
    seen.ksm.merge_any = Some(true);
    assert_eq!(judge(&seen).main, Some(Cause::NotMarked));
    seen.watch.lost_opt_in = true;
    assert_eq!(judge(&seen).main, Some(Cause::OptInLost));
}

#[test]
fn a_chain_costs_its_frames_but_the_first_and_leaves_one_page_over() {
    let mut seen = patient(EQUAL);
    let equals = EqualPages { copies: 999, merged: 999, frames: 4 };
    seen.mappings[0].pages = Some(AnonymousPages { merged: 1000, ..AnonymousPages::default() });
    seen.mappings[0].merged_looks = vec![equals; 10];
    let diagnosis = judge(&seen);
    assert_eq!(diagnosis.bytes(Cause::ChainLimit), 3 * PAGE);
    assert_eq!(diagnosis.main, Some(Cause::Merged));
    let evidence = diagnosis.causes[1].evidence.as_deref();
    assert_eq!(evidence, Some("one content has 1000 copies, and max_page_sharing is 256"));
    // 256 merged copies and one that finds no partner.
    let odd = WatchedPage { equals: Some(EqualPages { copies: 256, merged: 256, frames: 1 }), ..EQUAL };
    assert_eq!(cause(odd, |_| ()), Cause::ChainLimit);
    assert_eq!(cause(odd, |seen| seen.host.max_page_sharing = 300), Cause::Held);
}

#[test]
fn zeros_need_no_equal_where_the_kernel_has_a_page_for_them() {
    let zero = WatchedPage { is_zero: true, ..alone() };
    assert_eq!(cause(zero, |_| ()), Cause::Unique);
    assert_eq!(cause(zero, |seen| seen.host.use_zero_pages = true), Cause::Held);
}

#[test]
fn a_notable_loss_comes_before_the_bulk() {
    let mut seen = patient(alone());
    seen.mappings[0].looks = [vec![alone(); 18], vec![EQUAL; 2]].concat();
    assert_eq!(judge(&seen).main, Some(Cause::Held));
    seen.mappings[0].looks = [vec![alone(); 98], vec![EQUAL; 2]].concat();
    assert_eq!(judge(&seen).main, Some(Cause::Unique));
}

fn any_look() -> impl Strategy<Value = WatchedPage> {
    let then =
        prop::sample::select(vec![LaterState::Same, LaterState::Changed, LaterState::Merged, LaterState::Gone]);
    let equals = prop::option::of((0_u64..600, 0_u64..600, 0_u64..5));
    (then, any::<bool>(), any::<bool>(), equals).prop_map(|(then, is_huge, is_zero, equals)| {
        let equals =
            equals.map(|(copies, merged, frames)| EqualPages { copies, merged: merged.min(copies), frames });
        WatchedPage { then, is_huge, is_zero, equals }
    })
}

proptest! {
    /// Each page in memory is accounted for exactly once, whatever was seen.
    #[test]
    fn every_page_has_one_cause(
        looks in prop::collection::vec(any_look(), 0..20),
        merged in 0_u64..5000, zero in 0_u64..5000, unmerged in 0_u64..5000, of_file in 0_u64..100, swap in 0_u64..9,
        marked: Option<bool>, vfio: bool, scanning: bool, smart: bool, passes in 0_u64..5,
    ) {
        let mut seen = patient(EQUAL);
        seen.mappings[0].looks = looks;
        seen.mappings[0].pages = Some(AnonymousPages { merged, zero, unmerged });
        *flags(&mut seen) = marked.map_or(Vec::new(), |marked| vec![if marked { *b"mg" } else { *b"rd" }]);
        let rss = (merged + unmerged + of_file) * PAGE;
        let anonymous = (merged + unmerged) * PAGE;
        *figures(&mut seen) = SmapsFigures { rss, anonymous, swap: swap * PAGE, ..SmapsFigures::default() };
        seen.drives_device = Some(vfio);
        seen.host.is_scanning = scanning;
        seen.host.smart_scan = smart;
        seen.watch.passes = passes;
        let sum: u64 = judge(&seen).causes.iter().map(|total| total.bytes).sum();
        prop_assert_eq!(sum, rss + (zero + swap) * PAGE);
    }
}
