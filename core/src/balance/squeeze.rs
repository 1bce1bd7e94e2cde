//! `squeeze`: take from each guest what it does not use, until it comes under memory pressure; then give back and
//! pause.
//!
//! With `p = pressure * sqrt(weight / least weight)` and `step = whole * squeeze.step_percent`:
//!
//! ```text
//! p >= 1                give step * min(p, 8), and pause; each pause is twice the one before
//! p >= 1/2 in a pause   give step
//! p <  1                take step * (1 - p)^2, each interval_seconds
//! ```
//!
//! So a guest ends up with its working set, and a guest of a higher class stops the squeeze at less pressure. The small
//! take and the quick proportional answer are those of Meta's senpai. While the pool is short the plan is that of
//! `no-swap`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::config::{BalanceConfig, part_of};
use super::no_swap::NoSwapPolicy;
use super::pressure::MemoryPressure;
use super::resize_range::ResizeRange;
use super::{BalanceAction, BalancePlan, BalancePolicy, BalanceView, GuestView};
use crate::decide::DecisionReason;
use crate::units::CountedNoun;

/// The most steps that pressure brings back at once, before the bounds.
const MOST_STEPS: f64 = 8.0;

/// The pressure up to which a guest gets more during a pause.
const UNEASY: f64 = 0.5;

/// The number of takes in a row without pressure after which pauses are short again: the working set has changed.
const UNTROUBLED: u32 = 10;

/// The balance policy `squeeze`.
#[derive(Debug, Clone)]
pub struct SqueezePolicy {
    config: BalanceConfig,
    first: NoSwapPolicy,
    paces: BTreeMap<String, SqueezePace>,
}

/// The pace of takes from one guest.
#[derive(Debug, Clone, Copy)]
struct SqueezePace {
    /// When the next take is due.
    next: Duration,
    /// The length of the next pause.
    pause: Duration,
    /// Takes since the last pressure.
    takes: u32,
}

impl SqueezePolicy {
    /// Creates the policy with this configuration.
    pub fn new(config: BalanceConfig) -> Self {
        Self { first: NoSwapPolicy::keeping(config.clone()), config, paces: BTreeMap::new() }
    }

    fn plan_guest(&mut self, guest: &GuestView, view: &BalanceView, least_weight: u32) -> Option<BalanceAction> {
        let squeeze = &self.config.squeeze;
        let now = view.now;
        let range = ResizeRange::for_guest(guest, &view.pool, &self.config);
        let pressure = MemoryPressure::for_guest(guest, &self.config);
        let rank = (f64::from(guest.class.weight.max(1)) / f64::from(least_weight.max(1))).sqrt();
        let level = pressure.level * rank;
        let first_pause = Duration::from_secs_f64(squeeze.rest_seconds);
        let new = SqueezePace { next: now, pause: first_pause, takes: 0 };
        let pace = self.paces.entry(guest.key.clone()).or_insert(new);
        let step = part_of(guest.whole_bytes, squeeze.step_percent);
        if level >= 1.0 {
            if guest.taken_bytes() == 0 || range.grantable_bytes() == 0 {
                // Its pressure does not come from the squeeze.
                pace.next = now + pace.pause;
                return None;
            }
            if pace.takes > 0 || now >= pace.next {
                pace.next = now + pace.pause;
                pace.pause = (pace.pause * 2).min(Duration::from_secs_f64(squeeze.longest_rest_seconds));
                pace.takes = 0;
            }
            let to_bytes = range.after_giving((step as f64 * level.min(MOST_STEPS)) as u64);
            return BalanceAction::resize(guest, to_bytes, || {
                format!("{}: it gets some back and rests", pressure.what)
            });
        }
        if now < pace.next {
            let is_uneasy = level >= UNEASY && guest.taken_bytes() > 0 && pace.takes == 0;
            let to_bytes = if is_uneasy { range.after_giving(step) } else { guest.given_bytes };
            return BalanceAction::resize(guest, to_bytes, || {
                format!("{}: it gets more while it rests", pressure.what)
            });
        }
        if range.reclaimable_bytes() == 0 {
            return None;
        }
        pace.next = now + Duration::from_secs_f64(squeeze.interval_seconds);
        pace.takes += 1;
        if pace.takes >= UNTROUBLED {
            pace.pause = first_pause;
        }
        let to_bytes = range.after_taking((step as f64 * (1.0 - level).powi(2)) as u64);
        BalanceAction::resize(guest, to_bytes, || "it is under no memory pressure".to_owned())
    }
}

