//! `no-swap`: keep the pool above its low mark, and give back what guests need when there is plenty.
//!
//! * Below the low mark memory is taken until the pool is half way to the high mark. The class with the least weight
//!   gives first; a class with more weight gives only when all others below it are at their floors. Within a class the
//!   guests without memory pressure give first, in proportion to what they can give.
//! * A guest under memory pressure gets memory from what the pool has above its low mark, in the order of class and
//!   pressure. Where that is not enough, idle guests of the same or a lower class give it.
//! * Above the high mark, and after `calm_seconds`, all guests get back what was taken, the highest class first.
//!   Meanwhile guests with a far larger part of their memory give to those that wait: the host can't tell that a guest
//!   has freed memory which it once used.

mod assessed;
mod give;
mod take;

use std::time::Duration;

use self::assessed::GuestAssessment;
use super::config::{BalanceConfig, PoolWatermarks};
use super::forecast::{MergeForecast, MergeOutlook};
use super::resize_range::is_urgent;
use super::{BalancePlan, BalancePolicy, BalanceView};
use crate::decide::DecisionReason;
use crate::units::Bytes;

/// The interval between two views while memory moves.
const SOON: Duration = Duration::from_secs(1);
/// The interval between two views while memory may move soon.
const WATCHFUL: Duration = Duration::from_secs(2);
/// The interval between two views while the pool has plenty.
const CALM: Duration = Duration::from_secs(10);

/// The time that a step under way may take before a higher class is asked.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same while the pool is below half its low mark.
const URGENT_PATIENCE: Duration = Duration::from_millis(300);

/// The rate of writes to swap, in bytes per second, from which on the pool counts as swapping.
const SWAPPING: f64 = 64.0 * 1024.0;

/// The balance policy `no-swap`.
#[derive(Debug, Clone)]
pub struct NoSwapPolicy {
    config: BalanceConfig,
    forecast: MergeForecast,
    /// True while memory is being taken: from below the low mark up to the mark `enough`.
    is_taking: bool,
    /// The last time at which the pool was short.
    last_short: Option<Duration>,
    /// True if memory goes back to guests that are under no pressure.
    gives_back: bool,
}

impl NoSwapPolicy {
    /// Creates the policy with this configuration.
    pub fn new(config: BalanceConfig) -> Self {
        let forecast = MergeForecast::default();
        Self { config, forecast, is_taking: false, last_short: None, gives_back: true }
    }

    /// Creates a policy that gives memory back only to guests under pressure.
    pub(super) fn keeping(config: BalanceConfig) -> Self {
        Self { gives_back: false, ..Self::new(config) }
    }

    /// Returns the amount to take and the reason; `None` if the pool is not short.
    fn shortage(
        &mut self,
        view: &BalanceView,
        marks: &PoolWatermarks,
        outlook: &MergeOutlook,
    ) -> Option<(u64, String)> {
        let pool = &view.pool;
        let low = marks.low.max(outlook.needed_bytes);
        let swap_rate = pool.swap_out_bytes_per_second.filter(|rate| *rate > SWAPPING);
        // A kernel that swaps although there is plenty does so for reasons of its own.
        let is_short = pool.available_bytes < low || swap_rate.is_some() && pool.available_bytes < marks.high;
        let target = marks.enough.max(low);
        self.is_taking = is_short || self.is_taking && pool.available_bytes < target;
        if !self.is_taking {
            return None;
        }
        self.last_short = Some(view.now);
        let least = if swap_rate.is_some() { marks.low } else { 0 };
        let missing = target.saturating_sub(pool.available_bytes).max(least);
        let why = match (&outlook.why, swap_rate) {
            (Some(why), _) if outlook.needed_bytes > marks.low => why.clone(),
            (_, Some(rate)) => format!("the pool swaps {}/s", Bytes(rate as i128)),
            _ => format!(
                "{} of {} available, taking up to {}",
                Bytes::from(pool.available_bytes),
                Bytes::from(pool.size_bytes),
                Bytes::from(target)
            ),
        };
        Some((missing, why))
    }

