//! Tests of `profit` on the simulated ksmd: what it saves, when, and for how much CPU.

use std::time::Duration;

use proptest::prelude::*;

use super::{ProfitConfig, ProfitPolicy};
use crate::controller::{PolicyController, TickOutcome};
use crate::decide::testing::{PolicyTestHost, holds_for_any};
use crate::decide::{CpuShare, PolicyDecision, PolicyLimits};
use crate::field::KernelVersion;
use crate::knobs::Knob;
use crate::reading::Reading;
use crate::sim::{GuestPlan, SimConfig, SimGuestId, SimMachine, UNIQUE, clones};
use crate::trial::SimHost;

pub(super) const MIB: u32 = 256;

/// A simulated host under `profit`.
pub(super) struct ProfitRun {
    controller: PolicyController<SimHost>,
    /// The time, the state and ksmd's CPU time at each decision.
    log: Vec<(Duration, &'static str, u64)>,
}

impl ProfitRun {
    pub(super) fn new(config: SimConfig, limits: PolicyLimits) -> Self {
        Self::on(SimHost::new(SimMachine::new(config)), limits)
    }

    /// A host after boot, with memory that may be read or not.
    pub(super) fn sampled(has_page_samples: bool) -> Self {
        let host = SimHost::new(SimMachine::new(SimConfig::default()));
        let host = if has_page_samples { host } else { host.without_page_samples() };
        Self::on(host, PolicyLimits::default())
    }

    fn on(host: SimHost, limits: PolicyLimits) -> Self {
        Self::configured(host, limits, ProfitConfig::default())
    }

    pub(super) fn configured(host: SimHost, limits: PolicyLimits, config: ProfitConfig) -> Self {
        let policy = Box::new(ProfitPolicy::new(config));
        Self { controller: PolicyController::new(host, policy, limits), log: Vec::new() }
    }

    pub(super) fn with(plans: Vec<GuestPlan>) -> Self {
        let mut run = Self::new(SimConfig::default(), PolicyLimits::default());
        plans.into_iter().for_each(|plan| run.machine_mut().start(plan));
        run
    }

    pub(super) fn machine(&self) -> &SimMachine {
        &self.controller.host().machine
    }

    pub(super) fn machine_mut(&mut self) -> &mut SimMachine {
        &mut self.controller.host_mut().machine
    }

    /// Runs the policy until `end`, or until `done` holds.
    pub(super) fn until(&mut self, end: Duration, mut done: impl FnMut(&SimMachine, &PolicyDecision) -> bool) {
        while self.machine().now() < end {
            let TickOutcome { sample, decision, applied, .. } = self.controller.tick();
            assert!(applied.is_complete(), "{applied:?}");
            self.log.push((sample.at, decision.reason.state, sample.ksmd_cpu_ns.get().unwrap()));
            if done(self.machine(), &decision) {
                return;
            }
            self.machine_mut().advance(decision.check_after);
        }
    }

    pub(super) fn for_seconds(&mut self, seconds: u64) {
        let end = self.machine().now() + Duration::from_secs(seconds);
        self.until(end, |_, _| false);
    }

    /// Returns the savings as a part of what can be saved.
    pub(super) fn saved_part(&self) -> f64 {
        self.machine().sample().ksm.saved_pages() as f64 / self.machine().attainable_pages().max(1) as f64
    }

    pub(super) fn ksmd_seconds(&self) -> f64 {
        self.machine().sample().ksmd_cpu_ns.get().unwrap() as f64 / 1e9
    }

    /// Returns ksmd's CPU-seconds in the dearest scan.
    pub(super) fn dearest_scan_seconds(&self) -> f64 {
        let scans = self.log.chunk_by(|before, now| (before.1 == "parked") == (now.1 == "parked"));
        // A decision to park comes after the scan's last batch.
        let starts = scans.filter_map(|scan| scan.first()).map(|first| first.2);
        let costs = starts.clone().zip(starts.skip(1)).map(|(from, to)| to - from);
        costs.max().unwrap_or(0) as f64 / 1e9
    }

