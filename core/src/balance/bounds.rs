//! The bounds that are applied to every plan, whichever policy made it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::config::BalanceConfig;
use super::resize_range::ResizeRange;
use super::{BalanceAction, BalancePlan, BalanceView, GuestView};

/// The bounds on plans, with the time of each guest's last resize.
#[derive(Debug, Clone, Default)]
pub struct PlanBounds {
    last: BTreeMap<String, Duration>,
}

impl PlanBounds {
    /// Brings a plan within the bounds, takes first. Actions that are not possible at all are left out.
    ///
    /// * Each guest stays within its [`ResizeRange`].
    /// * A guest is resized once in a plan and once in the cooldown.
    /// * A held guest is left alone, and a guest in trouble is only given memory.
    /// * The gives of a plan come from what the pool has above half its low mark.
    #[must_use]
    pub fn bound_plan(&mut self, mut plan: BalancePlan, view: &BalanceView, config: &BalanceConfig) -> BalancePlan {
        let guests: BTreeMap<&str, &GuestView> =
            view.guests.iter().map(|guest| (guest.key.as_str(), guest)).collect();
        self.last.retain(|key, _| guests.contains_key(key.as_str()));
        let marks = config.marks(&view.pool);
        let mut spare = view.pool.available_bytes.saturating_sub(marks.min);
        let mut seen = BTreeSet::new();
        let mut held = Vec::new();
        plan.actions.sort_by_key(|action| match action {
            BalanceAction::Ksm { .. } => 0,
            BalanceAction::Resize { key, to_bytes, .. } => {
                1 + u8::from(guests.get(key.as_str()).is_some_and(|guest| *to_bytes > guest.given_bytes))
            }
        });
        for action in plan.actions {
            let BalanceAction::Resize { key, to_bytes, reason, .. } = action else {
                held.push(action);
                continue;
            };
            let Some(guest) = guests.get(key.as_str()).filter(|guest| !guest.held) else { continue };
            if self.is_cooling(&key, view.now, config) || !seen.insert(key.clone()) {
                continue;
            }
            let range = ResizeRange::for_guest(guest, &view.pool, config);
            let mut to = range.bound(to_bytes);
            if to > guest.given_bytes {
                if to - guest.given_bytes > spare {
                    to = range.bound(guest.given_bytes + spare);
                }
                // A granule may be more than there is.
                if to - guest.given_bytes > spare {
                    continue;
                }
                spare -= to - guest.given_bytes;
            }
            if to != guest.given_bytes {
                self.last.insert(key.clone(), view.now);
                held.push(BalanceAction::Resize { key, from_bytes: guest.given_bytes, to_bytes: to, reason });
            }
        }
        plan.actions = held;
        plan
    }

    /// Records a resize that was not planned: an operator's.
    pub fn record_resize(&mut self, key: &str, now: Duration) {
        self.last.insert(key.to_owned(), now);
    }

