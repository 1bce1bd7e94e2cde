//! `squeeze`: pull out of each guest what it does not use, until it squeals; then give back a little and rest.
//!
//! The pull is small and shrinks as the guest begins to suffer, as senpai's does; the answer to a squeal is quick and as
//! large as the squeal is loud. So a guest ends up with its working set, and is asked again after a rest that doubles
//! each time. While the pool is short `no-swap` goes before. A dearer guest is listened to more closely: it squeals for
//! a fraction of what a cheap one must bear.

use std::collections::BTreeMap;
use std::time::Duration;

use super::config::{BalanceConfig, part_of};
use super::no_swap::NoSwap;
use super::room::Room;
use super::squeal::Squeal;
use super::{Action, BalancePolicy, GuestView, Plan, View};
use crate::decide::Reason;

/// The loudest squeal gets so many steps back at once; the bounds hold it to theirs.
const LOUDEST: f64 = 8.0;

/// Half of a squeal: a guest that rests gets more until it suffers less than this.
const UNEASY: f64 = 0.5;

/// A guest that was pulled at so often without a squeal has found another working set: its rests are short again.
const UNTROUBLED: u32 = 10;

/// `squeeze`.
#[derive(Debug, Clone)]
pub struct Squeeze {
    config: BalanceConfig,
    first: NoSwap,
    paces: BTreeMap<String, Pace>,
}

/// How it goes with one guest.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// When it is pulled at again.
    next: Duration,
    /// How long its next rest is.
    rest: Duration,
    /// Pulls since the last squeal.
    pulls: u32,
}

impl Squeeze {
    /// Goes by this configuration.
    pub fn new(config: BalanceConfig) -> Self {
        Self { first: NoSwap::keeping(config.clone()), config, paces: BTreeMap::new() }
    }

    fn one(&mut self, guest: &GuestView, view: &View, least_weight: u32) -> Option<Action> {
        let squeeze = &self.config.squeeze;
        let now = view.now;
        let room = Room::of(guest, &view.pool, &self.config);
        let squeal = Squeal::of(guest, &self.config);
        // A guest of ten times the weight squeals at about a third of what the cheapest bears.
        let dearness = (f64::from(guest.class.weight.max(1)) / f64::from(least_weight.max(1))).sqrt();
        let level = squeal.level * dearness;
        let rest = Duration::from_secs_f64(squeeze.rest_seconds);
        let pace = self.paces.entry(guest.key.clone()).or_insert(Pace { next: now, rest, pulls: 0 });
        let step = part_of(guest.whole_bytes, squeeze.step_percent);
        if level >= 1.0 {
            if guest.taken_bytes() == 0 || room.wanting_bytes() == 0 {
                // What it suffers from is not the squeezing.
                pace.next = now + pace.rest;
                return None;
            }
            if pace.pulls > 0 || now >= pace.next {
                pace.next = now + pace.rest;
                pace.rest = (pace.rest * 2).min(Duration::from_secs_f64(squeeze.longest_rest_seconds));
                pace.pulls = 0;
            }
            let to_bytes = room.after_giving((step as f64 * level.min(LOUDEST)) as u64);
            return resize(guest, to_bytes, format!("{}: it gets some back and rests", squeal.what));
        }
        if now < pace.next {
            // What it was given back was not enough for it to be at ease.
            let is_uneasy = level >= UNEASY && guest.taken_bytes() > 0 && pace.pulls == 0;
            let to_bytes = if is_uneasy { room.after_giving(step) } else { guest.given_bytes };
            return resize(guest, to_bytes, format!("{}: it gets a little more while it rests", squeal.what));
        }
        if room.giveable_bytes() == 0 {
            return None;
        }
        pace.next = now + Duration::from_secs_f64(squeeze.interval_seconds);
        pace.pulls += 1;
        if pace.pulls >= UNTROUBLED {
            pace.rest = rest;
        }
        let to_bytes = room.after_taking((step as f64 * (1.0 - level).powi(2)) as u64);
        resize(guest, to_bytes, "it has not squealed yet".to_owned())
    }
}

fn resize(guest: &GuestView, to_bytes: u64, reason: String) -> Option<Action> {
    let (key, from_bytes) = (guest.key.clone(), guest.given_bytes);
    (to_bytes != from_bytes).then_some(Action::Resize { key, from_bytes, to_bytes, reason })
}

fn is_named(actions: &[Action], wanted: &str) -> bool {
    actions.iter().any(|action| matches!(action, Action::Resize { key, .. } if key == wanted))
}

