//! `ksmith scan`: so many clean passes now, and no more.

use std::time::Duration;

use super::duty::{self, Duty};
use super::round::{Boundary, Round, Sight};
use super::{Decision, Policy, Reason, View};
use crate::knobs::{Knob, Knobs};

/// Sends ksmd over all mergeable memory a given number of times, then parks it.
///
/// With two passes everything that is equal and at rest is merged, since a page merges on the second visit that
/// finds it unchanged.
#[derive(Debug, Clone)]
pub struct OnDemand {
    passes: u64,
    round: Option<Round>,
    duty: Duty,
    is_done: bool,
    is_stalled: bool,
}

impl OnDemand {
    /// The state of its reason once the passes are made.
    pub const DONE: &str = "done";

    /// The state of its reason when ksmd does not get on, because nobody offers memory or something holds it.
    pub const STALLED: &str = "stalled";

    /// `passes` clean passes, as fast as the limits allow.
    pub fn new(passes: u64) -> Self {
        Self { passes, round: None, duty: Duty::default(), is_done: false, is_stalled: false }
    }
}

impl Policy for OnDemand {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn decide(&mut self, view: &View<'_>) -> Decision {
        let round = self.round.get_or_insert_with(|| {
            Round::begin(self.passes, Sight::Clean, Boundary::holds(None, view.now), 0, view.now)
        });
        round.look(view.now);
        let outcome = round.outcome(view);
        self.is_done |= round.is_done(view.now);
        self.is_stalled |= round.is_stalled(view.now);
        let round = *round;
        if self.is_done {
            return Decision {
                knobs: Knobs::none().with(Knob::Run, 0),
                reason: Reason::new(Self::DONE, outcome.so_far()),
                check_after: Duration::from_secs(1),
            };
        }
        if self.is_stalled {
            return Decision {
                knobs: Knobs::none().with(Knob::Run, 0),
                reason: Reason::new(Self::STALLED, "ksmd does not get on: has any process memory for it?"),
                check_after: Duration::from_secs(1),
            };
        }
        let share = duty::share(view.limits.max_cpu.part(), view);
        let knobs = self.duty.knobs(share, view.now, view.history, view.limits);
        Decision {
            knobs: knobs.with(Knob::AdvisorMode, 0).with(Knob::SmartScan, 0).with(Knob::Run, 1),
            reason: Reason::new("scan", outcome.so_far()),
            check_after: round.check_after(share, view),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Host;
    use super::*;
    use crate::reading::Reading;

    #[test]
    fn a_scan_of_nothing_ends() {
        for mut host in [Host::linux_6_18(), Host::linux_6_1()] {
            let mut policy = OnDemand::new(2);
            assert_eq!(host.decide(&mut policy).knobs.get(Knob::Run), Some(1));
            assert_eq!(host.after(4).decide(&mut policy).reason.state, "scan");
            let decision = host.after(4).decide(&mut policy);
            assert_eq!((decision.reason.state, decision.knobs.get(Knob::Run)), (OnDemand::STALLED, Some(0)));
            host.pass(1, 10);
            assert_eq!(host.decide(&mut policy).reason.state, OnDemand::STALLED, "ended is ended");
        }
    }

    #[test]
    fn a_slow_scan_goes_on() {
        let mut host = Host::linux_6_18();
        let mut policy = OnDemand::new(2);
        for visited in 1..20 {
            host.sample.ksm.pages_scanned = Reading::Value(visited);
            assert_eq!(host.after(4).decide(&mut policy).reason.state, "scan");
        }
        // The operator lets ksmd sleep for ten seconds between batches.
        host.limits.min_sleep_milliseconds = 10_000;
        assert_eq!(host.after(1).decide(&mut policy).reason.state, "scan");
        assert_eq!(host.after(15).decide(&mut policy).reason.state, "scan");
        assert_eq!(host.after(15).decide(&mut policy).reason.state, OnDemand::STALLED);

        let mut host = Host::linux_6_1();
        let mut policy = OnDemand::new(2);
        for _ in 0..20 {
            assert_eq!(host.after(4).ksmd_cpu_ms(1).decide(&mut policy).reason.state, "scan");
        }
    }
}
