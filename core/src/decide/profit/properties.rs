//! What holds on any fleet: no guest is forgotten, and the same fleet always comes to the same.

use std::time::Duration;

use proptest::prelude::*;

use super::{Profit, ProfitConfig};
use crate::decide::Limits;
use crate::sim::{Fleet, Machine};
use crate::trial::{Outcome, Trial};

const MIB: u64 = 1 << 20;

/// Pages that are kept as one.
const RUN_PAGES: u32 = 16;

/// Parts of a guest's memory, at most all of it.
fn parts() -> impl Strategy<Value = (f64, f64, f64)> {
    prop_oneof![
        1 => Just((0.0, 0.0, 0.0)),
        3 => (0.0..0.3, 0.0..0.3, 0.0..0.2),
    ]
}

/// How a part of memory is rewritten: which part, and how many seconds a round takes.
fn writes() -> impl Strategy<Value = (f64, u64)> {
    (prop_oneof![1 => Just(0.0), 3 => 0.0..0.2], 1_u64..120)
}

/// Fleets of ten minutes on small hosts. In one of four no page equals another. Between two exchanges there is time for a scan.
fn fleet() -> impl Strategy<Value = Fleet> {
    let host = (128_u64..640, 1_u64..16);
    let life = (prop_oneof![1 => Just(0), 2 => 20_u64..300], prop_oneof![1 => Just(0.0), 1 => 0.0..0.2]);
    (host, parts(), writes(), writes(), life, any::<u64>()).prop_map(
        |((host, start_every), (common, image, zero), rewritten, working, (exchange, growing), seed)| Fleet {
            host_bytes: host * MIB,
            images: 3,
            size_step: 16 * MIB,
            sizes: 1..=6,
            common,
            image,
            zero,
            rewritten: rewritten.0,
            rewritten_every: Duration::from_secs(rewritten.1),
            working: working.0,
            working_every: Duration::from_secs(working.1),
            booting: growing / 2.0,
            growing: if common > 0.0 { growing } else { 0.0 },
            growing_over: Duration::from_secs(200),
            start_every: Duration::from_secs(start_every),
            exchange_from: Duration::from_secs(120),
            exchange_every: Duration::from_secs(exchange),
            duration: Duration::from_secs(600),
            seed,
            ..Fleet::default()
        },
    )
}

/// The fleet under `profit`.
fn trial(fleet: &Fleet, has_page_samples: bool) -> Trial {
    let mut machine = Machine::new(fleet.config(RUN_PAGES));
    fleet.plans().into_iter().for_each(|plan| machine.start(plan));
    let trial = Trial::new(machine, Box::new(Profit::new(ProfitConfig::default())), Limits::default());
    if has_page_samples { trial } else { trial.without_page_samples() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_same_fleet_always_comes_to_the_same(fleet in fleet()) {
        let outcome = || {
            let policy = Box::new(Profit::new(ProfitConfig::default()));
            Outcome::of(&fleet, RUN_PAGES, policy, Limits::default(), |_| true)
        };
        prop_assert_eq!(outcome(), outcome());
    }

    /// Memory that guests go on rewriting is left out. So is memory that becomes equal in place: a little of it gives no sign, and
    /// page samples see the rest with luck.
    #[test]
    fn no_guest_is_forgotten(fleet in fleet(), has_page_samples: bool) {
        let fleet = Fleet { rewritten: 0.0, working: 0.0, booting: 0.0, ..fleet };
        let mut trial = trial(&fleet, has_page_samples);
        trial.run_until(fleet.duration + Duration::from_secs(3 * 3600));
        let left = trial.machine.attainable_pages().abs_diff(trial.machine.truly_saved_pages());
        prop_assert_eq!(left, 0);
    }
}