    pub(super) fn states(&self) -> Vec<&'static str> {
        let mut states: Vec<_> = self.log.iter().map(|(_, state, _)| *state).collect();
        states.dedup();
        states
    }
}

/// A guest like the prototype's: half equal, a tenth empty, a tenth rewritten, the rest unique.
pub(super) fn guest(plan: GuestPlan, mib: u32) -> GuestPlan {
    let part = |per_mille: u32| mib * MIB * per_mille / 1000;
    plan.equal(1, part(500)).zero(part(100)).rewritten(part(100), Duration::from_millis(500)).unique(part(300))
}

#[test]
fn equal_guests_are_merged_within_seconds_and_then_cost_little() {
    let mut run = ProfitRun::with(clones(4, "clone", |plan| guest(plan, 256)));
    run.until(Duration::from_secs(60), |machine, _| {
        machine.sample().ksm.saved_pages() * 100 >= machine.attainable_pages() * 99
    });
    assert!(run.machine().now() < Duration::from_secs(4), "99 % took {:?}", run.machine().now());
    let burst = run.ksmd_seconds();
    run.for_seconds(3600);
    assert!(run.saved_part() > 0.99, "{}", run.saved_part());
    // One clean pass over these guests takes 0.6 s; unlimited scanning would have used 3600.
    assert!(run.ksmd_seconds() - burst < 20.0, "{} s in an hour", run.ksmd_seconds() - burst);
}

#[test]
fn a_late_clone_is_merged_at_once_however_old_the_others_are() {
    let mut plans = clones(2, "clone", |plan| guest(plan, 64));
    plans.extend(
        (1..6).map(|n| guest(GuestPlan::new(format!("late-{n}")), 64).starting_at(Duration::from_secs(150 * n))),
    );
    let mut run = ProfitRun::with(plans);
    for n in 1..6 {
        run.until(Duration::from_secs(150 * n), |_, _| false);
        run.for_seconds(5);
        assert!(run.saved_part() > 0.99, "5 s after clone {n}: {}", run.saved_part());
    }
}

#[test]
fn where_nothing_is_equal_ksmd_soon_sleeps() {
    let mut run = ProfitRun::with(clones(2, "odd", |plan| {
        plan.unique(512 * MIB).rewritten(16 * MIB, Duration::from_secs(1))
    }));
    run.for_seconds(600);
    let learned = run.ksmd_seconds();
    run.for_seconds(3600);
    let share = (run.ksmd_seconds() - learned) / 3600.0;
    assert!(share < 0.001, "{:.3} % of a CPU", share * 100.0);
}

#[test]
fn idle_guests_are_not_probed_at_all() {
    let mut run = ProfitRun::with(clones(3, "idle", |plan| plan.equal(1, 64 * MIB).unique(64 * MIB)));
    run.for_seconds(30);
    let settled = run.ksmd_seconds();
    run.for_seconds(24 * 3600);
    assert_eq!(run.ksmd_seconds(), settled);
    assert_eq!(run.states(), ["burst", "parked"]);
}

#[test]
fn pages_of_ended_guests_are_tidied_up() {
    let mut plans = clones(3, "clone", |plan| plan.equal(1, 64 * MIB));
    plans[2] = plans[2].clone().stopping_at(Duration::from_secs(60));
    let mut run = ProfitRun::with(plans);
    run.for_seconds(50);
    assert_eq!(run.machine().sample().ksm.pages_sharing.get(), Some(2 * 64 * u64::from(MIB)));
    run.for_seconds(20);
    assert_eq!(run.machine().sample().ksm.pages_sharing.get(), Some(64 * u64::from(MIB)));
    assert!(run.states().contains(&"tidy"));
}

/// Two guests with equal stable memory, one of which is rewritten in place: no fault tells, and nothing grows.
fn twins(run: &mut ProfitRun) -> [SimGuestId; 2] {
    let pages = || (1..=u64::from(16 * MIB)).chain((0..u64::from(32 * MIB)).map(|_| UNIQUE));
    let ids = [run.machine_mut().add_guest("one", pages()), run.machine_mut().add_guest("two", pages())];
    run.for_seconds(30);
    assert_eq!(run.machine().sample().ksm.pages_sharing.get(), Some(16 * u64::from(MIB)));
    ids
}

