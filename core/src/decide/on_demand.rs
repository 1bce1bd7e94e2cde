//! `ksmith scan`: so many clean passes now, and no more.

use std::time::Duration;

use super::duty::{self, Duty};
use super::round::Round;
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
}

impl OnDemand {
    /// The state of its reason once the passes are made.
    pub const DONE: &str = "done";

    /// `passes` clean passes, as fast as the limits allow.
    pub fn new(passes: u64) -> Self {
        Self { passes, round: None, duty: Duty::default(), is_done: false }
    }
}

impl Policy for OnDemand {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn decide(&mut self, view: &View<'_>) -> Decision {
        let round = *self.round.get_or_insert_with(|| Round::begin(self.passes, true, 0, view.now));
        let outcome = round.outcome(view);
        self.is_done |= round.is_done(view.now);
        if self.is_done {
            return Decision {
                knobs: Knobs::none().with(Knob::Run, 0),
                reason: Reason::new(Self::DONE, outcome.so_far()),
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
