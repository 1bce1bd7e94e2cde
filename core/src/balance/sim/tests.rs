//! The policies with simulated guests over hours.

use std::time::Duration;

use proptest::prelude::*;

use super::machine::{GuestBehaviour, PoolConfig, SimPool};
use super::*;
use crate::balance::{self, BalanceAction, BalanceConfig, BalanceKind, ExposureResponse, GuestClass, ResizeRange};

const MIB: u64 = 1 << 20;

fn class(name: &str) -> GuestClass {
    let weight = BalanceConfig::default().classes[name];
    GuestClass { name: name.to_owned(), weight }
}

fn pool(size: u64, swap: u64) -> PoolConfig {
    PoolConfig { size_bytes: size * MIB, others_bytes: 100 * MIB, swap_bytes: swap * MIB }
}

fn no_swap() -> BalanceConfig {
    BalanceConfig::default()
}

fn squeeze() -> BalanceConfig {
    BalanceConfig { policy: BalanceKind::Squeeze, ..BalanceConfig::default() }
}

/// A guest that has filled its memory with page cache, and idles.
fn full_of_cache(key: &str, class_name: &str, whole: u64) -> SimGuest {
    let busy = DemandPhase::idle(whole / 8 * MIB).reading(200 * MIB);
    SimGuest::new(key, class(class_name), whole * MIB, vec![busy, DemandPhase::idle(whole / 8 * MIB).at(30)])
}

/// A guest that grows to `to` from this second on.
fn leak(key: &str, class_name: &str, whole: u64, second: u64, to: u64, rate: u64) -> SimGuest {
    let phases = vec![DemandPhase::idle(64 * MIB), DemandPhase::idle(to * MIB).at(second).growing(rate * MIB)];
    SimGuest::new(key, class(class_name), whole * MIB, phases)
}

/// Runs it under the policy of the configuration.
fn play(config: PoolConfig, balance: &BalanceConfig, guests: Vec<SimGuest>, until: u64) -> SimPool {
    let mut sim = SimPool::new(config, balance.clone(), guests);
    sim.run(balance::policy(balance).as_mut(), until, |_, _| ());
    sim
}

/// The same without a policy.
fn alone(config: PoolConfig, guests: Vec<SimGuest>, until: u64) -> SimPool {
    let mut sim = SimPool::new(config, no_swap(), guests);
    sim.advance(Duration::from_secs(until));
    sim
}

fn oom_kills(sim: &SimPool) -> u64 {
    sim.guests.iter().map(|guest| guest.oom_kills).sum()
}

#[test]
fn a_leaking_guest_squeezes_idle_ones_and_the_host_never_swaps() {
    let guests = || {
        let mut guests: Vec<SimGuest> =
            ["a", "b", "c"].map(|key| full_of_cache(key, "silver", 1024)).into_iter().collect();
        guests.push(leak("leak", "silver", 2048, 120, 1800, 10));
        guests
    };
    let config = pool(4096, 1024);
    let without = alone(config, guests(), 600);
    assert!(without.record().swapped_bytes > 500 * MIB, "{:?}", without.record());
    let sim = play(config, &no_swap(), guests(), 600);
    assert_eq!(
        (sim.record().swapped_bytes, sim.record().host_kills, oom_kills(&sim)),
        (0, 0, 0),
        "{:?}",
        sim.record()
    );
    assert!(sim.given_bytes("leak") > 1900 * MIB, "the guest that needs it keeps it");
    assert!(sim.record().taken_bytes > 1000 * MIB, "{:?}", sim.record());
}

#[test]
fn memory_comes_back_when_the_leak_is_over() {
    let mut guests: Vec<SimGuest> =
        ["a", "b", "c"].map(|key| full_of_cache(key, "silver", 1024)).into_iter().collect();
    let phases = vec![
        DemandPhase::idle(64 * MIB),
        DemandPhase::idle(1800 * MIB).at(120).growing(10 * MIB),
        DemandPhase::idle(64 * MIB).at(600),
    ];
    guests.push(SimGuest::new("leak", class("bronze"), 2048 * MIB, phases));
    let mut sim = SimPool::new(pool(4096, 1024), no_swap(), guests);
    let mut policy = balance::policy(&no_swap());
    sim.run(policy.as_mut(), 600, |_, _| ());
    assert!(sim.record().taken_bytes > 1000 * MIB, "{:?}", sim.record());
    sim.run(policy.as_mut(), 3600, |_, _| ());
    assert!(["a", "b", "c"].iter().all(|key| sim.given_bytes(key) == 1024 * MIB), "all is back");
    assert_eq!(sim.record().swapped_bytes, 0);
}

