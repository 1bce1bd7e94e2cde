//! Huge pages: what a merge splits, what a split frees, and what khugepaged undoes. Each count by pass was seen on Linux 6.18
//! with two processes of as many pages.

use super::*;

const HUGE: usize = 512;

/// Pages of `count` huge pages: `of` gives the content of each page by its number in the huge page and its number in all.
fn pages(count: usize, of: impl Fn(usize, u64) -> u64) -> Vec<u64> {
    (0..count * HUGE).map(|page| of(page % HUGE, page as u64 + 1)).collect()
}

/// A machine with two guests of these pages on huge pages.
fn pair(kernel: KernelVersion, pages: &[u64]) -> SimMachine {
    let mut machine = running(kernel);
    for name in ["a", "b"] {
        let guest = machine.add_guest(name, pages.iter().copied());
        assert!(machine.use_huge_pages(guest));
    }
    machine
}

fn linux(minor: u32) -> KernelVersion {
    KernelVersion::new(6, minor)
}

fn zero_pages(machine: &SimMachine) -> i64 {
    machine.sample().ksm.ksm_zero_pages.get().unwrap()
}

fn hurried(machine: &mut SimMachine, max_ptes_none: u64, max_ptes_shared: u64) {
    machine.write(Knob::MaxPtesNone, max_ptes_none).unwrap();
    machine.write(Knob::MaxPtesShared, max_ptes_shared).unwrap();
    machine.set_khugepaged(KhugepagedPace { pages_to_scan: 4096, scan_sleep_millisecs: 10 });
}

#[test]
fn one_merged_page_splits_its_huge_page() {
    let mut machine = pair(linux(18), &pages(4, |page, number| if page == 7 { number } else { UNIQUE }));
    assert_eq!(machine.figures().huge_pages, 8);
    passes(&mut machine, 1);
    assert_eq!(machine.figures().huge_pages, 8, "a first visit splits nothing");
    passes(&mut machine, 1);
    assert_eq!(gauges(&machine), [4, 4, 8 * HUGE as u64 - 8, 0], "all that is equal merges in the second pass");
    let figures = machine.figures();
    assert_eq!((figures.huge_pages, figures.splits, figures.truly_saved_pages), (0, 8, 4));
    audit(&machine).unwrap();
}

#[test]
fn a_split_frees_empty_pages_and_no_counter_says_so() {
    let mut machine = pair(
        linux(18),
        &pages(4, |page, number| {
            if page < 128 {
                number
            } else if page < 384 {
                UNIQUE
            } else {
                ZERO
            }
        }),
    );
    passes(&mut machine, 2);
    assert_eq!(zero_pages(&machine), 0);
    assert_eq!(machine.figures().truly_saved_pages, machine.figures().saved_pages + 8 * 128);
    // The empty page that waited in the tree is gone, and kept a few searches from coming past its place.
    passes(&mut machine, 1);
    assert_eq!(machine.figures().truly_saved_pages, (4 + 8) * 128);
    assert_eq!(gauges(&machine), [512, 512, 8 * 256, 0], "ksmd passes over what was freed");
    assert_eq!(machine.sample().processes[0].rss_bytes, Some(4 * 384 * PAGE_SIZE), "the zero page is not resident");
    audit(&machine).unwrap();
}

#[test]
fn before_linux_6_12_a_split_frees_nothing() {
    let contents = pages(2, |page, number| if page == 0 { number } else { ZERO });
    let mut machine = pair(linux(11), &contents);
    machine.write(Knob::UseZeroPages, 1).unwrap();
    passes(&mut machine, 2);
    assert_eq!(zero_pages(&machine), 4 * 511);
    assert_eq!(machine.figures().saved_pages, machine.figures().truly_saved_pages);
    let mut machine = pair(linux(12), &contents);
    machine.write(Knob::UseZeroPages, 1).unwrap();
    passes(&mut machine, 3);
    assert_eq!(zero_pages(&machine), 0);
    assert_eq!(machine.figures().truly_saved_pages, 4 * 511 + 2);
}

#[test]
fn an_empty_page_at_the_root_keeps_a_pass_from_merging() {
    let contents = pages(4, |page, number| match page {
        0..128 => ZERO,
        128..384 => UNIQUE,
        _ => number,
    });
    for (use_zero_pages, splits) in [(1, 8), (0, 1)] {
        let mut machine = pair(linux(18), &contents);
        machine.write(Knob::UseZeroPages, use_zero_pages).unwrap();
        passes(&mut machine, 2);
        assert_eq!((gauges(&machine)[..3].to_vec(), machine.figures().splits), (vec![0, 0, 1], splits));
        passes(&mut machine, 1);
        assert!(gauges(&machine)[1] > 500, "{:?}", gauges(&machine));
        assert_eq!(machine.figures().splits, 8);
        audit(&machine).unwrap();
    }
}

#[test]
fn without_use_zero_pages_a_pass_splits_one_huge_page_for_its_empty_pages() {
    let mut machine = pair(linux(18), &pages(4, |page, _| if page < 256 { UNIQUE } else { ZERO }));
    for pass in 1..5 {
        passes(&mut machine, 1);
        assert_eq!(machine.figures().splits, pass - 1);
        assert_eq!(machine.figures().truly_saved_pages, (pass - 1) * 256);
        assert_eq!(machine.figures().saved_pages, 0);
        audit(&machine).unwrap();
    }
}

