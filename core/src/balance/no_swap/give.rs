//! The choice of guests that are given memory.

use std::collections::BTreeSet;

use super::super::config::PoolWatermarks;
use super::super::share_out::share_out;
use super::super::{BalanceAction, BalanceView};
use super::assessed::GuestAssessment;
use crate::units::Bytes;

/// Guests with a `given / whole` within this of the smallest one are repaid together.
const NEAR_LEAST: f64 = 0.1;

/// Memory that guests under pressure need and the pool does not have.
pub(super) struct UnmetDemand {
    pub bytes: u64,
    /// The weight of the first of these guests: no guest of a higher class gives for them.
    pub weight: u32,
    /// The name of that guest.
    pub name: String,
}

/// Gives to guests under pressure, from what the pool has above `keep`, and returns what they need beyond that.
pub(super) fn to_pressed(
    guests: &[GuestAssessment<'_>],
    view: &BalanceView,
    keep: u64,
) -> (Vec<BalanceAction>, Option<UnmetDemand>) {
    let needs = |it: &&GuestAssessment<'_>| it.pressure.is_high() && it.range.grantable_bytes() > 0;
    let mut pressed: Vec<&GuestAssessment<'_>> = guests.iter().filter(needs).collect();
    pressed.sort_by(|a, b| {
        let by_class = b.weight().cmp(&a.weight());
        by_class.then(b.pressure.level.total_cmp(&a.pressure.level)).then(a.guest.key.cmp(&b.guest.key))
    });
    let mut spare = view.pool.available_bytes.saturating_sub(keep);
    let (mut actions, mut unmet) = (Vec::new(), None::<UnmetDemand>);
    for it in pressed {
        let wanted = it.range.after_giving(it.range.step_bytes) - it.guest.given_bytes;
        if wanted <= spare {
            spare -= wanted;
            actions.extend(it.resize(it.guest.given_bytes + wanted, || it.pressure.what.clone()));
        } else {
            let first = || UnmetDemand { bytes: 0, weight: it.weight(), name: it.guest.name.clone() };
            unmet.get_or_insert_with(first).bytes += wanted - spare;
            spare = 0;
        }
    }
    (actions, unmet)
}

/// Gives back what was taken, from what the pool has above its high mark: to the highest class first, and in it to the
/// guests with the smallest part of their whole. Guests that `actions` name already are left out.
pub(super) fn back(
    guests: &[GuestAssessment<'_>],
    view: &BalanceView,
    marks: &PoolWatermarks,
    actions: &[BalanceAction],
) -> Vec<BalanceAction> {
    let resized: BTreeSet<&str> = actions.iter().filter_map(BalanceAction::resized).collect();
    let is_open =
        |it: &&GuestAssessment<'_>| it.range.grantable_bytes() > 0 && !resized.contains(it.guest.key.as_str());
    let highest = guests.iter().filter(is_open).map(GuestAssessment::weight).max();
    let class: Vec<_> = guests.iter().filter(is_open).filter(|it| Some(it.weight()) == highest).collect();
    let least = class.iter().map(|it| it.given_part()).fold(f64::INFINITY, f64::min);
    let group: Vec<_> = class.into_iter().filter(|it| it.given_part() <= least + NEAR_LEAST).collect();
    let capacities: Vec<u64> = group.iter().map(|it| it.range.grantable_bytes().min(it.range.step_bytes)).collect();
    let parts = share_out(view.pool.available_bytes.saturating_sub(marks.high), &capacities);
    let reason = || format!("{} available: it gets back what was taken", Bytes::from(view.pool.available_bytes));
    let gives = group.iter().zip(parts).filter(|(_, part)| *part > 0);
    gives.filter_map(|(it, part)| it.resize(it.range.after_giving(part), reason)).collect()
}
