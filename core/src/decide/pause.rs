//! `paused`: keeps ksmd parked for an administrator, while the policy in charge waits.

use std::time::Duration;

use super::{DecisionReason, Policy, PolicyDecision, PolicyView};
use crate::knobs::{Knob, KnobSettings};

/// The longest interval between two decisions during a pause.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Keeps ksmd parked, under the name of the policy that waits.
#[derive(Debug, Clone)]
pub struct PausePolicy {
    waiting: &'static str,
    end: Option<Duration>,
    text: String,
}

impl PausePolicy {
    /// The state of its reason.
    pub const STATE: &str = "paused";

    /// Creates the policy of a pause. `waiting` is the name of the policy that waits, `end` is a time by the clock of the
    /// samples, and `text` becomes the sentence of the reason.
    pub fn new(waiting: &'static str, end: Option<Duration>, text: impl Into<String>) -> Self {
        Self { waiting, end, text: text.into() }
    }

    /// Returns true once the pause has ended, at a time by the clock of the samples.
    pub fn has_ended(&self, now: Duration) -> bool {
        self.end.is_some_and(|end| now >= end)
    }

    /// Returns the remaining time of the pause at a time by the clock of the samples; `None` if it has no end.
    pub fn time_left(&self, now: Duration) -> Option<Duration> {
        self.end.map(|end| end.saturating_sub(now))
    }

    /// Returns the same pause for another policy that waits.
    #[must_use]
    pub fn with_waiting(self, waiting: &'static str) -> Self {
        Self { waiting, ..self }
    }
}

impl Policy for PausePolicy {
    fn name(&self) -> &'static str {
        self.waiting
    }

    fn decide(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
        let left = self.time_left(view.now.at).unwrap_or(LOOK_EVERY);
        let reason = DecisionReason::new(Self::STATE, self.text.clone());
        PolicyDecision::new(KnobSettings::none().with(Knob::Run, 0), reason, left.min(LOOK_EVERY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::PolicyTestHost;

    #[test]
    fn a_pause_parks_ksmd_and_looks_again_at_its_end() {
        let mut host = PolicyTestHost::linux_6_18();
        host.apply(&KnobSettings::none().with(Knob::Run, 1));
        let end = host.sample.at + Duration::from_secs(90);
        let mut policy = PausePolicy::new("profit", Some(end), "until noon");
        let decision = host.decide(&mut policy);
        assert_eq!((policy.name(), decision.reason.to_string()), ("profit", "paused: until noon".to_owned()));
        assert_eq!((decision.knobs.to_string(), decision.check_after), ("run=0".to_owned(), LOOK_EVERY));
        assert!(!policy.has_ended(end - Duration::from_millis(1)) && policy.has_ended(end));
        host.sample.at = end - Duration::from_secs(2);
        let left = host.decide(&mut policy).check_after;
        assert!(left <= Duration::from_secs(2), "{left:?}");
    }

    #[test]
    fn a_pause_without_an_end_lasts() {
        let mut host = PolicyTestHost::linux_6_18();
        let mut policy = PausePolicy::new("profit", None, "until noon").with_waiting("score");
        assert_eq!((policy.name(), host.decide(&mut policy).check_after), ("score", LOOK_EVERY));
        assert!(!policy.has_ended(Duration::MAX));
    }
}
