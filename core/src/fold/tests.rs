//! Tests of the decisions.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::sample::ProcessId;

const MIB: u64 = 1 << 20;

const TERMS: FoldTerms = FoldTerms { may_fold: true, max_cpu_share: 0.02, price_bytes: 100.0 * MIB as f64 };

fn process(pid: u32) -> ProcessId {
    ProcessId { pid, start_ticks: 1 }
}

fn candidate(pid: u32, rss_mib: u64) -> FoldCandidate {
    FoldCandidate { id: process(pid), name: format!("web{pid}"), rss_bytes: rss_mib * MIB }
}

/// A look at so many MiB of huge pages, of which `percent` hold zeros in one half.
fn fold_look(huge_mib: u64, percent: u64) -> FoldLook {
    FoldLook {
        huge_bytes: huge_mib * MIB,
        huge_page_bytes: 2 * MIB,
        sampled_pages: 100,
        foldable_pages: percent,
        zero_bytes: percent * MIB,
        ..FoldLook::default()
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A policy with one candidate, at 1,000 s.
fn policy() -> FoldPolicy {
    let mut policy = FoldPolicy::new(TERMS);
    policy.set_candidates(seconds(1000), &[candidate(1, 500)]);
    policy
}

fn states(policy: &mut FoldPolicy) -> Vec<&'static str> {
    policy.drain_notes().iter().map(|note| note.state).collect()
}

/// Seconds that the policy waits. It looks at nothing.
fn wait(policy: &mut FoldPolicy, at: u64) -> u64 {
    match policy.next_step(seconds(at)) {
        FoldStep::Wait(wait) => wait.as_secs(),
        step => panic!("{step:?}"),
    }
}

#[test]
fn a_process_with_zeros_is_looked_at_and_then_folded_with_a_reason() {
    let mut policy = policy();
    assert_eq!(policy.next_step(seconds(1000)), FoldStep::Look { id: process(1) });
    policy.record_look(seconds(1000), process(1), fold_look(1000, 34), 0, Duration::from_millis(10));
    let step = policy.next_step(seconds(1000));
    assert!(
        matches!(step, FoldStep::Fold { id, cpu_limit } if id == process(1) && cpu_limit == seconds(6)),
        "{step:?}"
    );
    let notes = policy.drain_notes();
    assert_eq!(notes[0].text, "fold web1: 34 % of sampled huge pages hold zeros, about 170 MiB for 242 ms of CPU");
    let pass = FoldPass { looked_bytes: 1000 * MIB, freed_bytes: 160 * MIB, split_pages: 170, cpu_seconds: 0.25 };
    policy.record_pass(seconds(1001), process(1), &pass);
    assert_eq!(
        policy.drain_notes()[0].text,
        "160 MiB was freed in web1 for 250 ms of CPU, 170 huge pages were split"
    );
    assert_eq!(wait(&mut policy, 1001), 10, "it is looked at again after the first pause");
}

#[test]
fn what_yields_nothing_is_looked_at_less_and_less_and_said_once() {
    let mut policy = policy();
    let mut at = 1000;
    let mut waits = Vec::new();
    for _ in 0..9 {
        assert_eq!(policy.next_step(seconds(at)), FoldStep::Look { id: process(1) });
        policy.record_look(seconds(at), process(1), fold_look(1000, 1), 0, Duration::from_millis(10));
        waits.push(wait(&mut policy, at));
        at += waits.last().unwrap();
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 640, 640]);
    let notes = policy.drain_notes();
    assert_eq!(notes.len(), 1);
    assert_eq!(notes[0].text, "nothing is worth folding in 1 processes: at most 5.00 MiB of web1 would be freed");
    // More resident memory brings the look forward, and more huge memory ends the back-off.
    policy.set_candidates(seconds(at - 600), &[candidate(1, 600)]);
    assert_eq!(policy.next_step(seconds(at - 600)), FoldStep::Look { id: process(1) });
    policy.record_look(seconds(at - 600), process(1), fold_look(1200, 1), 0, Duration::from_millis(10));
    assert_eq!(wait(&mut policy, at - 600), 10);
    assert!(states(&mut policy).is_empty());
}

#[test]
fn a_pass_that_frees_nothing_is_followed_by_a_rest_in_which_figures_are_kept_up() {
    let mut policy = policy();
    policy.next_step(seconds(1000));
    policy.record_look(seconds(1000), process(1), fold_look(1000, 50), 0, Duration::from_millis(10));
    assert!(matches!(policy.next_step(seconds(1000)), FoldStep::Fold { .. }));
    let pinned = FoldPass { looked_bytes: 1000 * MIB, cpu_seconds: 0.3, ..FoldPass::default() };
    policy.record_pass(seconds(1000), process(1), &pinned);
    policy.next_step(seconds(1010));
    policy.record_look(seconds(1010), process(1), fold_look(1000, 50), MIB, Duration::from_millis(10));
    assert!(matches!(policy.next_step(seconds(1010)), FoldStep::Fold { .. }), "the first rest is over");
    policy.record_pass(seconds(1010), process(1), &pinned);
    policy.next_step(seconds(1020));
    policy.record_look(seconds(1020), process(1), fold_look(1000, 50), MIB, Duration::from_millis(10));
    assert_eq!(wait(&mut policy, 1020), 10, "folded memory is looked at, and nothing is folded");
}