#[test]
fn idle_guests_give_before_busy_ones() {
    let hot = DemandPhase::idle(128 * MIB).with_hot(700 * MIB, Duration::from_secs(10));
    let busy = SimGuest::new("busy", class("silver"), 1024 * MIB, vec![hot]);
    let guests = vec![busy, full_of_cache("idle", "silver", 1024), leak("leak", "silver", 2048, 120, 1500, 10)];
    let sim = play(pool(3200, 512), &no_swap(), guests, 900);
    assert_eq!((sim.record().swapped_bytes, oom_kills(&sim)), (0, 0));
    let (idle, busy) = (1024 * MIB - sim.given_bytes("idle"), 1024 * MIB - sim.given_bytes("busy"));
    assert!(idle > 2 * busy, "idle gave {} MiB, busy {} MiB", idle / MIB, busy / MIB);
}

#[test]
fn gold_keeps_its_memory_until_silver_and_bronze_are_at_their_floors() {
    let guests = vec![
        full_of_cache("bronze", "bronze", 1024),
        full_of_cache("gold", "gold", 1024),
        leak("leak", "gold", 3072, 120, 2700, 8),
        full_of_cache("silver", "silver", 1024),
    ];
    let config = no_swap();
    let mut sim = SimPool::new(pool(4000, 512), config.clone(), guests);
    let mut gold_gave = false;
    sim.run(balance::policy(&config).as_mut(), 900, |view, plan| {
        let room = |key: &str| {
            let guest = view.guests.iter().find(|guest| guest.key == key).unwrap();
            ResizeRange::for_guest(guest, &view.pool, &config).reclaimable_bytes()
        };
        let takes_from = |wanted: &str| {
            plan.actions.iter().any(
                |it| matches!(it, BalanceAction::Resize { key, from_bytes, to_bytes, .. } if key == wanted && to_bytes < from_bytes),
            )
        };
        if takes_from("silver") {
            assert_eq!(room("bronze"), 0);
        }
        if takes_from("gold") {
            gold_gave = true;
            assert_eq!((room("bronze"), room("silver")), (0, 0));
        }
    });
    assert!(gold_gave, "the need was large enough to ask gold too");
    assert_eq!((sim.record().swapped_bytes, oom_kills(&sim)), (0, 0), "{:?}", sim.record());
}

#[test]
fn squeeze_converges_to_the_working_set_and_backs_off_under_pressure() {
    // 1 GiB with 1/16 kernel, 128 MiB of programs and 256 MiB that are read over and over.
    let phase = DemandPhase::idle(128 * MIB).with_hot(256 * MIB, Duration::from_secs(20)).reading(MIB);
    let guest = SimGuest::new("a", class("silver"), 1024 * MIB, vec![phase]);
    let mut sim = SimPool::new(pool(8192, 0), squeeze(), vec![guest]);
    let mut policy = balance::policy(&squeeze());
    let mut backed_off = 0;
    let (mut least, mut most) = (u64::MAX, 0);
    sim.run(policy.as_mut(), 8 * 3600, |view, plan| {
        backed_off += plan
            .actions
            .iter()
            .filter(|it| matches!(it, BalanceAction::Resize { from_bytes, to_bytes, .. } if to_bytes > from_bytes))
            .count();
        if view.now > Duration::from_secs(3600) {
            (least, most) = (least.min(view.guests[0].given_bytes), most.max(view.guests[0].given_bytes));
        }
    });
    let working_set = (64 + 128 + 256) * MIB;
    assert!(
        least > working_set / 100 * 85 && most < working_set / 100 * 125,
        "{} to {} MiB of {}",
        least / MIB,
        most / MIB,
        working_set / MIB
    );
    assert!(backed_off > 3, "it gave back {backed_off} times");
    assert_eq!(oom_kills(&sim), 0);
    // Eight hours under pressure would be millions.
    assert!(sim.guests[0].refaults < 400_000, "{} pages read back", sim.guests[0].refaults);
}

#[test]
fn a_squeezed_guest_that_wakes_up_gets_its_memory_back() {
    let sleepy = DemandPhase::idle(64 * MIB);
    let awake =
        DemandPhase::idle(600 * MIB).at(7200).growing(20 * MIB).with_hot(200 * MIB, Duration::from_secs(10));
    let guest = SimGuest::new("a", class("silver"), 1024 * MIB, vec![sleepy, awake]);
    let mut sim = SimPool::new(pool(8192, 0), squeeze(), vec![guest]);
    let mut policy = balance::policy(&squeeze());
    sim.run(policy.as_mut(), 7200, |_, _| ());
    assert!(sim.given_bytes("a") < 250 * MIB, "{} MiB after two idle hours", sim.given_bytes("a") / MIB);
    sim.run(policy.as_mut(), 7400, |_, _| ());
    assert!(sim.given_bytes("a") > 800 * MIB, "{} MiB", sim.given_bytes("a") / MIB);
    assert_eq!(oom_kills(&sim), 0);
}

