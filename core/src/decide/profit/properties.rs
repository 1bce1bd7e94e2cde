//! Properties on any fleet: what `profit` wastes is bounded, no guest is forgotten, and the same fleet always gives the
//! same.

use std::time::Duration;

use proptest::prelude::*;

use super::{ProfitConfig, ProfitPolicy};
use crate::decide::PolicyLimits;
use crate::sim::{PAGE_SIZE, SimFleet};
use crate::trial::{FleetOutcome, PolicyTrial, SimHost};

const MIB: u64 = 1 << 20;

/// Pages that are kept as one.
const RUN_PAGES: u32 = 16;

/// More than any visit costs ksmd that merges nothing, in CPU-seconds.
const VISIT_SECONDS: f64 = 4.5e-6;

/// The default prices where memory is short and where it is plentiful, in MiB for a CPU-second.
const PRESSED: f64 = 0.5;
const PLENTIFUL: f64 = 8.0;

/// Parts of a guest's memory, at most all of it.
fn parts() -> impl Strategy<Value = (f64, f64, f64)> {
    prop_oneof![
        1 => Just((0.0, 0.0, 0.0)),
        3 => (0.0..0.3, 0.0..0.3, 0.0..0.2),
    ]
}

/// Generates the rewriting of memory: the rewritten part, and the seconds that a round takes.
fn writes() -> impl Strategy<Value = (f64, u64)> {
    (prop_oneof![1 => Just(0.0), 3 => 0.0..0.2], 1_u64..120)
}

/// Fleets of ten minutes on small hosts. In one of four no page equals another. Between two exchanges there is time for
/// a scan.
fn fleet() -> impl Strategy<Value = SimFleet> {
    let host = (128_u64..640, 1_u64..16);
    let life = (prop_oneof![1 => Just(0), 2 => 20_u64..300], prop_oneof![1 => Just(0.0), 1 => 0.0..0.2]);
    (host, parts(), writes(), writes(), life, any::<u64>()).prop_map(
        |((host, start_every), (common, image, zero), rewritten, working, (exchange, growing), seed)| SimFleet {
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
            ..SimFleet::default()
        },
    )
}

/// The fleet under `profit` with these settings.
fn trial(fleet: &SimFleet, config: ProfitConfig, has_page_samples: bool) -> PolicyTrial {
    let host = SimHost::new(fleet.machine(RUN_PAGES));
    let host = if has_page_samples { host } else { host.without_page_samples() };
    PolicyTrial::with_host(host, Box::new(ProfitPolicy::new(config)), PolicyLimits::default())
}

/// CPU-seconds of ksmd that brought less than the price: for new memory, and for all other reasons.
#[derive(Debug, Default)]
struct CpuWaste {
    for_new: f64,
    others: f64,
}

impl CpuWaste {
    /// Plays a fleet's story and sums up its waste. A scan wastes what it costs beyond the bytes that it merges, at the
    /// price, which is the same whether memory is short or not: the policy is judged by what it decides by.
    fn from_fleet(fleet: &SimFleet, price_mib: f64, has_page_samples: bool) -> Self {
        const STEP: Duration = Duration::from_millis(50);
        let config = ProfitConfig {
            price_mib_per_cpu_second: price_mib,
            pressed_price_mib_per_cpu_second: price_mib,
            ..ProfitConfig::default()
        };
        let price = price_mib * MIB as f64;
        let mut trial = trial(fleet, config, has_page_samples);
        let (mut waste, mut scan, mut before) = (Self::default(), (0.0, 0.0), trial.moment());
        while before.at < fleet.duration {
            trial.run_until(before.at + STEP);
            let now = trial.moment();
            let bytes = now.saved_bytes.saturating_sub(before.saved_bytes) as f64;
            scan = (scan.0 + (now.ksmd_cpu - before.ksmd_cpu).as_secs_f64(), scan.1 + bytes);
            if now.state != before.state {
                let wasted = (scan.0 - scan.1 / price).max(0.0);
                match before.state {
                    "burst" => waste.for_new += wasted,
                    _ => waste.others += wasted,
                }
                scan = (0.0, 0.0);
            }
            before = now;
        }
        waste
    }
}

/// Asserts that scans for new memory waste no more than a trial of it, and all others no more than the budget.
fn assert_bounded(fleet: &SimFleet, price_mib: f64, has_page_samples: bool) -> Result<(), TestCaseError> {
    let waste = CpuWaste::from_fleet(fleet, price_mib, has_page_samples);
    let pages = fleet.host_bytes as f64 * fleet.full / PAGE_SIZE as f64;
    let two_passes = 2.0 * pages * VISIT_SECONDS;
    let budget = fleet.duration.as_secs_f64() * ProfitConfig::default().probe_cpu_percent / 100.0;
    // Probes have the budget, and passes for ended guests have as much again.
    prop_assert!(waste.others <= 2.0 * budget + two_passes, "{waste:?}, two passes take {two_passes} s");
    let arrivals = fleet.plans().len() as f64;
    prop_assert!(waste.for_new <= (arrivals + 1.0) * 1.5 * two_passes, "{waste:?}, {arrivals} guests have come");
    Ok(())
}

/// Each of its revisits tries fewer sampled pages than can be learned from.
#[test]
fn scans_of_few_sampled_pages_teach_together() {
    let fleet = SimFleet {
        host_bytes: 569 * MIB,
        images: 3,
        size_step: 16 * MIB,
        sizes: 1..=6,
        common: 0.26,
        image: 0.10,
        zero: 0.13,
        rewritten: 0.0,
        working: 0.13,
        working_every: Duration::from_secs(98),
        booting: 0.095,
        growing: 0.19,
        growing_over: Duration::from_secs(200),
        start_every: Duration::from_secs(1),
        exchange_every: Duration::ZERO,
        duration: Duration::from_secs(600),
        seed: 107_781_307_751_984_446,
        ..SimFleet::default()
    };
    assert_bounded(&fleet, PRESSED, true).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Parking would waste nothing, and merge nothing.
    #[test]
    fn what_is_wasted_is_a_trial_of_new_memory_or_within_the_budget(
        fleet in fleet(),
        is_short: bool,
        has_page_samples: bool,
    ) {
        assert_bounded(&fleet, if is_short { PRESSED } else { PLENTIFUL }, has_page_samples)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_same_fleet_always_comes_to_the_same(fleet in fleet()) {
        let outcome = || {
            let policy = Box::new(ProfitPolicy::new(ProfitConfig::default()));
            FleetOutcome::from_fleet(&fleet, RUN_PAGES, policy, PolicyLimits::default(), |_| true)
        };
        prop_assert_eq!(outcome(), outcome());
    }

    /// Memory that guests go on rewriting is left out. So is memory that becomes equal in place: a little of it gives
    /// no sign, and page samples see the rest with luck.
    #[test]
    fn no_guest_is_forgotten(fleet in fleet(), has_page_samples: bool) {
        let fleet = SimFleet { rewritten: 0.0, working: 0.0, booting: 0.0, ..fleet };
        let mut trial = trial(&fleet, ProfitConfig::default(), has_page_samples);
        trial.run_until(fleet.duration + Duration::from_secs(3 * 3600));
        let left = trial.machine().attainable_pages().abs_diff(trial.machine().truly_saved_pages());
        prop_assert_eq!(left, 0);
    }
}
