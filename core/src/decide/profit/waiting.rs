//! Tests of `profit` where ksmd waits, and where memory is in huge pages, on the simulated ksmd.

use std::time::Duration;

use super::ProfitConfig;
use super::config::MergeTime;
use super::tests::{MIB, ProfitRun, guest};
use crate::controller::KsmHost;
use crate::decide::{GuestPruner, PolicyLimits, PrunableGuest, PruneCircumstances, PruneLimits};
use crate::guest::GuestId;
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

/// A quarter of the pages is equal. Splits of all of it would cost guests that read at random a quarter of their CPU time.
#[test]
fn huge_pages_of_busy_guests_are_split_where_what_is_saved_is_worth_what_they_lose() {
    let is_scanned = |permille| {
        let mut machine =
            SimMachine::new(SimConfig { total_bytes: 4 << 30, other_bytes: 0, ..SimConfig::default() });
        let plan = |plan: GuestPlan| {
            (0..128).fold(plan.huge().busy(permille), |plan, range| plan.equal(range, 128).unique(384))
        };
        clones(2, "guest", plan).into_iter().for_each(|plan| machine.start(plan));
        // They have run for a while when the daemon starts.
        machine.advance(Duration::from_secs(600));
        let config = ProfitConfig::default();
        let mut run = ProfitRun::configured(SimHost::new(machine), PolicyLimits::default(), config);
        run.for_seconds(60);
        run.machine().sample().ksm.full_scans.get() != Some(0)
    };
    // 64 MiB for 200 s are worth 8 CPU-seconds; half a CPU in each guest would lose 50.
    assert_eq!([0, 20, 500].map(is_scanned), [true, true, false]);
}

/// Every second huge page of two guests is equal, and a fiftieth of each huge page of two others.
#[test]
fn only_guests_that_merging_would_split_for_little_are_switched_off_beforehand() {
    let mut machine = SimMachine::new(SimConfig { total_bytes: 4 << 30, other_bytes: 0, ..SimConfig::default() });
    let runs = |plan: GuestPlan| (0..64).fold(plan.huge(), |plan, range| plan.equal(range, 512).unique(512));
    let scattered =
        |plan: GuestPlan| (0..128).fold(plan.huge(), |plan, range| plan.equal(1000 + range, 10).unique(502));
    let plans = clones(2, "runs", runs).into_iter().chain(clones(2, "scattered", scattered));
    plans.for_each(|plan| machine.start(plan));
    let mut host = SimHost::new(machine);
    host.enable_page_sampling(true);
    let sample = host.sample();
    let guests: Vec<PrunableGuest> = sample
        .processes
        .iter()
        .zip(sample.process_forecasts.iter())
        .map(|(process, part)| {
            assert_eq!(part.pid, process.id.pid);
            PrunableGuest {
                id: GuestId::new(process.id),
                profit_bytes: 0,
                saved_bytes: 0,
                split_bytes: Some(0),
                forecast: Some(part.forecast),
                offered: Some(true),
                obstacle: None,
            }
        })
        .collect();
    let limits = PruneLimits { after_passes: 1, retry: Duration::from_secs(3600), split_saves_percent: 5.0 };
    let orders = GuestPruner::new(limits).decide(sample.at, PruneCircumstances::default(), &guests);
    let off: Vec<u32> = orders.iter().filter(|order| !order.on).map(|order| order.id.pid()).collect();
    let of_name = |name: &str| -> Vec<u32> {
        let named = sample.processes.iter().filter(|process| process.name.starts_with(name));
        named.map(|process| process.id.pid).collect()
    };
    assert_eq!((off, guests.len()), (of_name("scattered"), 4), "{orders:?}");
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
