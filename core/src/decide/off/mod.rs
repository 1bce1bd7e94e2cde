//! `off`: keeps ksmd stopped. Merged pages stay merged, and the daemon goes on reporting, guarding and balancing.

use std::time::Duration;

use serde::Deserialize;

use super::{Decision, Made, Policy, ReadFile, Reason, Settings, View};
use crate::knobs::{Knob, Knobs};

/// The interval between two checks of the setting when nothing happens.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The table `[policy.off]`. It has no keys.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OffConfig {}

impl Settings for OffConfig {
    const HELP: &'static str = "Keep ksmd stopped";
    const COMPETITORS: &'static [(&'static str, &'static str)] = &[("off", "")];

    fn policy(&self, _: ReadFile<'_>) -> Made {
        Ok(Box::new(Off))
    }
}

/// Keeps ksmd stopped.
#[derive(Debug, Clone, Copy)]
pub struct Off;

impl Policy for Off {
    fn name(&self) -> &'static str {
        "off"
    }

    fn decide(&mut self, _: &View<'_>) -> Decision {
        let reason = Reason::new("parked", "ksmd is to stay stopped");
        Decision::new(Knobs::none().with(Knob::Run, 0), reason, LOOK_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::Host;
    use crate::kernel::Ksm;

    #[test]
    fn ksmd_is_stopped_and_stays_stopped() {
        let mut host = Host::linux_6_18();
        host.apply(&Knobs::none().with(Knob::Run, 1));
        for _ in 0..2 {
            assert_eq!(host.decide(&mut Off).knobs.to_string(), "run=0");
            assert_eq!(host.sample.ksm.run.get(), Some(0));
        }
        host.sample.ksm = Ksm::default();
        assert_eq!(host.decide(&mut Off).reason.state, "no-ksm");
    }
}