fn rewrite(run: &mut ProfitRun, guest: SimGuestId, content: impl Fn(u64) -> u64) {
    for page in 0..u64::from(16 * MIB) {
        assert!(run.machine_mut().write_page(guest, page as usize, content(page)));
    }
}

#[test]
fn contents_that_revert_in_place_are_merged_within_seconds() {
    let mut run = ProfitRun::with(Vec::new());
    let [one, _] = twins(&mut run);
    rewrite(&mut run, one, |_| UNIQUE);
    run.for_seconds(60);
    assert_eq!(run.machine().attainable_pages(), 0);
    rewrite(&mut run, one, |page| page + 1);
    run.for_seconds(15);
    assert_eq!(run.saved_part(), 1.0);
}

/// Until the second reverts nothing can merge, and ksmd may have visited the first meanwhile.
#[test]
fn two_guests_that_revert_far_apart_are_merged_within_seconds_of_the_second() {
    for apart in [5, 40, 200] {
        let mut run = ProfitRun::with(Vec::new());
        let [one, two] = twins(&mut run);
        [one, two].into_iter().for_each(|guest| rewrite(&mut run, guest, |_| UNIQUE));
        run.for_seconds(30);
        rewrite(&mut run, one, |page| page + 1);
        run.for_seconds(apart);
        rewrite(&mut run, two, |page| page + 1);
        run.for_seconds(20);
        assert_eq!(run.saved_part(), 1.0, "{apart} s apart");
    }
}

/// The first twin's pages stay merged, each alone, when the second's are written to for good.
#[test]
fn free_partners_that_no_page_returns_to_do_not_keep_ksmd_busy() {
    let mut run = ProfitRun::with(Vec::new());
    let [one, two] = twins(&mut run);
    rewrite(&mut run, two, |_| UNIQUE);
    run.for_seconds(60);
    let before = run.ksmd_seconds();
    let half = u64::from(8 * MIB);
    for turn in 0..40 {
        // The contents that one half reverts to were merged, and no page holds them now; the other half stays.
        for page in 0..half {
            let content = if turn % 2 == 0 { UNIQUE } else { page + 1 };
            assert!(run.machine_mut().write_page(one, page as usize, content));
        }
        run.for_seconds(15);
        assert_eq!(run.machine().attainable_pages(), 0, "{turn}");
    }
    let part = (run.ksmd_seconds() - before) / 600.0;
    assert!(part < 0.0012, "{:.3} % of a CPU", part * 100.0);
}

#[test]
fn contents_that_become_equal_in_place_for_the_first_time_are_merged_within_minutes() {
    let mut run = ProfitRun::with(Vec::new());
    for guest in twins(&mut run) {
        rewrite(&mut run, guest, |page| 1_000_000 + page);
    }
    run.for_seconds(180);
    assert_eq!(run.saved_part(), 1.0);
}

#[test]
fn guests_that_keep_changing_without_merging_are_soon_left_alone() {
    let mut run = ProfitRun::with(Vec::new());
    let [one, _] = twins(&mut run);
    let before = run.ksmd_seconds();
    for _ in 0..60 {
        rewrite(&mut run, one, |_| UNIQUE);
        run.for_seconds(30);
    }
    // A revisit takes 0.15 s here.
    let share = (run.ksmd_seconds() - before) / 1800.0;
    assert!(share < 0.001, "{:.3} % of a CPU", share * 100.0);
}

