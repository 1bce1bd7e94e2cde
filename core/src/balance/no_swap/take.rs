//! The choice of guests from which memory is taken.

use std::time::Duration;

use super::super::share_out::share_out;
use super::super::{BalanceAction, BalanceConfig};
use super::assessed::GuestAssessment;
use super::give::UnmetDemand;
use crate::units::Bytes;

/// The difference in `given / whole` from which a guest gives memory to the worst-off one.
///
/// Larger than the part that [`give::tuned_arguments`](super::give::tuned_arguments) repays together, so that memory does not go to and fro.
const BETTER_OFF: f64 = 0.2;

/// Takes about `amount` for the pool from the lowest class that can give anything.
///
/// Returns the actions, and true if a guest of a lower class is giving already, so that no higher class was asked. A
/// guest is waited for no longer than `patience`.
pub(super) fn for_pool(
    guests: &[GuestAssessment<'_>],
    amount: u64,
    why: &str,
    patience: Duration,
) -> (Vec<BalanceAction>, bool) {
    let can_give = |it: &&GuestAssessment<'_>| it.range.reclaimable_bytes() > 0;
    let is_giving = |it: &&GuestAssessment<'_>| it.guest.giving_for.is_some_and(|so_far| so_far < patience);
    let awaited = guests.iter().filter(is_giving).map(GuestAssessment::weight).min();
    let Some(weight) = guests.iter().filter(can_give).map(GuestAssessment::weight).min() else {
        return (Vec::new(), awaited.is_some());
    };
    if awaited.is_some_and(|awaited| awaited < weight) {
        return (Vec::new(), true);
    }
    let class = guests.iter().filter(can_give).filter(|it| it.weight() == weight);
    let (pressed, quiet): (Vec<_>, Vec<_>) = class.partition(|it| it.pressure.is_high());
    let passed_over = passed_over(guests, weight);
    let reason = |it: &GuestAssessment<'_>| {
        let spare = Bytes::from(it.guest.inside.available_bytes.unwrap_or(0));
        format!("{why}; {} of class {} has {spare} to spare{passed_over}", it.guest.name, it.guest.class.name)
    };
    let (mut actions, mut left) = (Vec::new(), amount);
    for group in [quiet, pressed] {
        left -= split(&group, left, reason, &mut actions);
    }
    (actions, false)
}

/// Returns the reasons why no guest below `weight` gives: `, lower classes nothing (4 at the floor, 1 still giving)`.
fn passed_over(guests: &[GuestAssessment<'_>], weight: u32) -> String {
    let mut causes: Vec<(&str, u32)> = Vec::new();
    for it in guests.iter().filter(|it| it.weight() < weight) {
        let cause = it.why_it_gives_nothing();
        match causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, count)) => *count += 1,
            None => causes.push((cause, 1)),
        }
    }
    if causes.is_empty() {
        return String::new();
    }
    let causes: Vec<String> = causes.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
    format!(", lower classes nothing ({})", causes.join(", "))
}

/// Takes for guests under pressure from idle guests of the same or a lower class, the lowest one first.
pub(super) fn from_idle(
    guests: &[GuestAssessment<'_>],
    unmet: &UnmetDemand,
    config: &BalanceConfig,
) -> Vec<BalanceAction> {
    let can_give = |it: &&GuestAssessment<'_>| {
        // Twice its reserve, so that the take does not put it under pressure in turn.
        let enough = config.reserve_bytes(it.guest).saturating_mul(2);
        let has_plenty = it.guest.inside.available_bytes.is_some_and(|available| available > enough);
        it.weight() <= unmet.weight && it.is_idle() && has_plenty && it.range.reclaimable_bytes() > 0
    };
    let lowest = guests.iter().filter(can_give).map(GuestAssessment::weight).min();
    let class: Vec<_> = guests.iter().filter(can_give).filter(|it| Some(it.weight()) == lowest).collect();
    let mut actions = Vec::new();
    split(&class, unmet.bytes, |_| format!("{} needs it more", unmet.name), &mut actions);
    actions
}

/// Takes for the worst-off guest that waits for its memory from better-off guests of the same or a lower class.
///
/// A better-off guest has a larger part of its whole and no smaller part to spare.
pub(super) fn from_better_off(guests: &[GuestAssessment<'_>]) -> Vec<BalanceAction> {
    let waits = |it: &&GuestAssessment<'_>| it.range.grantable_bytes() > 0 && it.guest.taken_bytes() > 0;
    let worst_off = guests.iter().filter(waits).min_by(|a, b| a.given_part().total_cmp(&b.given_part()));
    let Some(worst_off) = worst_off.filter(|it| it.guest.trouble.is_none()) else { return Vec::new() };
    let is_better_off = |it: &&GuestAssessment<'_>| {
        it.given_part() > worst_off.given_part() + BETTER_OFF
            && it.spare_part() >= worst_off.spare_part()
            && it.is_idle()
            && it.weight() <= worst_off.weight()
    };
    let (mut actions, mut open) = (Vec::new(), worst_off.range.grantable_bytes());
    for it in guests.iter().filter(is_better_off) {
        let to_bytes = it.after_taking(open);
        open = open.saturating_sub(it.guest.given_bytes - to_bytes);
        actions.extend(it.resize(to_bytes, || format!("it has far more to spare than {}", worst_off.guest.name)));
        if open == 0 {
            break;
        }
    }
    actions
}

/// Takes `amount` from a group in proportion to what its guests can give; returns what their parts add up to.
fn split(
    group: &[&GuestAssessment<'_>],
    amount: u64,
    reason: impl Fn(&GuestAssessment<'_>) -> String,
    actions: &mut Vec<BalanceAction>,
) -> u64 {
    let capacities: Vec<u64> = group.iter().map(|it| it.range.reclaimable_bytes()).collect();
    let parts = share_out(amount, &capacities);
    for (it, part) in group.iter().zip(&parts).filter(|(_, part)| **part > 0) {
        actions.extend(it.resize(it.after_taking(*part), || reason(it)));
    }
    parts.iter().sum()
}
