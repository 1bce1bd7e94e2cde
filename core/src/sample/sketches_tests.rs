//! Estimates from sketches of made-up guests, against the truth.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::{ByteEstimate, GuestSketch, HostSketches, ProcessId, ReadPage, SketchMatches};
use crate::sketch::{SamplePositions, mix};

fn id(number: u64) -> ProcessId {
    ProcessId { pid: number as u32 + 1, start_ticks: 1 }
}

/// A guest's pages: the content and the number of pages that share its merged frame, 0 where there is none.
type Pages = Vec<(u64, u64)>;

fn sketch(number: u64, pages: &Pages, read: u64, seed: u64) -> GuestSketch {
    let all = pages.len() as u64;
    let mut sketch = GuestSketch::new(id(number), all);
    for place in SamplePositions::new(seed, number, all, read as f64 / all as f64) {
        let (content, mappings) = pages[place as usize];
        let fingerprint = if content == 0 { 0 } else { mix(content ^ mix(seed)) };
        sketch.add(ReadPage { place, fingerprint, mappings });
    }
    sketch
}

/// Makes the sketches of these guests, reading so many pages of each.
fn sketches(guests: &[Pages], read: u64, seed: u64) -> HostSketches {
    let numbered = guests.iter().enumerate();
    let guests = numbered.map(|(number, pages)| Arc::new(sketch(number as u64, pages, read, seed))).collect();
    HostSketches { guests, full_scans: 0, page_size: 1 }
}

/// Counts the true classes: of guests from `first_new` on, against those before.
fn truth(guests: &[Pages], first_new: usize) -> [f64; 3] {
    let (old, new) = guests.split_at(first_new);
    let merged: HashSet<u64> = old.iter().flatten().filter(|page| page.1 > 0).map(|page| page.0).collect();
    let unmerged: HashSet<u64> = old.iter().flatten().filter(|page| page.1 == 0).map(|page| page.0).collect();
    let mut counts = [0.0; 3];
    let mut alone: HashMap<u64, f64> = HashMap::new();
    for (content, _) in new.iter().flatten() {
        match *content {
            0 => counts[0] += 1.0,
            content if merged.contains(&content) => counts[0] += 1.0,
            content if unmerged.contains(&content) => counts[1] += 1.0,
            content => *alone.entry(content).or_default() += 1.0,
        }
    }
    counts[2] = alone.values().map(|copies| copies - 1.0).sum();
    counts
}

fn is_near(estimate: ByteEstimate, truth: f64, one: f64) -> bool {
    (estimate.bytes - truth).abs() <= 5.0 * estimate.error + 3.0 * one
}

fn classes(found: &SketchMatches) -> [ByteEstimate; 3] {
    [found.merged, found.unmerged, found.new]
}

/// Makes two old guests and two new ones. The old ones share `merged` pages, and the first holds `unmerged` others. The
/// new ones hold all of these, `new` pages of their own, `empty` pages and unique ones.
fn fleet(size: u64, [merged, unmerged, new, empty]: [u64; 4]) -> Vec<Pages> {
    let part = |from: u64, pages: u64, mappings: u64| (0..pages).map(move |page| (from << 32 | page, mappings));
    let unique = |guest: u64, used: u64| part(100 + guest, size - used, 0);
    let of_old = |guest: u64| -> Pages {
        let own = if guest == 0 { unmerged } else { 0 };
        part(1, merged, 2).chain(part(2, own, 0)).chain(unique(guest, merged + own)).collect()
    };
    let of_new = |guest: u64| -> Pages {
        let shared = part(1, merged, 0).chain(part(2, unmerged, 0)).chain(part(3, new, 0));
        let empty_pages = (0..empty).map(|_| (0, 0));
        shared.chain(empty_pages).chain(unique(guest, merged + unmerged + new + empty)).collect()
    };
    vec![of_old(0), of_old(1), of_new(2), of_new(3)]
}

proptest! {
    // Five standard errors hold for nearly all draws, so that the draws are the same each time.
    #![proptest_config(ProptestConfig { cases: 100, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// Guests of 16 to 200 MiB, read whole and in part.
    #[test]
    fn estimates_are_within_their_errors(
        size in 4096_u64..50_000,
        parts in prop::array::uniform4(0_u64..25),
        read in 4096_u64..50_000,
        seed: u64,
    ) {
        let guests = fleet(size, parts.map(|part| part * size / 100));
        let sketches = sketches(&guests, read.min(size), seed);
        let found = sketches.matches(|id| id.pid > 2, |_| true);
        let halvings = sketches.guests.iter().map(|guest| guest.halvings).max().unwrap_or(0);
        let part = (read as f64 / size as f64).min(1.0);
        let one = f64::from(halvings).exp2() / (part * part);
        for (estimate, truth) in classes(&found).into_iter().zip(truth(&guests, 2)) {
            prop_assert!(is_near(estimate, truth, one), "{estimate:?} of {truth}, one is {one}: {found:?}");
            prop_assert!(estimate.bytes <= found.new_bytes);
        }
        let sum: f64 = classes(&found).iter().map(|class| class.bytes).sum();
        prop_assert!((found.all().bytes - sum).abs() < 1e-6);
        prop_assert_eq!(found.new_bytes, 2.0 * size as f64);
        prop_assert_eq!(found.other_bytes, 2.0 * size as f64);
    }
}

#[test]
fn guests_read_whole_and_small_are_counted_exactly() {
    let guests = fleet(2000, [300, 200, 100, 50]);
    let found = sketches(&guests, 2000, 7).matches(|id| id.pid > 2, |_| true);
    assert_eq!(classes(&found).map(|class| class.bytes), [700.0, 400.0, 100.0]);
    assert_eq!(truth(&guests, 2), [700.0, 400.0, 100.0]);
}

#[test]
fn a_merged_page_of_a_new_guest_has_nothing_left_to_gain() {
    let mut guests = fleet(1000, [300, 200, 0, 0]);
    for page in guests[2..].iter_mut().flatten().filter(|page| page.0 >> 32 == 1) {
        page.1 = 4;
    }
    let found = sketches(&guests, 1000, 7).matches(|id| id.pid > 2, |_| true);
    assert_eq!(classes(&found).map(|class| class.bytes), [0.0, 400.0, 0.0]);
}

#[test]
fn a_guest_that_is_neither_new_nor_another_is_left_out() {
    let guests = fleet(1000, [0, 200, 0, 0]);
    let sketches = sketches(&guests, 1000, 7);
    let classes_beside = |other: u32| {
        let found = sketches.matches(|id| id.pid == 3, |id| id.pid == other);
        assert_eq!((found.new_bytes, found.other_bytes), (1000.0, 1000.0));
        classes(&found).map(|class| class.bytes)
    };
    assert_eq!(classes_beside(1), [0.0, 200.0, 0.0]);
    assert_eq!(classes_beside(2), [0.0, 0.0, 0.0]);
}