#[test]
fn a_new_guest_costs_one_visit_of_old_memory() {
    let mut plans = clones(4, "old", |plan| plan.equal(1, 16 * MIB).unique(112 * MIB));
    plans.push(GuestPlan::new("new").equal(1, 16 * MIB).unique(16 * MIB).starting_at(Duration::from_secs(60)));
    let mut run = ProfitRun::with(plans);
    // Three new guests have come and gone, the first in two smart passes: `smart_scan` skips memory when it meets it for the fifth time.
    for n in 0..3 {
        let starts = Duration::from_secs(10 + 10 * n);
        let visitor = GuestPlan::new(format!("visitor-{n}")).unique(8 * MIB).starting_at(starts);
        run.machine_mut().start(visitor.stopping_at(starts + Duration::from_secs(5)));
    }
    run.for_seconds(59);
    let visited = |run: &ProfitRun| run.machine().sample().ksm.pages_scanned.get().unwrap();
    let skipped = |run: &ProfitRun| run.machine().sample().ksm.pages_skipped.get().unwrap();
    let (before, skipped_before) = (visited(&run), skipped(&run));
    run.for_seconds(20);
    assert_eq!(run.saved_part(), 1.0);
    assert!(skipped(&run) > skipped_before, "the old memory was not met for the fifth time");
    let pages = (visited(&run) - before) as f64 / f64::from(MIB);
    // Every page is visited from some 200 MiB before the new ones on, since samples are apart.
    assert!(pages < (4 * 128 + 4 * 16 + 2 * 32 + 24 + 200) as f64, "{pages} MiB were visited");
}

/// Old guests of which a clean pass takes seconds: part of their memory is merged, and what `single` holds is not.
fn dear_host() -> ProfitRun {
    let mut plans = clones(4, "old", |plan| plan.equal(1, 192 * MIB).unique(704 * MIB));
    plans.push(GuestPlan::new("single").equal(2, 192 * MIB).equal(1, 192 * MIB).unique(128 * MIB));
    let mut run = ProfitRun::new(SimConfig { cpus: 4, ..SimConfig::default() }, PolicyLimits::default());
    plans.into_iter().for_each(|plan| run.machine_mut().start(plan));
    run.for_seconds(60);
    // `smart_scan` skips what it has met four times. The passes for the first visitors cost as much as clean ones, and wait.
    for n in 0..4 {
        let starts = run.machine().now() + Duration::from_secs(1);
        let visitor =
            GuestPlan::new(format!("visitor-{n}")).equal(1, 256 * MIB).unique(64 * MIB).starting_at(starts);
        run.machine_mut().start(visitor.stopping_at(starts + Duration::from_secs(300)));
        run.for_seconds(400);
    }
    assert_eq!(run.saved_part(), 1.0);
    run.log.clear();
    run
}

#[test]
fn where_clean_passes_are_dear_a_new_guest_that_merges_with_merged_pages_costs_none() {
    let mut run = dear_host();
    let before = run.ksmd_seconds();
    let starts = run.machine().now() + Duration::from_secs(1);
    run.machine_mut().start(GuestPlan::new("new").equal(1, 192 * MIB).unique(192 * MIB).starting_at(starts));
    run.for_seconds(120);
    assert_eq!(run.saved_part(), 1.0);
    // A clean pass takes 11 s, two smart passes 2.8 s, and the new pages 1.4 s.
    assert!(run.ksmd_seconds() - before < 6.0, "{}", run.ksmd_seconds() - before);
    assert_eq!(run.states(), ["parked", "burst", "parked"]);
}

#[test]
fn where_clean_passes_are_dear_a_new_guest_that_lacks_what_others_have_gets_one() {
    let mut run = dear_host();
    let starts = run.machine().now() + Duration::from_secs(1);
    run.machine_mut().start(GuestPlan::new("new").equal(2, 192 * MIB).unique(64 * MIB).starting_at(starts));
    run.for_seconds(60);
    assert_eq!(run.saved_part(), 1.0);
}

#[test]
fn where_clean_passes_are_dear_guests_that_arrive_close_together_share_their_passes() {
    let passes = |apart: u64| {
        let mut run = dear_host();
        let before = run.machine().sample().ksm.full_scans.get().unwrap();
        for n in 0..30 {
            let starts = run.machine().now() + Duration::from_secs(1 + n * apart);
            let plan = GuestPlan::new(format!("new-{n}")).equal(1, 2 * MIB).unique(3 * MIB).starting_at(starts);
            run.machine_mut().start(plan);
        }
        run.for_seconds(30 * apart + 400);
        // The last of them may wait for others.
        assert!(run.saved_part() > 0.99, "{}", run.saved_part());
        run.machine().sample().ksm.full_scans.get().unwrap() - before
    };
    assert!(passes(4) < 30, "{}", passes(4));
}

