//! `steady`: scans at one rate, so that a pass takes a given time, as VMware ESX does by default.
//!
//! Source: `Mem.ShareScanTime` of ESX; the fixed rate of Waldspurger, "Memory Resource Management in VMware ESX Server" (OSDI 2002),
//! section 4.

use std::time::Duration;

use serde::Deserialize;

use super::{Decision, Made, Policy, ReadFile, Reason, Settings, View};
use crate::knobs::{Knob, Knobs};

/// The sleep between two batches: the kernel's default.
const SLEEP_MS: u64 = 20;

/// How often the rate follows the memory.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The table `[policy.steady]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SteadyConfig {
    /// How long a pass should take.
    pub pass_minutes: u32,
}

impl Default for SteadyConfig {
    fn default() -> Self {
        Self { pass_minutes: 60 }
    }
}

impl Settings for SteadyConfig {
    const HELP: &'static str = "Scan at one rate, for passes of an hour";
    const COMPETITORS: &'static [(&'static str, &'static str)] = &[("steady", "")];

    fn policy(&self, _: ReadFile<'_>) -> Made {
        Ok(Box::new(Steady(self.clone())))
    }
}

/// Scans at one rate.
#[derive(Debug, Clone)]
pub struct Steady(SteadyConfig);

impl Policy for Steady {
    fn name(&self) -> &'static str {
        "steady"
    }

    fn decide(&mut self, view: &View<'_>) -> Decision {
        let milliseconds = u64::from(self.0.pass_minutes.max(1)) * 60_000;
        let batch = (view.now.ksm.tracked_pages().saturating_mul(SLEEP_MS) / milliseconds).max(1);
        let knobs =
            Knobs::none().with(Knob::PagesToScan, batch).with(Knob::SleepMillisecs, SLEEP_MS).with(Knob::Run, 1);
        let text = format!("{batch} pages each {SLEEP_MS} ms, for passes of {} min", self.0.pass_minutes);
        Decision { knobs, reason: Reason::new("steady", text), check_after: LOOK_EVERY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::Host;
    use crate::reading::Reading;

    #[test]
    fn the_rate_follows_the_memory() {
        let mut host = Host::linux_6_18();
        host.sample.ksm.pages_unshared = Reading::Value(18_000_000);
        let decision = host.decide(&mut Steady(SteadyConfig::default()));
        assert_eq!(decision.reason.to_string(), "steady: 100 pages each 20 ms, for passes of 60 min");
    }
}
