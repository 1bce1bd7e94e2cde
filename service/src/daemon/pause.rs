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

/// The difference from which on the end of a pause is shown anew: the wall clock was set. The clocks are read some
/// milliseconds apart.
const CLOCK_TOLERANCE_MS: u64 = 2000;

/// A pause, and the policy that waits for its end.
#[derive(Debug)]
pub(super) struct MergingPause {
    waiting: Box<dyn Policy>,
    shown: PausePolicy,
    /// The end as shown, by the wall clock in milliseconds since 1970.
    shown_end: Option<i64>,
    /// True if ksmd was running before. The policy that waits may leave `run` alone.
    was_running: bool,
}

impl MergingPause {
    /// Returns the end to show by the wall clock, in milliseconds since 1970, as of the last [`reason`](Self::reason).
    pub(super) fn day_end(&self) -> Option<i64> {
        self.shown_end
    }

    /// Returns the reason to show. It stays the same unless the wall clock was set. `day_clock` was read right after
    /// this sample, whose own clock alone decides: an administrator may set the other.
    pub(super) fn reason(&mut self, sample: &Sample, day_clock: i64) -> DecisionReason {
        let now = sample.ended_at();
        let end = self.shown.time_left(now).map(|left| add_time(day_clock, left));
        let end = end.filter(|_| !self.shown.has_ended(now));
        let was_set = |(end, shown): (i64, i64)| end.abs_diff(shown) > CLOCK_TOLERANCE_MS;
        if end.zip(self.shown_end).is_some_and(was_set) {
            self.shown_end = end;
        }
        DecisionReason::new(PausePolicy::STATE, describe_end(self.shown_end))
    }
}

/// Returns the wall clock's milliseconds after `time`.
fn add_time(day_clock: i64, time: Duration) -> i64 {
    day_clock.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

/// `until 2026-11-23 20:15:30, or until "ksmith resume"`
fn describe_end(end: Option<i64>) -> String {
    match end {
        Some(end) => format!("until {}, or until `ksmith resume`", times::local(end)),
        None => "until `ksmith resume`".to_owned(),
    }
}

impl<H: DaemonHost> Daemon<H> {
    /// Begins a pause of this time, or one until it is resumed. A pause in progress gets the new end. Returns a sentence.
    pub(super) fn begin_pause(&mut self, time: Option<Duration>) -> String {
        self.give_up_scan();
        let sample = self.controller.host_mut().sample_now(false);
        let shown_end = time.map(|time| add_time(self.environment.day_clock(), time));
        let text = describe_end(shown_end);
        let end = time.map(|time| sample.ended_at().saturating_add(time));
        let shown = PausePolicy::new(self.controller.policy_name(), end, text.clone());
        let replaced = self.controller.replace(Box::new(shown.clone()), self.config.limits.clone());
        let pause = match self.pause.take() {
            Some(before) => MergingPause { shown, shown_end, ..before },
            None => {
                let was_running = self.has_run_before(&sample);
                MergingPause { waiting: replaced, shown, shown_end, was_running }
            }
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