#[test]
fn equal_pages_of_one_huge_page_merge_a_pass_later() {
    let mut machine = running(linux(18));
    let guest = machine.add_guest("a", pages(1, |page, _| if page < 2 { 7 } else { UNIQUE }));
    machine.use_huge_pages(guest);
    passes(&mut machine, 2);
    assert_eq!((machine.figures().splits, gauges(&machine)[1]), (1, 0));
    passes(&mut machine, 1);
    assert_eq!(gauges(&machine)[..2], [1, 1]);
    audit(&machine).unwrap();
}

#[test]
fn khugepaged_unmerges_while_ksmd_is_parked_and_the_counters_stay() {
    let mut machine = pair(linux(18), &pages(4, |page, number| if page < 128 { number } else { UNIQUE }));
    passes(&mut machine, 2);
    machine.write(Knob::Run, 0).unwrap();
    let (before, figures) = (machine.sample(), machine.figures());
    hurried(&mut machine, 511, 256);
    machine.advance(Duration::from_secs(1));
    let after = machine.figures();
    assert_eq!((figures.truly_saved_pages, after.truly_saved_pages), (512, 0), "exactly what was merged is undone");
    assert_eq!((after.saved_pages, after.huge_pages, after.collapses), (512, 8, 8));
    assert_eq!(machine.sample().ksm, before.ksm);
    assert_eq!(cow(&machine.sample()), cow(&before), "a copy by khugepaged is none on a write");
    assert!(after.khugepaged_cpu > Duration::ZERO);
    audit(&machine).unwrap();
    // ksmd sees it, and merges again at once: checksums are those of before.
    hurried(&mut machine, 511, 0);
    machine.write(Knob::Run, 1).unwrap();
    passes(&mut machine, 1);
    assert_eq!(machine.figures().truly_saved_pages, 512);
    audit(&machine).unwrap();
}

#[test]
fn khugepaged_keeps_to_its_limits_and_its_pace() {
    let contents = pages(16, |page, number| if page < 300 { number } else { UNIQUE });
    let mut machine = pair(linux(18), &contents);
    passes(&mut machine, 2);
    machine.write(Knob::Run, 0).unwrap();
    hurried(&mut machine, 511, 256);
    machine.advance(Duration::from_secs(1));
    assert_eq!(machine.figures().collapses, 0, "300 of 512 are shared");
    machine.write(Knob::MaxPtesShared, 300).unwrap();
    machine.set_khugepaged(KhugepagedPace::default());
    machine.advance(Duration::from_secs(25));
    // Eight huge pages at once, and eight after each ten seconds.
    assert_eq!(machine.figures().collapses, 24);
    // A page whose other copies are gone is shared no more.
    assert_eq!(machine.figures().truly_saved_pages, 0);
    audit(&machine).unwrap();
}

#[test]
fn khugepaged_fills_what_is_not_there() {
    let mut machine = SimMachine::new(SimConfig::default());
    let guest = machine.add_guest("a", pages(1, |_, _| UNIQUE));
    machine.use_huge_pages(guest);
    for page in 0..100 {
        machine.take_page(guest, page);
    }
    assert_eq!((machine.frames(), machine.figures().huge_pages), (412, 0));
    hurried(&mut machine, 99, 0);
    machine.advance(Duration::from_secs(1));
    assert_eq!(machine.frames(), 412);
    hurried(&mut machine, 100, 0);
    machine.advance(Duration::from_secs(1));
    assert_eq!((machine.frames(), machine.figures().huge_pages), (512, 1));
    assert_eq!(machine.most_attainable_pages(), 100, "they are empty pages now");
    audit(&machine).unwrap();
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

    #[test]
    fn splits_and_collapses_change_no_content_and_the_parts_add_up(
        kinds in proptest::collection::vec(0_usize..4, 1..12),
        use_zero_pages in 0_u64..2,
        smart_scan in 0_u64..2,
        max_ptes_shared in 0_u64..512,
        max_ptes_none in 0_u64..512,
        rounds in 1_u64..5,
    ) {
        let contents =
            pages(3, |page, number| [UNIQUE, ZERO, number, (1 << 40) | (number % 5)][kinds[page % kinds.len()]]);
        let mut machine = pair(linux(18), &contents);
        machine.write(Knob::UseZeroPages, use_zero_pages).unwrap();
        machine.write(Knob::SmartScan, smart_scan).unwrap();
        let held = |machine: &SimMachine| -> Vec<u32> {
            machine.memory.guests.iter().flat_map(|guest| guest.pages.iter().map(|page| page.slot)).collect()
        };
        let before = held(&machine);
        for _ in 0..rounds {
            passes(&mut machine, 2);
            machine.write(Knob::Run, 0).unwrap();
            let merged = machine.truly_saved_pages() + machine.frames();
            hurried(&mut machine, max_ptes_none, max_ptes_shared);
            machine.advance(Duration::from_millis(15));
            machine.write(Knob::Run, 1).unwrap();
            audit(&machine).map_err(proptest::prelude::TestCaseError::fail)?;
            // What guests hold is a frame or saved.
            proptest::prop_assert_eq!(machine.truly_saved_pages() + machine.frames(), merged);
            proptest::prop_assert_eq!(merged, 6 * HUGE as u64);
        }
        proptest::prop_assert_eq!(held(&machine), before);
    }
}
