//! The least CPU time of ksmd in which what comes to a fleet's host can merge.

use std::time::Duration;

use ksmith_core::sim::{SimCosts, SimFleet};

/// The least work of ksmd for guests that come, if all that was there before is merged.
///
/// ```text
/// cpu = batches * 2 * (old pages, in a smart pass) + new pages * (first visit + second visit) + freed pages
/// ```
///
/// A page merges on its second visit, ksmd comes to new pages after the old ones, and a smart pass skips old unmerged
/// pages eight times in nine. Arrivals of one batch share their two passes. Not in it: the visits that `smart_scan`
/// makes to a page at the ages 2, 3, 5, 8 and 13, merging again what guests rewrite or grow, batches of ksmd, and
/// samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuBound {
    /// Guests that come in the time looked at.
    pub arrivals: u64,
    /// The time looked at.
    span: Duration,
    /// CPU time of a smart pass over all old memory, in nanoseconds.
    smart_pass_ns: f64,
    /// CPU time of the visits to new pages, and of freeing those of guests that leave, in nanoseconds.
    pages_ns: f64,
}

impl CpuBound {
    /// The bound for a fleet from `from` to its end.
    pub fn from_fleet(fleet: &SimFleet, costs: &SimCosts, from: Duration) -> Self {
        let plans = fleet.plans();
        let pages = |is_meant: &dyn Fn(Duration, Option<Duration>) -> bool| {
            let meant = plans.iter().filter(|plan| is_meant(plan.starts(), plan.stops()));
            meant.fold((0_u64, 0.0), |(count, sum), plan| (count + 1, sum + plan.pages() as f64))
        };
        let (_, old) = pages(&|starts, stops| starts < from && stops.is_none_or(|stops| stops > from));
        let (arrivals, new) = pages(&|starts, _| starts >= from && starts < fleet.duration);
        let (_, gone) = pages(&|_, stops| stops.is_some_and(|stops| stops >= from && stops < fleet.duration));
        let equal = fleet.common + fleet.image + fleet.booting + fleet.growing;
        let rest = 1.0 - equal - fleet.zero;
        let ns = |cost: u64| cost as f64;
        let old_unmerged = ns(costs.skip) * 8.0 / 9.0 + ns(costs.unshared) / 9.0;
        let second = equal * ns(costs.merge) + fleet.zero * ns(costs.zero) + rest * ns(costs.unshared);
        Self {
            arrivals,
            span: fleet.duration.saturating_sub(from),
            smart_pass_ns: old * (equal * ns(costs.merged) + fleet.zero * ns(costs.walk) + rest * old_unmerged)
                + ns(costs.pass),
            pages_ns: new * (ns(costs.checksum) + second) + gone * ns(costs.free),
        }
    }

    /// The least part of a CPU, with so many batches of two smart passes. Over 1 it can't be done.
    pub fn cpu_share(&self, batches: f64) -> f64 {
        (batches * 2.0 * self.smart_pass_ns + self.pages_ns) / self.span.as_nanos().max(1) as f64
    }
}
