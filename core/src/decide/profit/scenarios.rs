//! Scenarios of the lab in small, on the simulated ksmd.

use std::time::Duration;

use super::tests::Run;
use crate::decide::Limits;
use crate::sim::{Config, Plan};

const MIB: u32 = 256;
const SECOND: Duration = Duration::from_secs(1);

/// What a run saved, as a part of what could be saved at any time, and ksmd's CPU-seconds.
fn play(name: &str, plans: Vec<Plan>, seconds: u64, has_witnesses: bool) -> (f64, f64) {
    let mut run = Run::new(Config::default(), Limits::default());
    run.has_witnesses = has_witnesses;
    plans.into_iter().for_each(|plan| run.machine.start(plan));
    let (mut saved, mut could) = (0.0, 0.0);
    for tick in 0..seconds * 4 {
        run.until(Duration::from_millis(250 * (tick + 1)), |_, _| false);
        let most = run.machine.attainable_pages();
        saved += run.machine.sample().ksm.saved_pages().min(most) as f64;
        could += most as f64;
    }
    let states = run.states();
    println!(
        "{name}: {:.1} % for {:.2} CPU-s; {} states {:?}",
        saved / could * 100.0,
        run.ksmd_seconds(),
        states.len(),
        &states[..states.len().min(30)]
    );
    (saved / could, run.ksmd_seconds())
}

fn scenario(name: &str) -> (Vec<Plan>, u64) {
    let at = |plan: Plan, seconds: f64| plan.starting_at(Duration::from_secs_f64(seconds));
    match name {
        "burst" => {
            let clone = |n: u32| {
                at(Plan::new(format!("c{n}")), 5.0 + f64::from(n) * 0.001)
                    .equal(1, 128 * MIB)
                    .zero(25 * MIB)
                    .rewritten(25 * MIB, SECOND)
                    .unique(69 * MIB)
                    .rewritten(8 * MIB, SECOND * 2)
                    .busy(50)
            };
            ((0..8).map(clone).collect(), 150)
        }
        "trickle" => {
            let clone = |n: u32| {
                at(Plan::new(format!("c{n}")), 5.0 + f64::from(n) * 50.0)
                    .equal(1, 64 * MIB)
                    .unique(48 * MIB)
                    .rewritten(8 * MIB, SECOND)
                    .rewritten(8 * MIB, SECOND * 2)
                    .busy(50)
            };
            ((0..6).map(clone).collect(), 300)
        }
        "churn" => {
            let base = |n: u32| {
                at(Plan::new(format!("b{n}")), 5.0).equal(1, 96 * MIB).unique(32 * MIB).rewritten(8 * MIB, SECOND)
            };
            let visitor = |n: u32| {
                at(Plan::new(format!("v{n}")), 15.0 + f64::from(n) * 30.0)
                    .stopping_at(Duration::from_secs(135 + 30 * u64::from(n)))
                    .equal(1, 64 * MIB)
                    .equal(2, 32 * MIB)
                    .zero(16 * MIB)
                    .unique(32 * MIB)
                    .rewritten(8 * MIB, SECOND)
                    .rewritten(8 * MIB, SECOND * 2)
                    .busy(100)
            };
            ((0..2).map(base).chain((0..9).map(visitor)).collect(), 300)
        }
        _ => {
            let loner = |n: u32| {
                at(Plan::new(format!("l{n}")), 2.0)
                    .unique(240 * MIB)
                    .rewritten(8 * MIB, SECOND)
                    .rewritten(8 * MIB, SECOND * 2)
                    .busy(50)
            };
            ((0..4).map(loner).collect(), 300)
        }
    }
}

#[test]
fn table() {
    for name in ["burst", "trickle", "churn", "idle"] {
        for with in [false, true] {
            let (plans, seconds) = scenario(name);
            play(name, plans, seconds, with);
        }
    }
}