/// The number of pages that are left is too small by those of a guest that was visited in this pass and has ended.
#[test]
fn a_guest_that_ends_during_the_last_pass_does_not_slow_it_down() {
    let mut run = ProfitRun::with(Vec::new());
    let contents = || (1..=u64::from(16 * MIB)).chain((0..112 * MIB).map(|_| UNIQUE));
    let first = run.machine_mut().add_guest("first", contents());
    for _ in 0..5 {
        run.machine_mut().add_guest("other", contents());
    }
    let mut ends = false;
    let second_pass = |machine: &SimMachine| machine.sample().ksm.full_scans.get() == Some(1);
    run.until(Duration::from_secs(60), |machine, _| {
        ends = second_pass(machine) && machine.sample().ksm.pages_scanned.get().unwrap() > u64::from(9 * 128 * MIB);
        ends
    });
    assert!(ends);
    assert!(run.machine_mut().remove_guest(first));
    let end = run.machine().now() + Duration::from_secs(5);
    run.until(end, |_, decision| decision.reason.state == "parked");
    assert!(run.machine().now() < end, "the pass takes minutes");
}

#[test]
fn a_new_guest_is_merged_with_pages_that_were_unmerged_before() {
    for has_page_samples in [false, true] {
        let mut run = ProfitRun::sampled(has_page_samples);
        run.machine_mut().start(GuestPlan::new("old").equal(1, 64 * MIB).unique(64 * MIB));
        run.machine_mut().start(GuestPlan::new("new").equal(1, 64 * MIB).starting_at(Duration::from_secs(30)));
        run.for_seconds(36);
        assert_eq!(run.saved_part(), 1.0);
    }
}

/// The simulated ksmd does not miss what the real one may: this shows when a retry is made.
#[test]
fn a_new_guest_that_merged_little_beside_as_much_old_memory_is_retried_once() {
    let states = |equal: u32, rewritten: u32, others: u16| {
        let old = |n| GuestPlan::new(format!("old-{n}")).equal(n, 96 * MIB).unique(32 * MIB);
        let mut run = ProfitRun::with(
            (0..others).map(|n| old(n).rewritten(rewritten * MIB, Duration::from_secs(1))).collect(),
        );
        let new = GuestPlan::new("new").equal(0, equal * MIB).unique((128 - equal) * MIB);
        run.machine_mut()
            .start(new.rewritten(rewritten * MIB, Duration::from_secs(1)).starting_at(Duration::from_secs(30)));
        run.for_seconds(29);
        run.log.clear();
        run.for_seconds(60);
        let states = run.states();
        states[usize::from(states[0] == "parked")..].to_vec()
    };
    assert_eq!(states(32, 8, 1), ["burst", "parked", "burst", "parked"], "and that is the end of it");
    assert_eq!(states(96, 8, 1), ["burst", "parked"], "most has merged");
    assert_eq!(states(32, 0, 1), ["burst", "parked"], "nothing changes that could have put the tree out of order");
    assert_eq!(states(32, 8, 4), ["burst", "parked"], "a pass would cost more than the burst did");
}

#[test]
fn a_burst_of_long_passes_ends_once_all_is_merged_although_pages_are_rewritten_all_the_time() {
    // The guests fill their memory while the first pass, which takes seconds, is in the first of them.
    let limits = PolicyLimits { max_cpu: CpuShare::new(0.05).unwrap(), ..PolicyLimits::default() };
    let mut run = ProfitRun::new(SimConfig::default(), limits);
    let filling = |plan: GuestPlan| plan.unique(200 * MIB).growing(1, 60 * MIB, Duration::from_millis(500));
    let plans = clones(4, "clone", |plan| filling(plan).rewritten(4 * MIB, Duration::from_millis(500)));
    plans.into_iter().for_each(|plan| run.machine_mut().start(plan));
    run.until(Duration::from_secs(300), |machine, decision| {
        machine.sample().ksm.saved_pages() > 0 && decision.reason.state == "parked"
    });
    assert_eq!((run.saved_part(), run.machine().sample().ksm.full_scans.get()), (1.0, Some(2)));
}

