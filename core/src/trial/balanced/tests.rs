//! Small fleets with more memory than their host.

use proptest::prelude::*;

use super::*;
use crate::balance::{BalanceKind, ExposureResponse, ResizeRange};
use crate::decide::{PolicyConfig, PolicyLimits};
use crate::sim::SimFleet;
use crate::trial::PolicyTrial;

const MIB: u64 = 1 << 20;

/// Guests of 16 to 64 MiB, with over twice as much memory as the host has.
fn fleet() -> SimFleet {
    SimFleet {
        host_bytes: 1 << 30,
        size_step: 16 * MIB,
        full: 2.2,
        start_every: Duration::from_secs(1),
        growing: 0.1,
        growing_over: Duration::from_secs(120),
        hot: 0.1,
        hot_every: Duration::from_secs(30),
        cold: 0.2,
        bursting: 0.15,
        burst_every: Duration::from_secs(300),
        burst_for: Duration::from_secs(60),
        exchange_from: Duration::from_secs(300),
        duration: Duration::from_secs(600),
        ..SimFleet::default()
    }
}

fn no_swap() -> BalanceConfig {
    BalanceConfig { reserve_mib: 1.0, ..BalanceConfig::default() }
}

fn squeeze() -> BalanceConfig {
    BalanceConfig { policy: BalanceKind::Squeeze, ..no_swap() }
}

