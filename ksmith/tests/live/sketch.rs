//! Sketches on the live kernel: what they foretell is what ksmd then merges.

use std::collections::HashMap;

use crate::support::{KernelLock, clean_passes, guest, number, write, zero_pages};
use ksmith_core::balance::BalanceConfig;
use ksmith_core::sketch::MergeRules;
use ksmith_host::memory::process::OpenProcess;
use ksmith_lab::{MemoryGuest, MemoryPart};
use ksmith_sketch::{CaptureOptions, FleetKey, RateRule, SamplingRate, SketchSubject, capture};

/// Pages that KSM saves now.
fn saved() -> f64 {
    (number("pages_sharing") + zero_pages()) as f64
}

/// Pages that merging would save, and the standard error, by the sketches of all guests together: as a planner computes it.
fn foretold(guests: &[MemoryGuest], bits: u32, rules: &MergeRules) -> (f64, f64) {
    let of = |guest: &MemoryGuest| {
        SketchSubject::from_process(&OpenProcess::open(guest.pid()).unwrap(), &BalanceConfig::default())
    };
    let rate = SamplingRate::from_bits(bits);
    let options = CaptureOptions {
        subjects: guests.iter().map(of).collect(),
        rate: RateRule::Stated(rate),
        again: Some(std::time::Duration::from_millis(100)),
    };
    let found = capture(&options, &FleetKey::from_secret(b"a secret of the live test")).unwrap();
    assert!(found.skipped.is_empty(), "{:?}", found.skipped);
    let mut copies: HashMap<u64, u64> = HashMap::new();
    for row in found.guests.iter().flat_map(|guest| guest.sketch.rows(rate)) {
        *copies.entry(row.fingerprint).or_default() += u64::from(row.steady);
    }
    let of_content = |copies: &u64| (copies - rules.frames(*copies)) as f64;
    let sampled: f64 = copies.values().map(of_content).sum();
    let squares: f64 = copies.values().map(|copies| of_content(copies).powi(2)).sum();
    let zero: u64 = found.guests.iter().map(|guest| guest.sketch.zero_pages).sum();
    let error = (squares * (1.0 - rate.part())).sqrt() / rate.part();
    (sampled / rate.part() + (zero - rules.zero_frames(zero)) as f64, error)
}

#[test]
fn what_clean_passes_merge_is_what_the_sketches_foretell() {
    let Some(_lock) = KernelLock::acquire() else { return };
    // Without any mergeable memory ksmd makes no passes.
    let _bait = guest(&[MemoryPart::Unique { pages: 1 }]);
    write("run", "2");
    write("use_zero_pages", "0");
    clean_passes(3);
    let strangers = saved();
    let equal = |seed, pages| MemoryPart::Equal { seed, pages };
    let guests: Vec<MemoryGuest> = (0..4)
        .map(|at| {
            guest(&[
                equal(at, 3000),
                equal(at + 1, 3000),
                MemoryPart::Zero { pages: 500 },
                MemoryPart::Unique { pages: 1500 },
            ])
        })
        .collect();
    let rules = MergeRules { max_page_sharing: number("max_page_sharing"), use_zero_pages: false };
    let (exact, none) = foretold(&guests, 0, &rules);
    let (sampled, error) = foretold(&guests, 4, &rules);
    assert_eq!(none, 0.0);
    clean_passes(3);
    let merged = saved() - strangers;
    println!("{exact} foretold at rate 1, {sampled} +- {error} at 1/16, {merged} merged");
    assert!((exact - merged).abs() <= 0.02 * merged, "{exact} {merged}");
    // The key is fixed, and so is the draw: three standard errors.
    assert!((sampled - merged).abs() <= 3.0 * error + 0.02 * merged, "{sampled} +- {error}, {merged}");
}
