//! The bounds that every decision is held to, whichever policy took it.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use super::{Decision, History};
use crate::knobs::{Knob, Knobs};

/// A part of one CPU: 0.2 is 20 %. In the configuration a text in per cent, `"20%"`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "String")]
pub struct Share(f64);

impl TryFrom<String> for Share {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let percent = text.trim_end().strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        percent
            .and_then(|percent| Self::new(percent / 100.0))
            .ok_or_else(|| format!("{text:?} is not a percentage over 0 % and up to 100 %, such as \"20%\""))
    }
}

impl Share {
    /// One whole CPU.
    pub const WHOLE: Self = Self(1.0);

    /// The share `part` of one CPU. `None` unless `part` is over 0 and at most 1.
    pub fn new(part: f64) -> Option<Self> {
        (part > 0.0 && part <= 1.0).then_some(Self(part))
    }

    /// The share as a number from 0 to 1.
    pub fn part(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} %", self.0 * 100.0)
    }
}

/// What no policy may exceed: the `[limits]` table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The most CPU that ksmd may use.
    pub max_cpu: Share,
    /// The most pages in one batch. A batch can't be interrupted: writing `run` waits for its end.
    pub max_pages_to_scan: u32,
    /// The shortest time that ksmd sleeps between batches. 0 lets it take a whole CPU.
    pub min_sleep_milliseconds: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_cpu: Share::WHOLE, max_pages_to_scan: u32::MAX, min_sleep_milliseconds: 0 }
    }
}

impl Limits {
    /// Brings a decision within the limits. What was changed is added to its reason.
    ///
    /// Whatever the policy wanted: `run` is 0 or 1 (unmerging everything is a person's decision), the two
    /// knobs that need everything unmerged are left alone, and a batch and its sleep keep ksmd within `max_cpu`
    /// at the cost per page seen so far.
    #[must_use]
    pub fn bound(&self, mut decision: Decision, history: &History, now: &Knobs) -> Decision {
        let wanted = decision.knobs.clone();
        let knobs = &mut decision.knobs;
        for knob in Knob::ALL.into_iter().filter(|knob| knob.needs_nothing_merged()) {
            knobs.remove(knob);
        }
        if knobs.get(Knob::Run).is_some_and(|run| run > 1) {
            knobs.set(Knob::Run, 0);
        }
        let min_sleep = u64::from(self.min_sleep_milliseconds);
        if let Some(sleep) = knobs.get(Knob::SleepMillisecs) {
            knobs.set(Knob::SleepMillisecs, sleep.clamp(min_sleep, u64::from(u32::MAX)));
        }
        if let Some(pages) = knobs.get(Knob::PagesToScan) {
            let sleep = knobs.get(Knob::SleepMillisecs).or(now.get(Knob::SleepMillisecs)).unwrap_or(0);
            let most = self.max_batch(history.ns_per_page(), Duration::from_millis(sleep));
            knobs.set(Knob::PagesToScan, pages.min(most));
        }
        if *knobs != wanted {
            let held = knobs.iter().filter(|(knob, value)| wanted.get(*knob) != Some(*value)).collect::<Knobs>();
            decision.reason.text.push_str(&format!(" (limits: {held})"));
        }
        decision
    }

    /// The most pages of `ns_per_page` that a batch may have when ksmd sleeps for `sleep` after it.
    pub fn max_batch(&self, ns_per_page: f64, sleep: Duration) -> u64 {
        let part = self.max_cpu.part();
        let most = u64::from(self.max_pages_to_scan);
        if part >= 1.0 {
            return most;
        }
        // part = batch / (batch + sleep), solved for the batch.
        let batch_ns = part * sleep.as_nanos() as f64 / (1.0 - part);
        ((batch_ns / ns_per_page.max(1.0)) as u64).min(most)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decide::Reason;

    fn decision(knobs: Knobs) -> Decision {
        Decision { knobs, reason: Reason::new("test", "why"), check_after: Duration::from_secs(1) }
    }

    #[test]
    fn a_decision_within_the_limits_is_left_alone() {
        let wanted = decision(Knobs::none().with(Knob::PagesToScan, 100).with(Knob::SleepMillisecs, 20));
        let held = Limits::default().bound(wanted.clone(), &History::default(), &Knobs::none());
        assert_eq!(held, wanted);
    }

    #[test]
    fn what_was_held_back_is_said() {
        let limits = Limits { max_pages_to_scan: 1000, ..Limits::default() };
        let held = limits.bound(
            decision(Knobs::none().with(Knob::PagesToScan, 5000)),
            &History::default(),
            &Knobs::none(),
        );
        assert_eq!(held.reason.text, "why (limits: pages_to_scan=1000)");
    }

    proptest! {
        #[test]
        fn no_policy_leaves_the_limits(
            settings in prop::collection::vec((0_usize..13, any::<u64>()), 0..20),
            percent in 1_u32..=100,
            most: u32,
            sleep_ms in 0_u32..10_000,
            now_sleep in any::<u64>(),
        ) {
            let limits = Limits {
                max_cpu: Share::new(f64::from(percent) / 100.0).unwrap(),
                max_pages_to_scan: most,
                min_sleep_milliseconds: sleep_ms,
            };
            let wanted: Knobs = settings.into_iter().map(|(i, value)| (Knob::ALL[i], value)).collect();
            let history = History::default();
            let now = Knobs::none().with(Knob::SleepMillisecs, now_sleep);
            let held = limits.bound(decision(wanted), &history, &now).knobs;
            prop_assert!(held.get(Knob::Run).is_none_or(|run| run <= 1));
            prop_assert!(held.get(Knob::MergeAcrossNodes).is_none() && held.get(Knob::MaxPageSharing).is_none());
            prop_assert!(held.get(Knob::SleepMillisecs).is_none_or(|ms| ms >= u64::from(sleep_ms)));
            if let Some(pages) = held.get(Knob::PagesToScan) {
                prop_assert!(pages <= u64::from(most));
                let sleep_ns = held.get(Knob::SleepMillisecs).unwrap_or(now_sleep) as f64 * 1e6;
                let batch_ns = pages as f64 * history.ns_per_page();
                if percent < 100 && pages > 0 {
                    prop_assert!(batch_ns / (batch_ns + sleep_ns) <= limits.max_cpu.part() + 1e-9);
                }
            }
        }
    }
}