#[test]
fn the_cpu_limit_holds_over_every_five_seconds_of_a_burst() {
    let limits = PolicyLimits { max_cpu: CpuShare::new(0.2).unwrap(), ..PolicyLimits::default() };
    let mut run = ProfitRun::new(SimConfig::default(), limits);
    clones(4, "clone", |plan| guest(plan, 1024)).into_iter().for_each(|plan| run.machine_mut().start(plan));
    run.until(Duration::from_secs(300), |_, decision| decision.reason.state == "parked");
    let burst: Vec<_> = run.log.iter().filter(|(_, state, _)| *state == "burst").collect();
    let last = burst.last().unwrap().0;
    assert!(last > Duration::from_secs(20), "the burst is long enough to be measured: {last:?}");
    let mut windows = 0;
    for (index, (from, _, cpu)) in burst.iter().enumerate() {
        let Some((to, _, until)) = burst[index..].iter().find(|(at, _, _)| *at >= *from + Duration::from_secs(5))
        else {
            break;
        };
        let share = (until - cpu) as f64 / (*to - *from).as_nanos() as f64;
        assert!(share < 0.22, "{:.1} % from {from:?} to {to:?}", share * 100.0);
        // The first window holds the start, where the cost of a page is not known yet.
        assert!(share > 0.18 || windows == 0, "{:.1} % from {from:?} to {to:?}", share * 100.0);
        windows += 1;
    }
    assert!(windows > 10);
}

#[test]
fn memory_that_keeps_growing_is_merged_when_it_is_there() {
    let plans =
        (0..20).map(|n| GuestPlan::new(format!("part-{n}")).equal(1, 16 * MIB).starting_at(Duration::from_secs(n)));
    let mut run = ProfitRun::with(plans.collect());
    run.for_seconds(23);
    assert!(run.saved_part() > 0.99, "{}", run.saved_part());
}

/// Guests are still filling when ksmd starts, and the count of passes begins anew each time: two whole passes from the
/// last time would visit most pages a third time.
#[test]
fn a_burst_ends_with_the_first_whole_pass_that_leaves_nothing_to_another() {
    let part = |n: u32| {
        let at = Duration::from_millis(100 * u64::from(n));
        GuestPlan::new(format!("part-{n}")).equal(1, 64 * MIB).unique(64 * MIB).starting_at(at)
    };
    let mut run = ProfitRun::with((0..8).map(part).collect());
    run.for_seconds(60);
    assert_eq!(run.saved_part(), 1.0);
    assert_eq!(run.states(), ["burst", "parked"]);
    let visits = run.machine().sample().ksm.pages_scanned.get().unwrap();
    let pages = u64::from(8 * 128 * MIB);
    assert!(visits < pages * 15 / 4, "{:.1} visits to each page", visits as f64 / pages as f64);
}

/// The memory of new guests has been visited once when the first whole pass ends, and the merged part of the old memory
/// says nothing about theirs.
#[test]
fn new_guests_in_a_burst_for_vast_memory_of_which_nothing_merges_are_visited_twice() {
    let vast = GuestPlan::new("vast").unique(2048 * MIB);
    let late = |n| GuestPlan::new(format!("late-{n}")).equal(1, 50 * MIB).starting_at(Duration::from_millis(1000));
    let mut run = ProfitRun::with(vec![vast, late(0), late(1)]);
    run.for_seconds(60);
    assert_eq!(run.saved_part(), 1.0);
}

#[test]
fn small_guests_that_fill_slowly_are_merged_whole() {
    // Three MiB in all: less than what is worth a burst on a host with more.
    let fill =
        |n: u64| GuestPlan::new(format!("bit-{n}")).equal(1, MIB / 4).starting_at(Duration::from_millis(100 * n));
    let mut run = ProfitRun::with((0..12).map(fill).collect());
    run.for_seconds(4);
    assert!(run.saved_part() > 0.9, "{}", run.saved_part());
}