    /// Returns true if the pool has not been short for `calm_seconds`.
    fn is_calm(&self, now: Duration) -> bool {
        let calm = |last: Duration| now.saturating_sub(last).as_secs_f64() >= self.config.calm_seconds;
        self.last_short.is_none_or(calm)
    }

    /// Makes the plan while the pool is short.
    fn relieve_pool(
        view: &BalanceView,
        guests: &[GuestAssessment<'_>],
        marks: &PoolWatermarks,
        (missing, why): (u64, String),
    ) -> BalancePlan {
        let is_urgent = is_urgent(&view.pool, marks);
        let (state, patience) = if is_urgent { ("urgent", URGENT_PATIENCE) } else { ("short", PATIENCE) };
        let (mut actions, is_awaited) = take::for_pool(guests, missing, &why, patience);
        let takes = !actions.is_empty();
        // A guest that was squeezed too far gets memory even now. The rest is not asked for: taking goes on anyway.
        let (gives, _) = give::to_pressed(guests, view, marks.min);
        actions.extend(gives);
        let text = if takes || is_awaited { why } else { format!("{why}; no guest has anything to spare") };
        BalancePlan { actions, reason: DecisionReason::new(state, text), check_after: SOON }
    }

    /// Makes the plan while the pool is not short.
    fn distribute(
        &self,
        view: &BalanceView,
        guests: &[GuestAssessment<'_>],
        marks: &PoolWatermarks,
    ) -> BalancePlan {
        let available = Bytes::from(view.pool.available_bytes);
        let plan = |actions, state, text, check_after| BalancePlan {
            actions,
            reason: DecisionReason::new(state, text),
            check_after,
        };
        let (mut actions, unmet) = give::to_pressed(guests, view, marks.low);
        if let Some(unmet) = unmet {
            actions.extend(take::from_idle(guests, &unmet, &self.config));
        }
        let relieves = !actions.is_empty();
        let may_give_back = self.gives_back && self.is_calm(view.now);
        let gives_back = if may_give_back && view.pool.available_bytes > marks.high {
            give::back(guests, view, marks, &actions)
        } else {
            Vec::new()
        };
        if may_give_back && !relieves && gives_back.is_empty() {
            let evens_out = take::from_better_off(guests);
            if !evens_out.is_empty() {
                let text = format!("{available} available, and guests wait for what was taken");
                return plan(evens_out, "evening-out", text, WATCHFUL);
            }
        }
        let (low, high) = (Bytes::from(marks.low), Bytes::from(marks.high));
        let (state, text, check_after) = if relieves {
            ("relieving", format!("{available} available, and a guest needs more"), SOON)
        } else if !gives_back.is_empty() {
            ("giving-back", format!("{available} available, above the high mark {high}"), WATCHFUL)
        } else if view.pool.available_bytes < marks.high {
            ("watching", format!("{available} available, between the marks {low} and {high}"), WATCHFUL)
        } else {
            ("plenty", format!("{available} available"), CALM)
        };
        actions.extend(gives_back);
        plan(actions, state, text, check_after)
    }
}

impl BalancePolicy for NoSwapPolicy {
    fn name(&self) -> &'static str {
        "no-swap"
    }

    fn decide(&mut self, view: &BalanceView) -> BalancePlan {
        let marks = self.config.marks(&view.pool);
        let outlook = self.forecast.assess(view, &self.config, &marks);
        let shortage = self.shortage(view, &marks, &outlook);
        let guests: Vec<GuestAssessment<'_>> =
            view.guests.iter().map(|guest| GuestAssessment::new(guest, &view.pool, &self.config)).collect();
        let mut plan = match shortage {
            Some(shortage) => Self::relieve_pool(view, &guests, &marks, shortage),
            None => self.distribute(view, &guests, &marks),
        };
        plan.actions.splice(0..0, outlook.actions);
        plan
    }
}

#[cfg(test)]
mod tests;
