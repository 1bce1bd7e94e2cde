//! Tests of the effect of sketches on the simulated machine.

use std::time::Duration;

use super::*;
use crate::decide::PolicyConfig;
use crate::sim::{GuestPlan, SimConfig};

/// Pages that are kept as one.
const RUN_PAGES: u32 = 64;

fn policy() -> Box<dyn Policy> {
    PolicyConfig::default().policy(&|_| Err(std::io::ErrorKind::NotFound.into())).unwrap()
}

/// The machine under the default policy.
fn trial(machine: SimMachine, has_sketches: bool) -> PolicyTrial {
    let host = SimHost::new(machine);
    PolicyTrial::with_host(
        if has_sketches { host } else { host.without_sketches() },
        policy(),
        PolicyLimits::default(),
    )
}

/// A host of 16 GiB on which guests come and go each minute. Without sketches clean passes are made for them that bring
/// nothing.
#[test]
fn clean_passes_that_bring_nothing_are_saved() {
    let fleet = SimFleet {
        exchange_from: Duration::from_secs(300),
        duration: Duration::from_secs(1500),
        ..SimFleet::default()
    };
    let [without, with] = [false, true].map(|has_sketches| {
        FleetOutcome::of_trial(&fleet, trial(fleet.machine(RUN_PAGES), has_sketches), |_| true)
    });
    let [cpu_without, cpu_with] = [&without, &with].map(|outcome| outcome.ksmd_share(Duration::ZERO));
    assert!(cpu_with < 0.95 * cpu_without, "{cpu_with} and {cpu_without} of a CPU");
    assert!(with.share() > without.share() - 0.003, "{} and {}", with.share(), without.share());
    assert_eq!(without.sketches_cpu, Duration::ZERO);
    let most = 0.001 * fleet.duration.as_secs_f64() + 3.6;
    assert!(with.sketches_cpu.as_secs_f64() < most, "{:?}", with.sketches_cpu);
}

/// Old guests that have nothing in common, and after ten minutes one that holds what one of them holds alone.
#[test]
fn a_clean_pass_is_made_for_what_old_memory_holds_alone() {
    const GIB: u32 = 1 << 18;
    let mut machine = SimMachine::new(SimConfig { run_pages: RUN_PAGES, ..SimConfig::default() });
    for label in 1..4 {
        machine.start(GuestPlan::new("old").equal(label, GIB).unique(2 * GIB));
    }
    machine.start(GuestPlan::new("new").equal(2, GIB).unique(GIB).starting_at(Duration::from_secs(600)));
    let mut trial = PolicyTrial::new(machine, policy(), PolicyLimits::default());
    trial.run_until(Duration::from_secs(599));
    assert_eq!(trial.moment().saved_bytes, 0);
    trial.run_until(Duration::from_secs(700));
    let moment = trial.moment();
    assert!(moment.saved_bytes as f64 > 0.99 * f64::from(GIB) * 4096.0, "{moment:?}");
}

/// A guest that shares nothing is not worth the passes that others get.
#[test]
fn a_guest_that_shares_nothing_waits() {
    const GIB: u32 = 1 << 18;
    let [without, with] = [false, true].map(|has_sketches| {
        let mut machine = SimMachine::new(SimConfig { run_pages: RUN_PAGES, ..SimConfig::default() });
        for _ in 0..3 {
            machine.start(GuestPlan::new("old").equal(1, GIB).unique(2 * GIB));
        }
        machine.start(GuestPlan::new("stranger").unique(3 * GIB).starting_at(Duration::from_secs(600)));
        let mut trial = trial(machine, has_sketches);
        trial.run_until(Duration::from_secs(599));
        let before = trial.moment().ksmd_cpu;
        trial.run_until(Duration::from_secs(900));
        trial.moment().ksmd_cpu - before
    });
    assert!(without > Duration::from_secs(2), "{without:?}");
    assert!(with < without / 4, "{with:?} and {without:?}");
}
