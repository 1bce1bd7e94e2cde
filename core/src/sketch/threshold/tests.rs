//! The sketch against the exact count, and its interval over seeded trials.

use proptest::prelude::*;

use super::*;
use crate::sketch::exact::{self, GuestPages};
use crate::sketch::populations::{self, POPULATIONS};
use crate::sketch::{fingerprint, mix};

const PAGES: usize = 40_000;

fn sketch(guests: &[Vec<u64>], slots: usize) -> ContentSketch {
    let mut sketch = ContentSketch::new(guests.len(), slots, 7);
    for (guest, pages) in (0..).zip(guests) {
        sketch.add(guest, pages);
    }
    sketch
}

fn truth(guests: &[Vec<u64>]) -> SavingsOutcome {
    let pages: Vec<_> = guests.iter().map(|guest| GuestPages { pieces: vec![guest] }).collect();
    exact::outcome(&pages, &MergeRules::default(), true)
}

/// Over 100 salts the interval holds the truth at least 93 times, for each population.
#[test]
#[allow(clippy::disallowed_macros, reason = "prints the figures of docs/measurements")]
fn the_interval_holds_the_truth() {
    for population in POPULATIONS {
        let guests = population.guests(PAGES);
        let truth = truth(&guests).total.saved.expected;
        let mut covered = 0;
        let mut worst: f64 = 0.0;
        for seed in 0..100 {
            let sketch = sketch(&populations::salted(&guests, seed), 4096);
            assert!(sketch.rate() < 0.3 || population.distinct() < PAGES / 4, "{}", population.name());
            let saved = sketch.outcome(&MergeRules::default(), false).total.saved;
            covered += u32::from(saved.low <= truth && truth <= saved.high);
            let total: usize = guests.iter().map(Vec::len).sum();
            worst = worst.max((saved.expected - truth).abs() / total as f64);
        }
        println!("{}: {covered} of 100, worst error {:.2} % of memory", population.name(), worst * 100.0);
        assert!(covered >= 93, "{}: {covered} of 100", population.name());
    }
}

#[test]
fn while_nothing_is_dropped_it_is_exact() {
    let guests = POPULATIONS[0].guests(2_000);
    let sketch = sketch(&guests, 1 << 14);
    assert_eq!(sketch.rate(), 1.0);
    let (ours, truth) = (sketch.outcome(&MergeRules::default(), true), truth(&guests));
    assert_eq!(ours.total.saved.low, ours.total.saved.high);
    assert!((ours.total.saved.expected - truth.total.saved.expected).abs() < 1e-6);
    assert_eq!(ours.pairs, truth.pairs);
}

/// 300 contents with 300 copies each and 40,000 with one: when the table overflows, the heavy ones stay.
#[test]
fn contents_that_are_heavy_by_the_time_of_halving_are_counted_exactly() {
    let heavy = |i: u64| fingerprint(mix(i));
    let mut pages: Vec<u64> = (0..300).flat_map(|_| (0..300).map(heavy)).collect();
    pages.extend((1000..41_000).map(heavy));
    let sketch = sketch(&[pages], 4096);
    assert!(sketch.rate() < 0.1);
    let kept = sketch.table.sorted().iter().filter(|entry| entry.count == 300).count();
    assert_eq!(kept, 300);
    let outcome = sketch.outcome(&MergeRules::default(), false).total;
    // Two frames each, at weight 1: the only uncertainty left is in the single ones.
    let single = 40_000.0 * (1.0 / sketch.rate() - 1.0);
    assert!(outcome.saved.high - outcome.saved.low < 4.7 * single.sqrt());
}

#[test]
fn memory_stays_within_its_bound() {
    let mut sketch = ContentSketch::new(1, ContentSketch::SLOTS, 0);
    let pages: Vec<u64> = (0..3_000_000).map(|i| fingerprint(mix(i))).collect();
    sketch.add(0, &pages);
    assert!(sketch.rate() < 1.0);
    assert!(sketch.peak_bytes() <= 24 << 20, "{}", sketch.peak_bytes());
    assert_eq!(sketch.table.bytes(), ContentSketch::SLOTS * 16);
}

#[test]
fn a_guest_that_is_forgotten_was_never_there() {
    let guests = POPULATIONS[2].guests(2_000);
    let mut all = sketch(&guests, 1 << 14);
    all.forget(3);
    let mut rest = guests.clone();
    rest[3].clear();
    assert_eq!(
        all.outcome(&MergeRules::default(), true),
        sketch(&rest, 1 << 14).outcome(&MergeRules::default(), true)
    );
}

#[test]
fn a_sketch_arrives_as_it_was_sent_and_nonsense_does_no_harm() {
    let sketch = sketch(&POPULATIONS[1].guests(PAGES), 2048);
    let text = serde_json::to_string(&sketch).unwrap();
    let arrived: ContentSketch = serde_json::from_str(&text).unwrap();
    let rules = MergeRules::default();
    assert_eq!(arrived.outcome(&rules, true), sketch.outcome(&rules, true));
    let nonsense = r#"{"salt_tag":1,"halvings":4000000000,"entries":[{"fingerprint":5,"guest":9,"count":0},
        {"fingerprint":5,"guest":9,"count":3}],"pinned":[[5,4000000000]],"guests":[{"pages":1,"zero":7}]}"#;
    let arrived: ContentSketch = serde_json::from_str(nonsense).unwrap();
    let total = arrived.outcome(&rules, true).total;
    assert_eq!((total.pages, total.zero, total.saved.expected), (1, 1.0, 0.0));
}

#[test]
fn hosts_with_different_salts_are_not_joined() {
    let mut one = ContentSketch::new(1, 1024, 1);
    assert_eq!(one.join(&ContentSketch::new(1, 1024, 2)), Err(JoinError));
}

proptest! {
    /// Joined sketches equal one sketch of all guests, where both kept the same contents.
    #[test]
    fn a_joined_sketch_is_the_sketch_of_the_joined(
        hosts in prop::collection::vec(prop::collection::vec(prop::collection::vec(2_u64..900, 0..600), 1..3), 2),
    ) {
        let spread = |host: &[Vec<u64>]| -> Vec<Vec<u64>> {
            host.iter().map(|guest| guest.iter().map(|&p| fingerprint(mix(p))).collect()).collect()
        };
        let (a, b) = (spread(&hosts[0]), spread(&hosts[1]));
        let mut joined = sketch(&a, 1024);
        joined.join(&sketch(&b, 1024)).unwrap();
        let all: Vec<Vec<u64>> = a.into_iter().chain(b).collect();
        let mut whole = sketch(&all, 1024);
        while whole.halvings < joined.halvings {
            whole.halve();
        }
        while joined.halvings < whole.halvings {
            joined.halve();
        }
        prop_assert_eq!(whole.table.sorted(), joined.table.sorted());
        prop_assert_eq!(whole.guests, joined.guests);
    }
}

/// Two hosts, each with a full table and heavy contents of its own: the interval still holds the truth.
#[test]
fn joined_hosts_keep_an_honest_interval() {
    let mut covered = 0;
    for seed in 0..100 {
        let guests = POPULATIONS[1].guests(PAGES);
        let salted = populations::salted(&guests, seed);
        let (left, right) = salted.split_at(1);
        let mut joined = sketch(left, 4096);
        joined.join(&sketch(right, 2048)).unwrap();
        let saved = joined.outcome(&MergeRules::default(), false).total.saved;
        let truth = truth(&guests).total.saved.expected;
        covered += u32::from(saved.low <= truth && truth <= saved.high);
    }
    assert!(covered >= 93, "{covered} of 100");
}