    fn is_cooling(&self, key: &str, now: Duration, config: &BalanceConfig) -> bool {
        self.last.get(key).is_some_and(|&last| now.saturating_sub(last) < config.cooldown())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{MIB, guest, pool, view};
    use super::*;
    use crate::balance::{GuestClass, PoolView, ReportedFigures};
    use crate::decide::DecisionReason;

    fn plan(resizes: &[(&str, u64)]) -> BalancePlan {
        let action = |(key, to_bytes): &(&str, u64)| BalanceAction::Resize {
            key: (*key).to_owned(),
            from_bytes: 0,
            to_bytes: *to_bytes,
            reason: String::new(),
        };
        BalancePlan {
            actions: resizes.iter().map(action).collect(),
            reason: DecisionReason::new("test", "why"),
            check_after: Duration::from_secs(1),
        }
    }

    fn amounts(plan: &BalancePlan) -> Vec<(&str, u64, u64)> {
        let amounts = plan.actions.iter().map(|action| match action {
            BalanceAction::Resize { key, from_bytes, to_bytes, .. } => {
                (key.as_str(), *from_bytes / MIB, *to_bytes / MIB)
            }
            BalanceAction::Ksm { .. } => ("ksm", 0, 0),
        });
        amounts.collect()
    }

    #[test]
    fn a_large_change_becomes_a_step_and_the_next_waits_for_the_cooldown() {
        let config = BalanceConfig::default();
        let mut bounds = PlanBounds::default();
        let at = |second| view(second, pool(1000, 300), vec![guest("a", 1000, 900)]);
        let held = bounds.bound_plan(plan(&[("a", 0), ("a", 0), ("b", 0)]), &at(10), &config);
        assert_eq!(amounts(&held), [("a", 1000, 950)]);
        assert_eq!(amounts(&bounds.bound_plan(plan(&[("a", 0)]), &at(11), &config)), []);
        assert_eq!(amounts(&bounds.bound_plan(plan(&[("a", 0)]), &at(12), &config)), [("a", 1000, 950)]);
    }

    #[test]
    fn gives_come_from_what_the_pool_has() {
        let squeezed = |key: &str| {
            let mut it = guest(key, 1000, 10);
            it.given_bytes = 500 * MIB;
            it
        };
        let view = view(0, pool(1000, 110), vec![squeezed("a"), squeezed("b"), squeezed("c")]);
        let wanted = plan(&[("a", 600 * MIB), ("b", 600 * MIB), ("c", 600 * MIB)]);
        let held = PlanBounds::default().bound_plan(wanted, &view, &BalanceConfig::default());
        // Half the low mark is 50 MiB: 60 are there to be given, in steps of 50.
        assert_eq!(amounts(&held), [("a", 500, 550), ("b", 500, 510)]);
    }

    #[test]
    fn takes_come_before_gives() {
        let mut squeezed = guest("a", 1000, 10);
        squeezed.given_bytes = 500 * MIB;
        let view = view(0, pool(1000, 300), vec![squeezed, guest("b", 1000, 900)]);
        let held = PlanBounds::default().bound_plan(
            plan(&[("a", 510 * MIB), ("b", 990 * MIB)]),
            &view,
            &BalanceConfig::default(),
        );
        assert_eq!(amounts(&held), [("b", 1000, 990), ("a", 500, 510)]);
    }

    fn any_guest(key: usize) -> impl Strategy<Value = GuestView> {
        let bytes = || prop_oneof![0_u64..1 << 33, any::<u64>()];
        (bytes(), bytes(), prop::option::of(bytes()), bytes(), bytes(), 0_u64..1 << 22, any::<[bool; 4]>())
            .prop_map(
                move |(whole, given, available, floor, ceiling, step, [can_take, can_give, held, trouble])| {
                    let class = GuestClass { name: String::new(), weight: key as u32 % 3 };
                    GuestView {
                        given_bytes: given.min(whole),
                        resident_bytes: given,
                        inside: ReportedFigures { available_bytes: available, ..ReportedFigures::default() },
                        floor_bytes: floor,
                        ceiling_bytes: ceiling,
                        step_bytes: step,
                        can_take,
                        can_give,
                        held: held && key.is_multiple_of(4),
                        trouble: (trouble && key.is_multiple_of(3)).then(|| "trouble".to_owned()),
                        ..GuestView::whole(&key.to_string(), class, whole)
                    }
                },
            )
    }

    fn any_guests() -> impl Strategy<Value = Vec<GuestView>> {
        (0_usize..6)
            .prop_map(|n| (0..n).collect::<Vec<_>>())
            .prop_flat_map(|keys| keys.into_iter().map(any_guest).collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn no_plan_leaves_the_bounds(
            turns in prop::collection::vec(
                (any_guests(), prop::collection::vec((0_usize..7, any::<u64>()), 0..12), 0_u64..1 << 36, 0_u64..1 << 36, 0_u64..3000),
                1..8,
            ),
        ) {
            let config = BalanceConfig::default();
            let mut bounds = PlanBounds::default();
            let mut now = Duration::ZERO;
            let mut acted: BTreeMap<String, Duration> = BTreeMap::new();
            for (guests, wanted, size, available, millis) in turns {
                now += Duration::from_millis(millis);
                let pool = PoolView { size_bytes: size, available_bytes: available.min(size), ..PoolView::default() };
                let keys: Vec<(String, u64)> = wanted.iter().map(|(key, to)| (key.to_string(), *to)).collect();
                let wanted: Vec<(&str, u64)> = keys.iter().map(|(key, to)| (key.as_str(), *to)).collect();
                let view = BalanceView { now, pool, guests };
                acted.retain(|key, _| view.guests.iter().any(|guest| guest.key == *key));
                let held = bounds.bound_plan(plan(&wanted), &view, &config);
                let mut given = 0_u64;
                let mut has_given = false;
                for action in &held.actions {
                    let BalanceAction::Resize { key, from_bytes, to_bytes, .. } = action else { continue };
                    let guest = view.guests.iter().find(|guest| guest.key == *key).unwrap();
                    let range = ResizeRange::for_guest(guest, &pool, &config);
                    prop_assert!(!guest.held);
                    prop_assert_eq!(*from_bytes, guest.given_bytes);
                    prop_assert_ne!(from_bytes, to_bytes);
                    prop_assert!(from_bytes.abs_diff(*to_bytes) <= range.step_bytes, "more than a step");
                    if to_bytes < from_bytes {
                        prop_assert!(!has_given, "a take after a give");
                        prop_assert!(guest.can_take && guest.trouble.is_none());
                        prop_assert!(*to_bytes >= guest.floor_bytes.min(*from_bytes), "below the operator's floor");
                        let available = guest.inside.available_bytes.unwrap();
                        let left = available.saturating_sub(from_bytes - to_bytes);
                        prop_assert!(left >= config.reserve_bytes(guest), "into the guest's reserve");
                    } else {
                        has_given = true;
                        given += to_bytes - from_bytes;
                        prop_assert!(guest.can_give);
                        prop_assert!(*to_bytes <= guest.ceiling_bytes.min(guest.whole_bytes), "above the ceiling");
                    }
                    let before = acted.insert(key.clone(), now);
                    prop_assert!(before.is_none_or(|then| now - then >= config.cooldown()), "within the cooldown");
                }
                prop_assert!(given <= pool.available_bytes.saturating_sub(config.marks(&pool).min), "from nothing");
            }
        }
    }
}