#[test]
fn a_guest_that_lies_or_hangs_harms_no_other_and_gains_little() {
    for behaviour in [
        GuestBehaviour::ReportsShortage,
        GuestBehaviour::ReportsPlenty,
        GuestBehaviour::IgnoresBalloon,
        GuestBehaviour::HangsFrom(Duration::from_secs(100)),
    ] {
        let guests = vec![
            full_of_cache("a", "silver", 1024),
            full_of_cache("b", "silver", 1024),
            leak("leak", "silver", 2048, 120, 1200, 10),
            full_of_cache("odd", "silver", 1024),
        ];
        let mut sim = SimPool::new(pool(4096, 1024), no_swap(), guests).with_odd("odd", behaviour);
        sim.run(balance::policy(&no_swap()).as_mut(), 1200, |_, _| ());
        assert_eq!(
            (sim.record().swapped_bytes, sim.record().host_kills),
            (0, 0),
            "{behaviour:?}: {:?}",
            sim.record()
        );
        let others: u64 = sim.guests.iter().filter(|guest| guest.key != "odd").map(|guest| guest.oom_kills).sum();
        assert_eq!(others, 0, "{behaviour:?}");
        assert!(sim.given_bytes("odd") <= 1024 * MIB, "{behaviour:?}");
    }
}

#[test]
fn a_guest_that_ignores_its_balloon_is_not_asked_for_ever() {
    let odd = vec![full_of_cache("odd", "silver", 1024)];
    let mut sim = SimPool::new(pool(1000, 4096), no_swap(), odd).with_odd("odd", GuestBehaviour::IgnoresBalloon);
    sim.run(balance::policy(&no_swap()).as_mut(), 3600, |_, _| ());
    assert!((3..20).contains(&sim.record().resizes), "{:?}", sim.record());
}

#[test]
fn a_wave_of_divergence_kills_no_guest_where_the_exposure_is_covered() {
    let guests =
        || (0..4).map(|n| full_of_cache(&format!("g{n}"), "silver", 1024).merged(400 * MIB)).collect::<Vec<_>>();
    let config = pool(3200, 0);
    let mut without = SimPool::new(config, no_swap(), guests()).with_wave(600, 100 * MIB);
    without.advance(Duration::from_secs(700));
    assert!(without.record().host_kills > 0);
    let balance = BalanceConfig { exposure: ExposureResponse::Cover, ..no_swap() };
    let mut sim = SimPool::new(config, balance.clone(), guests()).with_wave(600, 100 * MIB);
    sim.run(balance::policy(&balance).as_mut(), 700, |_, _| ());
    assert_eq!((sim.record().host_kills, oom_kills(&sim)), (0, 0), "{:?}", sim.record());
}

#[test]
fn twice_as_many_guests_fit_into_a_pool_before_it_swaps() {
    let fleet = |n: u64| -> Vec<SimGuest> {
        let phases = |start: u64| {
            let boot = DemandPhase::idle(24 * MIB).at(start).growing(20 * MIB).reading(40 * MIB);
            vec![boot, DemandPhase::idle(24 * MIB).at(start + 5)]
        };
        (0..n).map(|i| SimGuest::new(&format!("u{i:02}"), class("silver"), 256 * MIB, phases(i * 10))).collect()
    };
    let most = |swapped: &dyn Fn(u64) -> u64| (1..60).take_while(|&n| swapped(n) == 0).last().unwrap_or(0);
    let config = pool(2048, 1024);
    let without = most(&|n| alone(config, fleet(n), n * 10 + 60).record().swapped_bytes);
    let with = most(&|n| {
        let sim = play(config, &no_swap(), fleet(n), n * 10 + 60);
        assert_eq!(oom_kills(&sim), 0);
        sim.record().swapped_bytes
    });
    assert!(with >= 2 * without, "{without} without, {with} with");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn memory_is_conserved_and_no_take_kills_a_guest(
        shapes in prop::collection::vec((0_u64..3, 64_u64..1024, 0_u64..40, 1_u64..50, 0_u64..100), 1..8),
        size in 500_u64..6000,
        squeezes: bool,
    ) {
        let guests: Vec<SimGuest> = shapes.iter().enumerate().map(|(n, &(class_of, whole, used, reads, hot))| {
            let class = class(["gold", "silver", "bronze"][class_of as usize]);
            let part = |percent: u64| whole * MIB * percent / 100;
            let phase = DemandPhase::idle(part(used)).reading(reads * MIB).with_hot(part(hot / 4), Duration::from_secs(10));
            SimGuest::new(&format!("g{n}"), class, whole * MIB, vec![phase])
        }).collect();
        let whole: u64 = shapes.iter().map(|shape| shape.1 * MIB).sum();
        let config = if squeezes { squeeze() } else { no_swap() };
        let mut sim = SimPool::new(pool(size, 10_000), config.clone(), guests);
        let mut policy = balance::policy(&config);
        sim.run(policy.as_mut(), 1200, |_, _| ());
        let given: u64 = sim.guests.iter().map(|guest| guest.given).sum();
        let record = sim.record();
        prop_assert_eq!(given + record.taken_bytes - record.given_bytes, whole, "sums are conserved");
        prop_assert_eq!(oom_kills(&sim), 0, "no guest's own kernel kills for what was taken");
    }
}
