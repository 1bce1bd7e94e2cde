//! A policy that knows when guests come, as a bound for those that do not.

use std::time::Duration;

use ksmith_core::decide::{DecisionReason, OnDemandPolicy, Policy, PolicyDecision, PolicyView};
use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::scan::{ScanCoverage, ScanJob};
use ksmith_core::sim::{GuestPlan, SimFleet};

/// The time between two looks at the clock.
const LOOK: Duration = Duration::from_millis(100);

/// Makes two smart passes each time `batch` guests have come, at once and with a whole CPU, and nothing else.
///
/// A page merges on its second visit, and ksmd comes to new guests last, after it has passed all old memory. So no
/// policy merges an arrival sooner, or for less CPU time, unless arrivals share their passes.
#[derive(Debug, Clone)]
pub struct ForeseenPolicy {
    /// The times at which guests come, in order.
    arrivals: Vec<Duration>,
    batch: usize,
    /// Arrivals for which passes have begun.
    begun: usize,
    scan: Option<OnDemandPolicy>,
}

impl ForeseenPolicy {
    /// The policy for a fleet's story.
    pub fn from_fleet(fleet: &SimFleet, batch: usize) -> Self {
        let mut arrivals: Vec<_> = fleet.plans().iter().map(GuestPlan::starts).collect();
        arrivals.sort_unstable();
        Self { arrivals, batch: batch.max(1), begun: 0, scan: None }
    }

    fn come(&self, now: Duration) -> usize {
        self.arrivals.partition_point(|&at| at < now)
    }
}

impl Policy for ForeseenPolicy {
    fn name(&self) -> &'static str {
        "foreseen"
    }

    fn decide(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
        let come = self.come(view.now.at);
        let waits_for_all = come < self.arrivals.len() && come - self.begun < self.batch;
        if self.scan.is_none() && come > self.begun && !waits_for_all {
            self.begun = come;
            self.scan =
                Some(OnDemandPolicy::new(ScanJob { coverage: ScanCoverage::Smart, ..ScanJob::all_pages(2) }));
        }
        let scanning = self.scan.as_mut().map(|scan| scan.decide(view));
        match scanning
            .filter(|decision| ![OnDemandPolicy::DONE, OnDemandPolicy::STALLED].contains(&decision.reason.state))
        {
            Some(decision) => decision,
            None => {
                self.scan = None;
                let reason = DecisionReason::new("parked", format!("{come} guests have come"));
                PolicyDecision::new(KnobSettings::none().with(Knob::Run, 0), reason, LOOK)
            }
        }
    }
}
