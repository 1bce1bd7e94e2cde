//! Pauses of merging: ksmd stays parked and the policy waits. Guests, domains, balance and alarms are watched as ever.

use std::time::Duration;

use ksmith_core::controller::TickOutcome;
use ksmith_core::decide::{DecisionReason, PausePolicy, Policy, PolicyDecision};
use ksmith_core::knobs::Knob;
use ksmith_core::sample::Sample;
use ksmith_record::times;
use tracing::info;

use super::{Daemon, DaemonHost};

/// Refusal of scans during a pause.
pub(super) const PAUSED: &str = "merging is paused: `ksmith resume` ends the pause; then ask again";

/// A pause, and the policy that waits for its end.
#[derive(Debug)]
pub(super) struct MergingPause {
    waiting: Box<dyn Policy>,
    shown: PausePolicy,
    /// True if ksmd was running before. The policy that waits may leave `run` alone.
    was_running: bool,
}

impl<H: DaemonHost> Daemon<H> {
    /// Begins a pause of this time, or one until it is resumed. A pause in progress gets the new end. Returns a sentence.
    pub(super) fn begin_pause(&mut self, time: Option<Duration>) -> String {
        self.give_up_scan();
        let sample = self.controller.host_mut().sample_now(false);
        let text = self.describe_end(time);
        let end = time.map(|time| sample.at.saturating_add(time));
        let shown = PausePolicy::new(self.controller.policy_name(), end, text.clone());
        let replaced = self.controller.replace(Box::new(shown.clone()), self.config.limits.clone());
        let pause = match self.pause.take() {
            Some(before) => MergingPause { shown, ..before },
            None => MergingPause { waiting: replaced, shown, was_running: self.has_run_before(&sample) },
        };
        self.pause = Some(pause);
        // Users' scans that wait are refused.
        self.serve_users();
        info!("merging is paused {text}");
        format!("merging is paused {text}")
    }

    /// Returns true if ksmd is running, or was before a scan or a pause that has not restored that yet.
    fn has_run_before(&mut self, sample: &Sample) -> bool {
        let unrestored = self.unrestored.as_mut().and_then(|settings| settings.remove(Knob::Run));
        let run = unrestored.or(Knob::Run.current(&sample.ksm));
        std::mem::take(&mut self.starts_ksmd) || run == Some(1)
    }

    /// `until 2026-11-23 20:15:30, or until "ksmith resume"`
    fn describe_end(&self, time: Option<Duration>) -> String {
        let milliseconds = time.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        let end = milliseconds.map(|time| self.environment.day_clock().saturating_add(time));
        match end {
            Some(end) => format!("until {}, or until `ksmith resume`", times::local(end)),
            None => "until `ksmith resume`".to_owned(),
        }
    }

    /// Ends the pause. Returns false if there is none.
    pub(super) fn end_pause(&mut self) -> bool {
        let Some(pause) = self.pause.take() else { return false };
        drop(self.controller.replace(pause.waiting, self.config.limits.clone()));
        self.starts_ksmd = pause.was_running;
        info!("the pause has ended; policy {} decides again", self.controller.policy_name());
        true
    }

    /// Ends the pause once its time is over, at a turn.
    pub(super) fn finish_pause(&mut self, tick: &TickOutcome) {
        // After a scan `run` is as the scan found it, which is parked.
        if self.pause.is_none() && self.scan.is_none() && tick.applied.is_complete() {
            self.starts_ksmd = false;
        }
        if self.pause.as_ref().is_some_and(|pause| pause.shown.has_ended(tick.sample.at)) {
            self.end_pause();
        }
    }

    /// Replaces the policy that waits for the end of the pause. Returns it if there is no pause.
    pub(super) fn replace_paused(&mut self, policy: Box<dyn Policy>) -> Option<Box<dyn Policy>> {
        let Some(pause) = &mut self.pause else { return Some(policy) };
        pause.shown = pause.shown.clone().with_waiting(policy.name());
        pause.waiting = policy;
        drop(self.controller.replace(Box::new(pause.shown.clone()), self.config.limits.clone()));
        None
    }
}

/// Returns a decision that starts ksmd unless it says otherwise, as for a policy that leaves `run` alone.
pub(super) fn with_ksmd_started(mut decision: PolicyDecision, sample: &Sample) -> PolicyDecision {
    let is_known = Knob::Run.current(&sample.ksm).is_some();
    if is_known && decision.knobs.get(Knob::Run).is_none() {
        decision.knobs.set(Knob::Run, 1);
    }
    decision
}

/// Returns the reason of a pause; `None` for any other decision. It stays when the guard of the domains parks ksmd too.
pub(super) fn reason_to_keep(decision: &PolicyDecision) -> Option<DecisionReason> {
    (decision.reason.state == PausePolicy::STATE).then(|| decision.reason.clone())
}
