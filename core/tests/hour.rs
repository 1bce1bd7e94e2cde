//! The bounds that the bench `hour` prints beside the policies.

#[path = "../benches/hour/bound.rs"]
mod bound;
#[path = "../benches/hour/foreseen.rs"]
mod foreseen;
#[path = "../benches/hour/outcome.rs"]
mod outcome;

use std::time::Duration;

use bound::CpuBound;
use foreseen::ForeseenPolicy;
use ksmith_core::decide::{Policy, PolicyLimits};
use ksmith_core::sim::{SimCosts, SimFleet};
use ksmith_core::trial::{PolicyTrial, TrialMoment};
use outcome::FleetOutcome;

#[test]
fn a_policy_that_foresees_arrivals_needs_little_more_and_never_less() {
    let fleet = SimFleet {
        host_bytes: 4 << 30,
        size_step: 128 << 20,
        exchange_from: Duration::from_secs(300),
        duration: Duration::from_secs(900),
        ..SimFleet::default()
    };
    let from = Duration::from_secs(300);
    let bound = CpuBound::from_fleet(&fleet, &SimCosts::default(), from);
    assert_eq!(bound.arrivals, 10);
    let outcome = FleetOutcome::from_fleet(
        &fleet,
        16,
        Box::new(ForeseenPolicy::from_fleet(&fleet, 1)),
        PolicyLimits::default(),
        |_| true,
    );
    let ratio = outcome.ksmd_share(from) / bound.cpu_share(outcome.passes_since(from) as f64 / 2.0);
    assert!((1.0..2.0).contains(&ratio), "{ratio}");
    assert!(bound.cpu_share(5.0) < bound.cpu_share(10.0));
}

fn fleet() -> SimFleet {
    SimFleet {
        host_bytes: 2 << 30,
        size_step: 64 << 20,
        exchange_from: Duration::from_secs(120),
        duration: Duration::from_secs(600),
        ..SimFleet::default()
    }
}

#[test]
fn each_arrival_gets_two_passes_and_merges() {
    let outcome = FleetOutcome::from_fleet(
        &fleet(),
        16,
        Box::new(ForeseenPolicy::from_fleet(&fleet(), 1)),
        PolicyLimits::default(),
        |_| true,
    );
    let exchanges = fleet().plans().iter().filter(|plan| plan.stops().is_some()).count() as u64;
    assert!(outcome.share() > 0.95, "{}", outcome.share());
    assert!(outcome.passes() >= 2 * exchanges, "{} passes, {exchanges} exchanges", outcome.passes());
}

#[test]
fn arrivals_that_share_their_passes_cost_less_and_wait_longer() {
    let [each, pairs] = [1, 2].map(|batch| {
        FleetOutcome::from_fleet(
            &fleet(),
            16,
            Box::new(ForeseenPolicy::from_fleet(&fleet(), batch)),
            PolicyLimits::default(),
            |_| true,
        )
    });
    let from = Duration::from_secs(120);
    assert!(pairs.ksmd_share(from) < each.ksmd_share(from));
    assert!(pairs.share() < each.share());
}
