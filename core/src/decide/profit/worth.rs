//! The cost model: the worth of each scan that may be started, which is its expected gain divided by its cost. From 1 on
//! it is worth starting.

use std::time::Duration;

use super::arrivals::ArrivalModel;
use super::beliefs::ScanBeliefs;
use super::config::ProfitConfig;
use super::constants::{IDLE_CPUS, SMALL_PART};
use super::guests::GuestChanges;
use super::model::ProfitModel;
use super::scan_reason::ScanReason;
use super::situation::HostSituation;
use super::state::ParkedPhase;
use crate::cpu_use::TICKS_PER_SECOND;

/// Returns the worth of two passes for new memory. If old memory is expensive to visit, arrivals share them.
pub fn of_burst(model: &ProfitModel, changes: GuestChanges, now: &HostSituation) -> f64 {
    let worth = model.growth.worth(changes, now.growth_bytes, now.held_bytes);
    if ArrivalModel::is_dear(now) && worth >= 1.0 { model.arrivals.worth(changes, now) } else { worth }
}

/// Returns the worth of a smart pass that frees KSM's metadata for guests that have ended. It saves no memory, so that
/// the budget of probes pays for it.
pub fn of_tidying(parked: &ParkedPhase, changes: GuestChanges, config: &ProfitConfig, now: &HostSituation) -> f64 {
    let gain = changes.ended_pages.saturating_mul(now.ksmd.page_size) as f64 / now.growth_bytes.max(1) as f64;
    let is_affordable =
        now.ksmd.at.saturating_sub(parked.since) >= config.time_for(now.smart_passes_seconds(1), 1.0);
    if is_affordable { gain } else { 0.0 }
}

/// Returns the worth of two visits of all memory for pages that have changed and are stable again.
pub fn of_revisit(model: &ProfitModel, now: &HostSituation) -> f64 {
    let beliefs = ScanBeliefs::from_samples(now, &model.experience);
    let gain = beliefs.recurring.gain() + beliefs.unknown.gain();
    gain / now.price_of_two_passes().max(now.growth_bytes as f64 * SMALL_PART)
}

/// Returns the worth of one more pass for pages that were changing, where no pages are sampled.
pub fn of_sustaining(model: &ProfitModel, now: &HostSituation) -> f64 {
    if now.has_page_samples() {
        return 0.0;
    }
    let price = (now.ksmd.clean_pass_seconds * now.price).max(now.ksmd.page_size as f64);
    ScanBeliefs::from_changing(now, &model.experience).unknown.gain() / price
}

/// Returns true if the scan for which ksmd was parked is due. A probe is due only where memory may have changed.
pub fn is_next_due(
    parked: &ParkedPhase,
    model: &ProfitModel,
    changes: GuestChanges,
    config: &ProfitConfig,
    now: &HostSituation,
) -> bool {
    let since = now.ksmd.at.saturating_sub(parked.since);
    let has_waited = model.unfinished.has_new(changes) && since >= config.retry_after(now.two_passes_seconds());
    let is_wanted = parked.next != ScanReason::Probe || has_waited || is_active(changes, since, now);
    is_wanted && now.ksmd.at >= parked.until
}

/// Returns true if a burst may visit old memory too. Even if all new memory merged, that would save no more than the
/// new memory.
pub fn clean_burst_pays(model: &ProfitModel, grown_bytes: u64, now: &HostSituation) -> bool {
    grown_bytes.saturating_add(model.unfinished.unmet_bytes()) as f64 >= now.price_of_two_passes()
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
