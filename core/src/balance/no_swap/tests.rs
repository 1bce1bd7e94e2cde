//! `no-swap` on made-up views.

use super::super::testing::{MIB, guest, of_class, pool, view};
use super::*;
use crate::balance::{BalanceAction, ExposureResponse, GuestView, PoolView};

fn resizes(plan: &BalancePlan) -> Vec<(&str, i64)> {
    let amounts = plan.actions.iter().filter_map(|action| match action {
        BalanceAction::Resize { key, from_bytes, to_bytes, .. } => {
            Some((key.as_str(), (*to_bytes as i64 - *from_bytes as i64) / MIB as i64))
        }
        BalanceAction::Ksm { .. } => None,
    });
    amounts.collect()
}

fn policy() -> NoSwapPolicy {
    NoSwapPolicy::new(BalanceConfig::default())
}

fn squeezed(key: &str, given: u64, available: u64) -> GuestView {
    GuestView { given_bytes: given * MIB, resident_bytes: given * MIB, ..guest(key, 1000, available) }
}

#[test]
fn the_guest_with_most_to_spare_gives_most() {
    let guests = vec![guest("busy", 1000, 150), guest("idle", 1000, 850)];
    let plan = policy().decide(&view(0, pool(10_000, 960), guests));
    assert_eq!(plan.reason.state, "short");
    // 540 MiB are missing: the step of 50 MiB is what bounds the idle one.
    assert_eq!(resizes(&plan), [("busy", -50), ("idle", -50)]);
    let guests = vec![guest("busy", 1000, 150), guest("idle", 1000, 850)];
    let plan = policy().decide(&view(0, pool(1000, 90), guests));
    assert_eq!(resizes(&plan), [("busy", -6), ("idle", -50)]);
}

#[test]
fn a_higher_class_gives_only_when_the_lower_are_at_their_floors() {
    let gold = || of_class(guest("gold", 1000, 900), "gold", 100);
    let bronze = |available| of_class(guest("bronze", 1000, available), "bronze", 1);
    let of = |available| {
        let plan =
            policy().decide(&view(0, pool(1000, 40), vec![gold(), guest("silver", 1000, 900), bronze(available)]));
        resizes(&plan).into_iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of(900), ["bronze"]);
    assert_eq!(of(50), ["silver"]);
    let mut silver = guest("silver", 1000, 50);
    silver.held = true;
    let plan = policy().decide(&view(0, pool(1000, 40), vec![gold(), silver, bronze(10)]));
    assert_eq!(resizes(&plan).first().map(|(key, _)| *key), Some("gold"));
}

#[test]
fn the_reason_says_why_lower_classes_were_passed_over() {
    let gold = of_class(guest("gold", 1000, 900), "gold", 100);
    let floor = |key| of_class(guest(key, 1000, 10), "bronze", 1);
    let held = GuestView { held: true, ..guest("held", 1000, 900) };
    let hung = GuestView { can_take: false, giving_for: Some(Duration::from_secs(3)), ..floor("hung") };
    let plan = policy().decide(&view(0, pool(1000, 90), vec![gold, floor("a"), floor("b"), held, hung]));
    let [.., BalanceAction::Resize { key, reason, .. }] = &plan.actions[..] else { panic!("{plan:?}") };
    assert_eq!(key, "gold");
    let end =
        "gold of class gold has 900 MiB to spare, lower classes nothing (2 at the floor, 1 held, 1 still giving)";
    assert!(reason.ends_with(end), "{reason}");
    let plan = policy().decide(&view(0, pool(1000, 90), vec![guest("only", 1000, 900), floor("a")]));
    let [.., BalanceAction::Resize { reason, .. }] = &plan.actions[..] else { panic!("{plan:?}") };
    assert!(reason.ends_with("lower classes nothing (1 at the floor)"), "{reason}");
}