impl BalancePolicy for Squeeze {
    fn name(&self) -> &'static str {
        "squeeze"
    }

    fn decide(&mut self, view: &View) -> Plan {
        let mut plan = self.first.decide(view);
        self.paces.retain(|key, _| view.guests.iter().any(|guest| guest.key == *key));
        if matches!(plan.reason.state, "short" | "urgent") {
            return plan;
        }
        // The relief of a squeal is this policy's own, and quicker.
        let own = |action: &Action| matches!(action, Action::Resize { from_bytes, to_bytes, .. } if to_bytes > from_bytes);
        plan.actions.retain(|action| !own(action));
        let least = view.guests.iter().map(|guest| guest.class.weight).min().unwrap_or(1);
        let (mut pulls, mut gives) = (0, 0);
        for guest in &view.guests {
            if is_named(&plan.actions, &guest.key) {
                continue;
            }
            if let Some(action) = self.one(guest, view, least) {
                let is_pull =
                    matches!(&action, Action::Resize { from_bytes, to_bytes, .. } if to_bytes < from_bytes);
                if is_pull {
                    pulls += 1
                } else {
                    gives += 1
                }
                plan.actions.push(action);
            }
        }
        let interval = Duration::from_secs_f64(self.config.squeeze.interval_seconds);
        plan.check_after =
            plan.check_after.min(interval).min(if gives > 0 { Duration::from_secs(1) } else { interval / 2 });
        if pulls + gives > 0 {
            plan.reason = Reason::new(
                "squeezing",
                format!("pulling at {pulls} guests, giving back to {gives}; {}", plan.reason.text),
            );
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MIB, guest, of_class, pool, view};
    use super::*;

    fn by(plan: &Plan, wanted: &str) -> Option<i64> {
        plan.actions.iter().find_map(|action| match action {
            Action::Resize { key, from_bytes, to_bytes, .. } if key == wanted => {
                Some((*to_bytes as i64 - *from_bytes as i64) / MIB as i64)
            }
            _ => None,
        })
    }

    fn squeezed(key: &str, psi: f64) -> GuestView {
        let mut it = guest(key, 1000, 300);
        it.given_bytes = 600 * MIB;
        it.inside.psi_some_percent = Some(psi);
        it
    }

    #[test]
    fn the_pull_shrinks_as_suffering_begins_and_a_squeal_is_answered_by_its_loudness() {
        let of = |psi| {
            let plan = Squeeze::new(BalanceConfig::default()).decide(&view(
                0,
                pool(10_000, 9000),
                vec![squeezed("a", psi)],
            ));
            by(&plan, "a")
        };
        assert_eq!(of(0.0), Some(-10));
        assert_eq!(of(0.5), Some(-2));
        assert_eq!(of(1.0), Some(10));
        assert_eq!(of(3.0), Some(30));
        assert_eq!(of(90.0), Some(50), "a step is a step");
    }

    #[test]
    fn a_guest_that_squealed_rests_and_each_rest_is_longer() {
        let mut policy = Squeeze::new(BalanceConfig::default());
        let mut at = |second, psi| {
            by(&policy.decide(&view(second, pool(10_000, 9000), vec![squeezed("a", psi)])), "a")
                .unwrap_or(0)
                .signum()
        };
        assert_eq!([at(0, 0.0), at(3, 0.0), at(6, 0.0)], [-1, 0, -1]);
        assert_eq!([at(7, 2.0), at(8, 0.0), at(66, 0.0), at(67, 0.0)], [1, 0, 0, -1]);
        assert_eq!([at(68, 2.0), at(130, 0.0), at(187, 0.0), at(188, 0.0)], [1, 0, 0, -1]);
    }

    #[test]
    fn a_dear_guest_is_listened_to_more_closely() {
        let gold = of_class(squeezed("gold", 0.5), "gold", 100);
        let bronze = of_class(squeezed("bronze", 0.5), "bronze", 1);
        let plan = Squeeze::new(BalanceConfig::default()).decide(&view(0, pool(10_000, 9000), vec![bronze, gold]));
        assert!(by(&plan, "gold").unwrap() > 0 && by(&plan, "bronze").unwrap() < 0);
    }

    #[test]
    fn a_guest_with_all_its_memory_that_suffers_is_left_alone() {
        let mut it = guest("a", 1000, 300);
        it.inside.major_faults_per_second = Some(500.0);
        let plan = Squeeze::new(BalanceConfig::default()).decide(&view(0, pool(10_000, 9000), vec![it]));
        assert_eq!(by(&plan, "a"), None);
    }

    #[test]
    fn while_the_pool_is_short_nothing_is_squeezed_for_its_own_sake() {
        let gold = of_class(guest("gold", 1000, 900), "gold", 100);
        let plan = Squeeze::new(BalanceConfig::default()).decide(&view(
            0,
            pool(1000, 50),
            vec![gold, guest("silver", 1000, 900)],
        ));
        assert_eq!((plan.reason.state, by(&plan, "gold")), ("short", None));
    }
}