impl BalancePolicy for SqueezePolicy {
    fn name(&self) -> &'static str {
        "squeeze"
    }

    fn decide(&mut self, view: &BalanceView) -> BalancePlan {
        let mut plan = self.first.decide(view);
        let there: BTreeSet<&str> = view.guests.iter().map(|guest| guest.key.as_str()).collect();
        self.paces.retain(|key, _| there.contains(key.as_str()));
        if matches!(plan.reason.state, "short" | "urgent") {
            return plan;
        }
        // This policy's own gives are quicker.
        plan.actions.retain(|action| !action.is_give());
        let least = view.guests.iter().map(|guest| guest.class.weight).min().unwrap_or(1);
        let resized: BTreeSet<String> =
            plan.actions.iter().filter_map(BalanceAction::resized).map(str::to_owned).collect();
        let (mut takes, mut gives) = (0, 0);
        for guest in &view.guests {
            if resized.contains(&guest.key) {
                continue;
            }
            if let Some(action) = self.plan_guest(guest, view, least) {
                *(if action.is_give() { &mut gives } else { &mut takes }) += 1;
                plan.actions.push(action);
            }
        }
        let interval = Duration::from_secs_f64(self.config.squeeze.interval_seconds);
        let soon = if gives > 0 { Duration::from_secs(1) } else { interval / 2 };
        plan.check_after = plan.check_after.min(soon).min(interval);
        if takes + gives > 0 {
            let takes = CountedNoun { count: takes, noun: "guest" };
            let text = format!("taking from {takes}, giving back to {gives}; {}", plan.reason.text);
            plan.reason = DecisionReason::new("squeezing", text);
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MIB, guest, of_class, pool, view};
    use super::*;

    fn by(plan: &BalancePlan, wanted: &str) -> Option<i64> {
        plan.actions.iter().find_map(|action| match action {
            BalanceAction::Resize { key, from_bytes, to_bytes, .. } if key == wanted => {
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
    fn takes_shrink_as_pressure_begins_and_gives_are_in_proportion_to_it() {
        let of = |psi| {
            let plan = SqueezePolicy::new(BalanceConfig::default()).decide(&view(
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
    fn after_pressure_a_guest_rests_and_each_rest_is_longer() {
        let mut policy = SqueezePolicy::new(BalanceConfig::default());
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
    fn a_guest_of_a_higher_class_needs_less_pressure() {
        let gold = of_class(squeezed("gold", 0.5), "gold", 100);
        let bronze = of_class(squeezed("bronze", 0.5), "bronze", 1);
        let plan =
            SqueezePolicy::new(BalanceConfig::default()).decide(&view(0, pool(10_000, 9000), vec![bronze, gold]));
        assert!(by(&plan, "gold").unwrap() > 0 && by(&plan, "bronze").unwrap() < 0);
    }

    #[test]
    fn a_guest_with_all_its_memory_and_pressure_is_left_alone() {
        let mut it = guest("a", 1000, 300);
        it.inside.major_faults_per_second = Some(500.0);
        let plan = SqueezePolicy::new(BalanceConfig::default()).decide(&view(0, pool(10_000, 9000), vec![it]));
        assert_eq!(by(&plan, "a"), None);
    }

    #[test]
    fn while_the_pool_is_short_nothing_is_squeezed() {
        let gold = of_class(guest("gold", 1000, 900), "gold", 100);
        let plan = SqueezePolicy::new(BalanceConfig::default()).decide(&view(
            0,
            pool(1000, 50),
            vec![gold, guest("silver", 1000, 900)],
        ));
        assert_eq!((plan.reason.state, by(&plan, "gold")), ("short", None));
    }
}