/// Plays a fleet, and shows each step to `check`.
fn play(
    fleet: &SimFleet,
    run_pages: u32,
    balance: Option<BalanceConfig>,
    mut check: impl FnMut(&BalancedGuests, &SimMachine),
) -> (BalancedGuests, SimMachine) {
    // What others use is not what these tests are about.
    let config = crate::sim::SimConfig { other_bytes: 16 * MIB, ..fleet.config(run_pages) };
    let policy = PolicyConfig::default().policy(&|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
    let mut trial = PolicyTrial::new(SimMachine::new(config), policy, PolicyLimits::default());
    let mut balanced = BalancedGuests::new(fleet.guests(), run_pages, balance, fleet.duration);
    while balanced.next() < fleet.duration {
        trial.run_until(balanced.next());
        balanced.step(trial.machine_mut());
        trial.host_mut().set_pool_shortness(balanced.shortness());
        if balanced.take_wish_to_merge() {
            trial.merge_at_once();
        }
        check(&balanced, trial.machine());
    }
    (balanced, trial.machine().clone())
}

#[test]
fn a_host_with_too_little_memory_overflows_less_under_a_balance_policy() {
    let [without, with, squeezed] =
        [None, Some(no_swap()), Some(squeeze())].map(|balance| play(&fleet(), 16, balance, |_, _| ()).0.record());
    assert!(without.overflow_seconds > 60.0, "{without:?}");
    assert_eq!((without.taken_bytes, without.turns, without.away_gib_seconds), (0, 0, 0.0));
    for record in [with, squeezed] {
        assert!(record.overflow_gib_seconds < without.overflow_gib_seconds / 2.0, "{record:?} {without:?}");
        assert!(record.taken_bytes > 100 * MIB, "{record:?}");
        assert_eq!(record.guest_kills, 0, "{record:?}");
    }
}

#[test]
fn a_host_that_runs_short_merges_before_it_takes() {
    let config = BalanceConfig { exposure: ExposureResponse::Report, ..no_swap() };
    let record = play(&fleet(), 16, Some(config), |_, _| ()).0.record();
    assert!(record.merges_asked > 0 && record.taken_bytes > 0, "{record:?}");
}

#[test]
fn guests_that_are_there_in_full_are_those_of_the_plans() {
    let fleet = SimFleet { full: 0.5, ..fleet() };
    let (balanced, machine) = play(&fleet, 16, None, |_, _| ());
    let present: u64 = balanced.guests.each().map(|(_, _, present)| present).sum();
    let whole: u64 = balanced.guests.each().map(|(_, kernel, _)| kernel.uses().given).sum();
    assert!(present > whole / 2 && present <= whole, "{present} of {whole}");
    let frames = machine.used_bytes() + machine.truly_saved_pages() * PAGE_SIZE;
    assert!(frames >= present, "{frames} {present}");
}

#[test]
fn page_cache_of_one_image_merges_and_need_not_be_taken() {
    let merged = SimFleet {
        images: 1,
        hot: 0.0,
        cold: 0.0,
        bursting: 0.0,
        growing: 0.4,
        zero: 0.0,
        image: 0.0,
        common: 0.0,
        full: 1.2,
        exchange_every: Duration::ZERO,
        ..fleet()
    };
    let record = play(&merged, 16, Some(no_swap()), |_, _| ()).0.record();
    let apart = SimFleet { cold: 0.4, growing: 0.0, ..merged };
    let own = play(&apart, 16, Some(no_swap()), |_, _| ()).0.record();
    assert!(own.taken_bytes > record.taken_bytes, "{record:?} {own:?}");
    assert!(own.away_gib_seconds > record.away_gib_seconds * 4.0, "{record:?} {own:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_guest_goes_below_its_floor_and_its_pages_follow_it(
        seed: u64,
        full in 0.5..2.5_f64,
        (hot, cold, bursting) in (0.0..0.2_f64, 0.0..0.3_f64, 0.0..0.2_f64),
        squeezes: bool,
        run_pages in prop_oneof![Just(1_u32), Just(16), Just(64)],
    ) {
        let fleet = SimFleet { host_bytes: 256 * MIB, full, hot, cold, bursting, seed, duration: Duration::from_secs(200), ..fleet() };
        let config = if squeezes { squeeze() } else { no_swap() };
        let mut before: std::collections::BTreeMap<String, u64> = Default::default();
        let mut fault = None;
        let (balanced, _) = play(&fleet, run_pages, Some(config.clone()), |balanced, machine| {
            let (size_bytes, used) = (machine.total_bytes(), machine.used_bytes());
            let pool = PoolView { size_bytes, available_bytes: size_bytes.saturating_sub(used), ..PoolView::default() };
            let now = machine.now();
            for (key, kernel, present) in balanced.guests.each() {
                let uses = kernel.uses();
                let Some(view) = kernel.view(now) else { continue };
                let least = (view.whole_bytes as f64 * config.floor_percent / 100.0) as u64;
                let run = u64::from(run_pages) * PAGE_SIZE;
                let last = before.insert(key.to_owned(), uses.given).unwrap_or(uses.given);
                // The largest step there is.
                let step = (view.whole_bytes as f64 * config.urgent_step_percent / 100.0) as u64 + view.step_bytes;
                let range = ResizeRange::for_guest(&view, &pool, &config);
                if uses.given < least
                    || uses.given.abs_diff(last) > step
                    || range.ceiling_bytes > view.whole_bytes
                    || present > uses.touched + 4 * run
                    || present + 4 * run < uses.touched
                    || uses.touched > uses.given
                {
                    fault.get_or_insert(format!("{key} at {now:?}: {uses:?}, {present} present, {last} before"));
                }
            }
        });
        prop_assert_eq!(fault, None);
        let record = balanced.record();
        // A host without memory has none to give back to a guest that wants it.
        prop_assert!(full > 1.0 || record.guest_kills == 0, "{:?}", record);
        let away: u64 = balanced.guests.away_bytes();
        prop_assert!(record.given_bytes + away <= record.taken_bytes, "{:?} {}", record, away);
    }

    #[test]
    fn the_same_story_gives_the_same_figures(seed: u64, squeezes: bool) {
        let fleet = SimFleet { host_bytes: 256 * MIB, seed, duration: Duration::from_secs(120), ..fleet() };
        let config = || Some(if squeezes { squeeze() } else { no_swap() });
        let tell = || {
            let (balanced, machine) = play(&fleet, 16, config(), |_, _| ());
            format!("{:?} {:?}", balanced.record(), machine.sample())
        };
        prop_assert_eq!(tell(), tell());
    }
}
