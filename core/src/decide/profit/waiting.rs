//! Tests of `profit` where ksmd waits, and where memory is in huge pages, on the simulated ksmd.

use std::time::Duration;

use super::ProfitConfig;
use super::config::MergeTime;
use super::tests::{MIB, ProfitRun, guest};
use crate::decide::PolicyLimits;
use crate::sim::{GuestPlan, SimConfig, SimMachine, clones};
use crate::trial::SimHost;

/// Half of the guests' memory is equal. Two leave the host plenty, four do not, and what merges then stays merged.
#[test]
fn while_memory_is_plentiful_ksmd_can_wait() {
    let config = ProfitConfig { when: MergeTime::Short, ..ProfitConfig::default() };
    let sim = SimConfig { total_bytes: 1 << 30, other_bytes: 128 << 20, ..SimConfig::default() };
    let mut run = ProfitRun::configured(SimHost::new(SimMachine::new(sim)), PolicyLimits::default(), config);
    let start = |run: &mut ProfitRun, at: u64, count| {
        clones(count, "clone", |plan| guest(plan, 192).starting_at(Duration::from_secs(at)))
            .into_iter()
            .for_each(|plan| run.machine_mut().start(plan));
    };
    start(&mut run, 1, 2);
    run.for_seconds(60);
    assert_eq!((run.states(), run.machine().sample().ksm.full_scans.get()), (vec!["parked"], Some(0)));
    start(&mut run, 61, 2);
    run.for_seconds(30);
    assert!(run.saved_part() > 0.99, "{}", run.saved_part());
    run.for_seconds(600);
    assert!(run.saved_part() > 0.95, "{}", run.saved_part());
    assert_eq!(run.states().last(), Some(&"parked"));
    let passes = run.machine().sample().ksm.full_scans;
    start(&mut run, 700, 1);
    run.for_seconds(60);
    assert_eq!(run.machine().sample().ksm.full_scans, passes, "there is room for one more");
}

/// Equal pages lie scattered over all huge pages of two guests, so many in each.
#[test]
fn huge_pages_are_split_where_that_saves_a_good_part_of_them_or_memory_is_short() {
    let play = |equal: u32, total_bytes| {
        let sim = SimConfig { total_bytes, other_bytes: 0, ..SimConfig::default() };
        let mut run = ProfitRun::configured(
            SimHost::new(SimMachine::new(sim)),
            PolicyLimits::default(),
            ProfitConfig::default(),
        );
        let scattered = |plan: GuestPlan| {
            (0..128).fold(plan.huge(), |plan, range| plan.equal(range, equal).unique(512 - equal))
        };
        clones(2, "guest", scattered).into_iter().for_each(|plan| run.machine_mut().start(plan));
        run.for_seconds(300);
        (run.machine().sample().ksm.full_scans.get() != Some(0), run.saved_part() > 0.99)
    };
    let plenty = 4 << 30;
    assert_eq!(play(5, plenty), (false, false), "1 %: next to nothing is equal");
    assert_eq!(play(31, plenty), (false, false), "6 %: 3 % of what is split");
    assert_eq!(play(128, plenty), (true, true), "25 %");
    assert_eq!(play(31, 560 << 20), (true, true), "memory is short");
}

/// Searches of the second pass end at nodes whose zero pages the splits have freed.
#[test]
fn guests_on_huge_pages_are_merged_whole_before_ksmd_is_parked() {
    for seed in 1..5 {
        let plan = |plan: GuestPlan| plan.zero(24 * MIB).equal(seed, 64 * MIB).unique(40 * MIB).huge();
        let mut run = ProfitRun::with(clones(2, "vm", plan));
        run.until(Duration::from_secs(60), |machine, decision| {
            decision.reason.state == "parked" && machine.figures().passes > 1
        });
        run.for_seconds(1);
        let (saved, most) = (run.machine().truly_saved_pages(), run.machine().attainable_pages());
        assert!(saved * 100 >= most * 95, "{saved} of {most} pages");
    }
}
