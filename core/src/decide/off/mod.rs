//! `off`: keeps ksmd stopped. Merged pages stay merged, and the daemon goes on reporting, guarding and balancing.

use std::time::Duration;

use serde::Deserialize;

use super::{DecisionReason, Made, Policy, PolicyDecision, PolicySettings, PolicyView, ReadFile};
use crate::knobs::{Knob, KnobSettings};

/// The interval between two checks of the setting when nothing happens.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The table `[policy.off]`. It has no keys.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OffConfig {}

impl PolicySettings for OffConfig {
    const HELP: &'static str = "Keep ksmd stopped";
    const COMPETITORS: &'static [(&'static str, &'static str)] = &[("off", "")];

    fn policy(&self, _: ReadFile<'_>) -> Made {
        Ok(Box::new(OffPolicy))
    }
}

/// Keeps ksmd stopped.
#[derive(Debug, Clone, Copy)]
pub struct OffPolicy;

impl Policy for OffPolicy {
    fn name(&self) -> &'static str {
        "off"
    }

    fn decide(&mut self, _: &PolicyView<'_>) -> PolicyDecision {
        let reason = DecisionReason::new("parked", "ksmd stays stopped, as configured");
        PolicyDecision::new(KnobSettings::none().with(Knob::Run, 0), reason, LOOK_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::PolicyTestHost;
    use crate::kernel::Ksm;

    #[test]
    fn ksmd_is_stopped_and_stays_stopped() {
        let mut host = PolicyTestHost::linux_6_18();
        host.apply(&KnobSettings::none().with(Knob::Run, 1));
        for _ in 0..2 {
            assert_eq!(host.decide(&mut OffPolicy).knobs.to_string(), "run=0");
            assert_eq!(host.sample.ksm.run.get(), Some(0));
        }
        host.sample.ksm = Ksm::default();
        assert_eq!(host.decide(&mut OffPolicy).reason.state, "no-ksm");
    }
}
