//! Tests of a small fleet under the default policy.

use super::*;
use crate::decide::PolicyConfig;

fn hour(run_pages: u32) -> FleetOutcome {
    let fleet = SimFleet {
        host_bytes: 2 << 30,
        sizes: 1..=4,
        size_step: 64 << 20,
        exchange_from: Duration::from_secs(120),
        duration: Duration::from_secs(300),
        ..SimFleet::default()
    };
    let policy = PolicyConfig::default().policy(&|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
    FleetOutcome::from_fleet(&fleet, run_pages, policy, PolicyLimits::default(), |_| true)
}

#[test]
fn most_is_saved_for_a_part_of_a_cpu() {
    let outcome = hour(1);
    assert!(outcome.share() > 0.9, "{}", outcome.share());
    let cpu = outcome.ksmd_share(Duration::ZERO);
    assert!(cpu > 0.0 && cpu < 0.5, "{cpu}");
    assert_eq!(outcome.moments.len(), 301);
}

#[test]
fn runs_of_pages_give_nearly_the_same_outcome() {
    let (pages, runs) = (hour(1), hour(16));
    assert!((pages.share() - runs.share()).abs() < 0.01, "{} and {}", pages.share(), runs.share());
    let from = Duration::from_secs(120);
    let (pages, runs) = (pages.ksmd_share(from), runs.ksmd_share(from));
    assert!((pages / runs - 1.0).abs() < 0.1, "{pages} and {runs}");
}

#[test]
fn a_watcher_ends_it() {
    let mut seen = 0;
    let policy = PolicyConfig::default().policy(&|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
    let fleet = SimFleet { host_bytes: 1 << 30, size_step: 16 << 20, ..SimFleet::default() };
    let outcome = FleetOutcome::from_fleet(&fleet, 16, policy, PolicyLimits::default(), |moment| {
        seen += 1;
        moment.at < Duration::from_secs(5)
    });
    assert_eq!((seen, outcome.moments.len()), (5, 6));
}