#[test]
fn no_higher_class_is_asked_while_a_lower_guest_is_giving() {
    let gives = |available, millis: Option<u64>| {
        let gold = of_class(guest("gold", 1000, 900), "gold", 100);
        let mut bronze = of_class(guest("bronze", 1000, 900), "bronze", 1);
        (bronze.can_take, bronze.giving_for) = (millis.is_none(), millis.map(Duration::from_millis));
        let plan = policy().decide(&view(0, pool(1000, available), vec![gold, bronze]));
        assert!(!plan.reason.text.contains("anything to spare"), "{}", plan.reason);
        resizes(&plan).into_iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(gives(90, None), ["bronze"]);
    assert_eq!(gives(90, Some(100)), [""; 0]);
    assert_eq!(gives(90, Some(1900)), [""; 0]);
    assert_eq!(gives(90, Some(2100)), ["gold"], "it may hang");
    assert_eq!(gives(40, Some(100)), [""; 0]);
    assert_eq!(gives(40, Some(400)), ["gold"], "there is no time to wait");
}

#[test]
fn taking_goes_on_to_the_middle_and_then_waits() {
    let mut policy = policy();
    let mut state = |second, available| {
        policy.decide(&view(second, pool(1000, available), vec![guest("a", 1000, 900)])).reason.state
    };
    assert_eq!(state(0, 120), "watching");
    assert_eq!(state(1, 90), "short");
    assert_eq!(state(2, 140), "short");
    assert_eq!(state(3, 155), "watching");
    assert_eq!(state(4, 140), "watching");
}

#[test]
fn what_was_taken_comes_back_after_a_calm_the_highest_class_first() {
    let mut policy = policy();
    let mut at = |second, available| {
        let gold = of_class(squeezed("gold", 500, 200), "gold", 100);
        let plan = policy.decide(&view(second, pool(1000, available), vec![squeezed("silver", 500, 200), gold]));
        resizes(&plan).iter().map(|(key, by)| (key.to_string(), *by)).collect::<Vec<_>>()
    };
    at(0, 90);
    assert_eq!(at(30, 600), []);
    assert_eq!(at(60, 600), [("gold".to_owned(), 50)]);
    assert_eq!(at(62, 190), []);
}

#[test]
fn a_guest_under_pressure_gets_what_idle_guests_give() {
    let mut pressed = squeezed("pressed", 500, 200);
    pressed.inside.psi_some_percent = Some(5.0);
    let idle = guest("idle", 1000, 800);
    let gold = of_class(guest("gold", 1000, 900), "gold", 100);
    let plan = policy().decide(&view(0, pool(1000, 190), vec![pressed.clone(), idle.clone(), gold.clone()]));
    assert_eq!(resizes(&plan), [("pressed", 50)]);
    let plan = policy().decide(&view(0, pool(1000, 120), vec![pressed, idle, gold]));
    assert_eq!(resizes(&plan), [("idle", -30)]);
    let BalanceAction::Resize { reason, .. } = &plan.actions[0] else { panic!() };
    assert_eq!(reason, "pressed needs it more");
}

#[test]
fn a_pool_that_swaps_is_short_unless_it_has_plenty() {
    let swapping = |available| PoolView { swap_out_bytes_per_second: Some(1e6), ..pool(1000, available) };
    let state =
        |available| policy().decide(&view(0, swapping(available), vec![guest("a", 1000, 900)])).reason.state;
    assert_eq!((state(150), state(500)), ("short", "plenty"));
}

#[test]
fn exposure_is_covered_by_taking_where_that_is_wanted() {
    let config = BalanceConfig { exposure: ExposureResponse::Cover, ..BalanceConfig::default() };
    let exposed = PoolView { exposure_bytes: 500 * MIB, ..pool(1000, 400) };
    let plan = NoSwapPolicy::new(config).decide(&view(0, exposed, vec![guest("a", 1000, 900)]));
    assert_eq!(resizes(&plan), [("a", -50)]);
    assert!(plan.reason.text.starts_with("if all merged pages diverged"), "{}", plan.reason);
}

#[test]
fn without_guests_it_says_so_and_does_nothing() {
    let plan = policy().decide(&view(0, pool(1000, 10), vec![]));
    assert_eq!((resizes(&plan).len(), plan.reason.state), (0, "urgent"));
    assert!(plan.reason.text.ends_with("no guest has anything to spare"));
}