#[test]
fn kernels_without_newer_files_are_served_too() {
    for kernel in [KernelVersion::new(2, 6), KernelVersion::new(6, 1), KernelVersion::new(6, 6)] {
        let mut run = ProfitRun::new(SimConfig { kernel, ..SimConfig::default() }, PolicyLimits::default());
        clones(3, "clone", |plan| plan.equal(1, 32 * MIB))
            .into_iter()
            .for_each(|plan| run.machine_mut().start(plan));
        run.for_seconds(60);
        assert!(run.saved_part() > 0.99, "Linux {kernel}: {}", run.saved_part());
        assert_eq!(run.machine().sample().ksm.run.get(), Some(0), "Linux {kernel} is parked");
    }
}

#[test]
fn where_no_process_offers_memory_a_scan_is_given_up() {
    // Linux 6.1 with a hypervisor: it is not known yet whether it offers memory, and ksmd finds that it does not.
    let mut host = PolicyTestHost::linux_6_1();
    host.vm(1, 1 << 20);
    let mut policy = ProfitPolicy::new(ProfitConfig::default());
    let mut states = Vec::new();
    for _ in 0..30 {
        // ksmd wakes up, which takes time, and gets nowhere.
        host.sample.ksmd_cpu_ns = Reading::Value(host.sample.ksmd_cpu_ns.get().unwrap() + 3500);
        states.push(host.after(1).decide(&mut policy).reason.state);
    }
    states.dedup();
    assert_eq!(states, ["burst", "parked"]);
}

#[test]
fn without_ksmds_cpu_time_rounds_are_judged_by_their_visits() {
    let mut host = PolicyTestHost::linux_6_18();
    host.vm(1, 1 << 20);
    host.sample.ksmd_cpu_ns = Reading::Absent;
    let mut policy = ProfitPolicy::new(ProfitConfig::default());
    assert_eq!(host.decide(&mut policy).reason.state, "burst");
    for _ in 0..20 {
        host.sample.ksm.pages_scanned = Reading::Value(host.sample.ksm.pages_scanned.get().unwrap() + 10_000);
        assert_eq!(host.after(1).decide(&mut policy).reason.state, "burst", "it gets on, so it is not given up");
    }
    host.pass(1, 256).pass(1, 0).pass(1, 0);
    let detail = host.decide(&mut policy).reason.detail.unwrap();
    // 200,000 visits of 4 us each.
    assert!(detail.starts_with("burst: 1.00 MiB saved in 0.80 CPU-s (1.2 MiB/CPU-s"), "{detail}");
}

#[test]
fn zero_pages_are_left_alone_where_the_kernel_does_not_count_them() {
    let mut host = PolicyTestHost::linux_6_1();
    host.vm(1, 1 << 20);
    let decision = host.decide(&mut ProfitPolicy::new(ProfitConfig::default()));
    assert_eq!(decision.knobs.get(Knob::UseZeroPages), None);
    let mut host = PolicyTestHost::linux_6_18();
    host.vm(1, 1 << 20);
    let decision = host.decide(&mut ProfitPolicy::new(ProfitConfig::default()));
    assert_eq!(decision.knobs.get(Knob::UseZeroPages), Some(1));
}

#[test]
fn every_decision_has_a_line_for_people_and_its_arithmetic() {
    let mut run = ProfitRun::with(clones(2, "clone", |plan| guest(plan, 32)));
    let mut parked = None;
    run.until(Duration::from_secs(10), |_, decision| {
        parked = Some(decision.reason.clone());
        decision.reason.state == "parked"
    });
    let reason = parked.unwrap();
    assert!(reason.text.starts_with("the last scan saved 22.") && reason.text.contains("; next look "), "{reason}");
    let detail = reason.detail.unwrap();
    assert!(detail.starts_with("burst: 22.") && detail.contains("MiB/CPU-s, price 8.0"), "{detail}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_history_makes_it_panic_or_contradict_itself(samples in crate::decide::testing::any_samples()) {
        for decision in holds_for_any(|| Box::new(ProfitPolicy::new(ProfitConfig::default())), &samples)? {
            prop_assert!(decision.check_after >= Duration::from_millis(5));
        }
    }
}
