//! Bringing decisions within the limits.

use std::time::Duration;

use super::{PassHistory, PolicyDecision, PolicyLimits};
use crate::knobs::{Knob, KnobSettings};

impl PolicyLimits {
    /// Brings a decision within the limits, and adds what was changed to the arithmetic of its reason.
    ///
    /// * `run` is 0 or 1: unmerging everything is a person's decision.
    /// * The knobs that need everything unmerged and those of khugepaged are left alone.
    /// * A batch and its sleep keep ksmd within `max_cpu` at the cost per page and the length of sleeps seen so far,
    ///   also where the decision leaves one of them as it is. While the kernel's advisor is on, it sets `pages_to_scan`
    ///   itself.
    #[must_use]
    pub fn bound(&self, mut decision: PolicyDecision, history: &PassHistory, now: &KnobSettings) -> PolicyDecision {
        let wanted = decision.knobs.clone();
        let knobs = &mut decision.knobs;
        for knob in Knob::ALL.into_iter().filter(|knob| knob.needs_nothing_merged() || knob.is_of_khugepaged()) {
            knobs.remove(knob);
        }
        if knobs.get(Knob::Run).is_some_and(|run| run > 1) {
            knobs.set(Knob::Run, 0);
        }
        let then = |knobs: &KnobSettings, knob| knobs.get(knob).or(now.get(knob));
        let runs = then(knobs, Knob::Run) == Some(1);
        // Settings that are not named and within the limits stay unnamed.
        let mut hold = |knob, value: u64| {
            if knobs.get(knob).is_some() || runs && now.get(knob).is_some_and(|current| current != value) {
                knobs.set(knob, value);
            }
        };
        let named_or_now = |knob| wanted.get(knob).or(now.get(knob));
        let sleep = named_or_now(Knob::SleepMillisecs).unwrap_or(0);
        let sleep = sleep.clamp(self.shortest_sleep(history.ns_per_page()), u64::from(u32::MAX));
        hold(Knob::SleepMillisecs, sleep);
        if named_or_now(Knob::AdvisorMode) != Some(1) {
            let most = self.max_batch(history, Duration::from_millis(sleep));
            hold(Knob::PagesToScan, named_or_now(Knob::PagesToScan).unwrap_or(0).min(most));
        }
        if *knobs != wanted {
            let held =
                knobs.iter().filter(|(knob, value)| wanted.get(*knob) != Some(*value)).collect::<KnobSettings>();
            decision.reason = decision.reason.with_detail(format!("limits: {held}"));
        }
        decision
    }

    /// The shortest sleep in milliseconds: below a whole CPU, one that allows a batch of at least one
    /// page. An empty batch without a sleep would take a whole CPU for nothing.
    fn shortest_sleep(&self, ns_per_page: f64) -> u64 {
        let part = self.max_cpu.part();
        let for_one_page = match part {
            part if part >= 1.0 => 0,
            part => (ns_per_page.max(1.0) * (1.0 - part) / part / 1e6).ceil() as u64,
        };
        for_one_page.max(u64::from(self.min_sleep_milliseconds))
    }

