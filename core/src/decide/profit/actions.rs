//! The scans that may be started while ksmd is parked, each with its gain and its price, and the choice among them.

use std::time::Duration;

use super::arrivals::ArrivalModel;
use super::beliefs::{ClassBelief, ScanBeliefs};
use super::constants::{IDLE_CPUS, TICKS_PER_SECOND};
use super::guests::GuestChanges;
use super::scan_reason::ScanReason;
use super::situation::HostSituation;
use super::{ParkedPhase, ProfitPolicy};

/// A scan that may be started.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ScanAction {
    reason: ScanReason,
    /// Expected gain divided by cost. From 1 on it is worth starting.
    worth: f64,
}

impl ProfitPolicy {
    /// The first scan that is worth its price. They are in the order of how surely that is known: new memory comes
    /// before what page samples show. By the greatest worth instead, the hour of a fleet costs more
    /// (docs/measurements/2026-11-sim.md).
    pub(super) fn choose(
        &self,
        parked: &ParkedPhase,
        changes: GuestChanges,
        now: &HostSituation,
    ) -> Option<ScanReason> {
        let actions = [
            self.burst(changes, now),
            self.tidy(parked, changes, now),
            self.revisit(now),
            self.next(parked, changes, now),
        ];
        actions.into_iter().find(|action| action.worth >= 1.0).map(|action| action.reason)
    }

    /// Returns the optimistic gain while exploration is paid off, and the expected gain otherwise.
    pub(super) fn at_best(&self, belief: ClassBelief) -> f64 {
        if self.exploration.is_settled() { belief.most() } else { belief.gain() }
    }

    /// Two passes for new memory. If old memory is expensive to visit, arrivals share them.
    fn burst(&self, changes: GuestChanges, now: &HostSituation) -> ScanAction {
        let worth = self.growth.worth(changes, now.growth_bytes, now.held_bytes);
        let worth =
            if ArrivalModel::is_dear(now) && worth >= 1.0 { self.arrivals.worth(changes, now) } else { worth };
        ScanAction { reason: ScanReason::Burst, worth }
    }

    /// A clean pass for what new guests lack after their smart passes, and old memory may have. Later they lack also
    /// what they have written since.
    fn meet(&self, now: &HostSituation) -> ScanAction {
        let unmet = self.arrivals.unmet(&self.guests, now);
        let gain = self.at_best(unmet);
        let price = (now.ksmd.clean_pass_seconds * now.price).max(now.growth_bytes as f64);
        ScanAction { reason: ScanReason::Meet, worth: gain / price }
    }

    /// A smart pass that frees KSM's metadata for guests that have ended. It saves no memory, so that the budget pays
    /// for it.
    fn tidy(&self, parked: &ParkedPhase, changes: GuestChanges, now: &HostSituation) -> ScanAction {
        let gain = changes.ended_pages.saturating_mul(now.ksmd.page_size) as f64 / now.growth_bytes.max(1) as f64;
        let is_affordable =
            now.ksmd.at.saturating_sub(parked.since) >= self.config.time_for(now.smart_passes_seconds(1), 1.0);
        ScanAction { reason: ScanReason::Tidy, worth: if is_affordable { gain } else { 0.0 } }
    }

    /// Two visits of all memory for pages that have changed and are stable again.
    fn revisit(&self, now: &HostSituation) -> ScanAction {
        let beliefs = ScanBeliefs::of_samples(now, &self.experience);
        let gain = self.at_best(beliefs.recurring) + self.at_best(beliefs.unknown);
        let price = now.price_of_two_passes().max(now.growth_bytes as f64 * now.constants.small_part);
        ScanAction { reason: ScanReason::Revisit, worth: gain / price }
    }

    /// Returns true if the clean pass for what new guests lack is worth its price.
    pub(super) fn meeting_pays(&self, now: &HostSituation) -> bool {
        self.meet(now).worth >= 1.0
    }

    /// Returns true if old memory was skipped that is cheap to visit, and sketches do not say that nothing was missed.
    /// It is visited then, unless they say so a little later.
    pub(super) fn may_be_unmet(&self, grown_bytes: u64, now: &HostSituation) -> bool {
        !ArrivalModel::is_dear(now)
            && !self.arrivals.knows_unmet()
            && self.unfinished.unmet_bytes() > 0
            && self.clean_burst_pays(grown_bytes, now)
    }

    /// The scan that the last one has left to be done, or a probe.
    fn next(&self, parked: &ParkedPhase, changes: GuestChanges, now: &HostSituation) -> ScanAction {
        let since = now.ksmd.at.saturating_sub(parked.since);
        let has_waited =
            self.unfinished.has_new(changes) && since >= self.config.retry_after(now.two_passes_seconds());
        let is_due = parked.next != ScanReason::Probe || has_waited || is_active(changes, since, now);
        let worth = f64::from(u8::from(is_due && now.ksmd.at >= parked.until));
        ScanAction { reason: parked.next, worth }
    }
}

/// Returns true if the guests may have changed memory worth a visit since ksmd was `parked`. With page samples: if
/// changed pages are stable. Without: if the guests computed, or obtained or copied pages.
fn is_active(changes: GuestChanges, parked: Duration, now: &HostSituation) -> bool {
    if let Some(samples) = now.page_samples {
        return samples.stable > 0;
    }
    let computed = changes.cpu_ticks as f64 / TICKS_PER_SECOND >= IDLE_CPUS * parked.as_secs_f64();
    computed || changes.faults.saturating_mul(now.ksmd.page_size) >= now.growth_bytes
}