#[test]
fn the_best_process_is_folded_first_after_all_were_looked_at() {
    let mut policy = FoldPolicy::new(TERMS);
    policy.set_candidates(seconds(5), &[1, 2, 3].map(|pid| candidate(pid, 500)));
    for (pid, percent) in [(1, 30), (2, 90), (3, 1)] {
        assert_eq!(policy.next_step(seconds(5)), FoldStep::Look { id: process(pid) });
        policy.record_look(seconds(5), process(pid), fold_look(1000, percent), 0, Duration::from_millis(10));
    }
    for pid in [2, 1] {
        assert!(matches!(policy.next_step(seconds(5)), FoldStep::Fold { id, .. } if id == process(pid)));
        let pass =
            FoldPass { looked_bytes: 1000 * MIB, freed_bytes: 300 * MIB, split_pages: 300, cpu_seconds: 0.3 };
        policy.record_pass(seconds(5), process(pid), &pass);
    }
    assert_eq!(wait(&mut policy, 5), 10);
}

#[test]
fn the_budget_holds_in_the_long_run() {
    let mut policy = policy();
    let (mut at, mut used) = (Duration::from_secs(1000), 0.0);
    let mut looked = Duration::ZERO;
    while at < seconds(1000 + 100_000) {
        match policy.next_step(at) {
            FoldStep::Wait(wait) => at += wait.max(Duration::from_millis(1)),
            FoldStep::Look { id } => {
                // Its memory grows all the time, and is full of zeros.
                looked += seconds(1);
                policy.record_look(
                    at,
                    id,
                    fold_look(1000 + 200 * looked.as_secs(), 90),
                    0,
                    Duration::from_millis(20),
                );
                policy.charge(Duration::from_millis(20));
                used += 0.02;
            }
            FoldStep::Fold { id, cpu_limit } => {
                let cpu = cpu_limit + Duration::from_millis(50);
                let pass = FoldPass {
                    looked_bytes: 1 << 30,
                    freed_bytes: 4 << 30,
                    split_pages: 500,
                    cpu_seconds: cpu.as_secs_f64(),
                };
                policy.record_pass(at, id, &pass);
                policy.charge(cpu);
                used += cpu.as_secs_f64();
                at += cpu;
            }
        }
    }
    assert!((1000.0..2010.0).contains(&used), "{used} s of 100,000");
}

#[test]
fn a_silent_process_rests_for_long_whatever_it_grows() {
    let mut policy = policy();
    policy.next_step(seconds(1000));
    policy.record_silence(seconds(1000), process(1));
    policy.set_candidates(seconds(1010), &[candidate(1, 5000)]);
    assert_eq!(wait(&mut policy, 1010), 3590);
    assert_eq!(policy.drain_notes()[0].text, "web1 does not let its memory be read; next look in 1 h");
    // One with the same PID is another process.
    policy.set_candidates(
        seconds(1010),
        &[FoldCandidate { id: ProcessId { pid: 1, start_ticks: 2 }, ..candidate(1, 1) }],
    );
    assert!(matches!(policy.next_step(seconds(1010)), FoldStep::Look { id } if id.start_ticks == 2));
}

#[test]
fn a_failure_is_said_once() {
    let mut policy = policy();
    for at in [1000, 1010, 1030] {
        assert_eq!(policy.next_step(seconds(at)), FoldStep::Look { id: process(1) });
        policy.record_failure(seconds(at), process(1), "permission denied");
    }
    assert_eq!(states(&mut policy), ["refused"]);
}

#[test]
fn nothing_is_folded_while_folding_is_off() {
    let mut policy = FoldPolicy::new(FoldTerms { may_fold: false, ..TERMS });
    policy.set_candidates(seconds(1), &[candidate(1, 500)]);
    assert_eq!(policy.next_step(seconds(1)), FoldStep::Look { id: process(1) });
    policy.record_look(seconds(1), process(1), fold_look(1000, 90), 100 * MIB, Duration::from_millis(10));
    assert_eq!(wait(&mut policy, 1), 10);
    assert!(states(&mut policy).is_empty());
    policy.configure(TERMS);
    assert_eq!(policy.next_step(seconds(2)), FoldStep::Look { id: process(1) });
    policy.record_look(seconds(2), process(1), fold_look(1000, 90), 100 * MIB, Duration::from_millis(10));
    assert!(matches!(policy.next_step(seconds(2)), FoldStep::Fold { .. }));
}

proptest! {
    #[test]
    fn no_figures_break_a_decision(
        steps in prop::collection::vec((0_u64..100_000, any::<[u64; 7]>(), any::<u64>(), any::<f64>(), 0_u32..3), 1..60),
    ) {
        let mut policy = FoldPolicy::new(TERMS);
        policy.set_candidates(Duration::ZERO, &[candidate(0, 1), candidate(1, 1), candidate(2, 1)]);
        for (at, [zero_mapped_bytes, ksm_zero_bytes, huge_bytes, huge_page_bytes, sampled_pages, foldable_pages, zero_bytes], folded, cpu_seconds, pid) in steps {
            let at = Duration::from_secs(at);
            let look = FoldLook { zero_mapped_bytes, ksm_zero_bytes, huge_bytes, huge_page_bytes, sampled_pages, foldable_pages, zero_bytes };
            match policy.next_step(at) {
                FoldStep::Wait(wait) => prop_assert!(wait > Duration::ZERO && wait <= Duration::from_secs(3600)),
                FoldStep::Look { id } => policy.record_look(at, id, look, folded, Duration::from_millis(folded % 1000)),
                FoldStep::Fold { id, cpu_limit } => {
                    prop_assert!(cpu_limit > Duration::ZERO);
                    let pass = FoldPass { looked_bytes: huge_bytes, freed_bytes: zero_bytes, split_pages: foldable_pages, cpu_seconds };
                    policy.record_pass(at, id, &pass);
                }
            }
            if folded % 7 == 0 {
                policy.record_silence(at, process(pid));
            }
        }
        prop_assert!(policy.drain_notes().iter().all(|note| !note.text.is_empty()));
    }
}