    /// The most pages that a batch may have at the present cost of a visit when ksmd sleeps for `sleep` after it.
    pub fn max_batch(&self, history: &PassHistory, sleep: Duration) -> u64 {
        let part = self.max_cpu.part();
        let most = u64::from(self.max_pages_to_scan);
        if part >= 1.0 {
            return most;
        }
        // part = batch / (batch + sleep), solved for the batch.
        let sleep = sleep.saturating_add(history.oversleeps());
        let batch_ns = part * sleep.as_nanos() as f64 / (1.0 - part);
        ((batch_ns / history.ns_per_page().max(1.0)) as u64).min(most)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decide::{CpuShare, DecisionReason};

    fn decision(knobs: KnobSettings) -> PolicyDecision {
        PolicyDecision::new(knobs, DecisionReason::new("test", "why"), Duration::from_secs(1))
    }

    #[test]
    fn a_decision_within_the_limits_is_left_alone() {
        let wanted = decision(KnobSettings::none().with(Knob::PagesToScan, 100).with(Knob::SleepMillisecs, 20));
        let held = PolicyLimits::default().bound(wanted.clone(), &PassHistory::default(), &KnobSettings::none());
        assert_eq!(held, wanted);
    }

    #[test]
    fn a_limited_setting_is_named_in_the_reason() {
        let limits = PolicyLimits { max_pages_to_scan: 1000, ..PolicyLimits::default() };
        let held = limits.bound(
            decision(KnobSettings::none().with(Knob::PagesToScan, 5000).with(Knob::SleepMillisecs, 20)),
            &PassHistory::default(),
            &KnobSettings::none(),
        );
        assert_eq!(format!("{:#}", held.reason), "test: why (limits: pages_to_scan=1000)");
    }

    /// Returns the value of `knob` in force once `held` is written over `now`.
    fn in_force(held: &KnobSettings, now: &KnobSettings, knob: Knob) -> Option<u64> {
        held.get(knob).or(now.get(knob))
    }

    #[test]
    fn without_a_sleep_a_limit_still_holds_and_never_becomes_an_empty_batch() {
        let limits = PolicyLimits { max_cpu: CpuShare::new(0.2).unwrap(), ..PolicyLimits::default() };
        let now =
            KnobSettings::none().with(Knob::SleepMillisecs, 0).with(Knob::PagesToScan, 1000).with(Knob::Run, 0);
        for wanted in [
            KnobSettings::none().with(Knob::Run, 1),
            KnobSettings::none().with(Knob::Run, 1).with(Knob::PagesToScan, 1000).with(Knob::SleepMillisecs, 0),
        ] {
            let held = limits.bound(decision(wanted), &PassHistory::default(), &now).knobs;
            assert_eq!(held.to_string(), "pages_to_scan=62 sleep_millisecs=1 run=1");
        }
    }

    proptest! {
        #[test]
        fn no_policy_leaves_the_limits(
            settings in prop::collection::vec((0..Knob::ALL.len(), prop_oneof![0_u64..3, any::<u64>()]), 0..20),
            present in prop::collection::vec((0..Knob::ALL.len(), prop_oneof![0_u64..3, any::<u64>()]), 0..20),
            per_mille in 1_u32..=1000,
            most: u32,
            sleep_ms in 0_u32..10_000,
        ) {
            let limits = PolicyLimits {
                max_cpu: CpuShare::new(f64::from(per_mille) / 1000.0).unwrap(),
                max_pages_to_scan: most,
                min_sleep_milliseconds: sleep_ms,
            };
            let wanted: KnobSettings = settings.into_iter().map(|(i, value)| (Knob::ALL[i], value)).collect();
            let now: KnobSettings = present.into_iter().map(|(i, value)| (Knob::ALL[i], value)).collect();
            let history = PassHistory::default();
            let held = limits.bound(decision(wanted), &history, &now).knobs;
            prop_assert!(held.get(Knob::Run).is_none_or(|run| run <= 1));
            prop_assert!(held.iter().all(|(knob, _)| !knob.is_of_khugepaged()));
            prop_assert!(held.get(Knob::MergeAcrossNodes).is_none() && held.get(Knob::MaxPageSharing).is_none());
            prop_assert!(held.get(Knob::SleepMillisecs).is_none_or(|ms| ms >= u64::from(sleep_ms)));
            prop_assert!(held.get(Knob::PagesToScan).is_none_or(|pages| pages <= u64::from(most)
                || in_force(&held, &now, Knob::AdvisorMode) == Some(1)));
            let runs = in_force(&held, &now, Knob::Run) == Some(1);
            let advised = in_force(&held, &now, Knob::AdvisorMode) == Some(1);
            let known = (in_force(&held, &now, Knob::SleepMillisecs), in_force(&held, &now, Knob::PagesToScan));
            if let (true, false, (Some(sleep), Some(pages))) = (runs && per_mille < 1000, advised, known) {
                prop_assert!(sleep > 0, "ksmd would spin");
                let (sleep_ns, batch_ns) = (sleep as f64 * 1e6, pages as f64 * history.ns_per_page());
                prop_assert!(batch_ns / (batch_ns + sleep_ns) <= limits.max_cpu.part() + 1e-9);
            }
        }
    }
}
