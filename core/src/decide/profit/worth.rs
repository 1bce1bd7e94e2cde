//! The cost model: the price of ksmd's CPU time, and the worth of each scan that may be started, which is its expected
//! gain divided by its cost. From 1 on it is worth starting. What the settings say of either is used here.

use std::time::Duration;

use super::arrivals::ArrivalModel;
use super::beliefs::ScanBeliefs;
use super::config::ProfitConfig;
use super::constants::{GROWTH_PART, IDLE_CPUS, MOST_GROWTH_PART, SMALL_PART};
use super::growth::GrowthModel;
use super::guests::GuestChanges;
use super::model::ProfitModel;
use super::scan_reason::ScanReason;
use super::situation::HostSituation;
use super::state::ParkedPhase;
use crate::cpu_use::TICKS_PER_SECOND;

/// Returns the situation with what the settings make of it: the price of ksmd's CPU time, and the growth that is worth a
/// burst, which is `growth_mib` or an eighth of the held bytes, whichever is less.
pub fn price_scans(now: HostSituation, config: &ProfitConfig) -> HostSituation {
    let most = (config.growth_mib * f64::from(1 << 20)) as u64;
    let growth_bytes = most.min((now.held_bytes as f64 * GROWTH_PART) as u64).max(now.ksmd.page_size);
    HostSituation { growth_bytes, price: price(config, now.pressure), ..now }
}

/// The price in bytes newly saved per CPU-second: `price + pressure * (pressed_price - price)`.
fn price(config: &ProfitConfig, pressure: f64) -> f64 {
    let mib = config.price_mib_per_cpu_second
        + pressure * (config.pressed_price_mib_per_cpu_second - config.price_mib_per_cpu_second);
    mib * f64::from(1 << 20)
}

/// Bytes that two clean passes must save to pay.
fn price_of_two_passes(now: &HostSituation) -> f64 {
    now.two_passes_seconds() * now.price
}

/// Returns the worth of a burst for new memory, whatever its passes cost. Half of all memory is worth a burst in any case.
pub fn of_growth(growth: GrowthModel, changes: GuestChanges, now: &HostSituation) -> f64 {
    let is_much = changes.grown_bytes >= now.growth_bytes
        && changes.grown_bytes as f64 >= now.held_bytes as f64 * MOST_GROWTH_PART;
    (growth.merging_bytes(changes) / now.growth_bytes.max(1) as f64).max(f64::from(u8::from(is_much)))
}

/// Returns the worth of two passes for new memory. If old memory is expensive to visit, arrivals share them.
pub fn of_burst(model: &ProfitModel, changes: GuestChanges, now: &HostSituation) -> f64 {
    let worth = of_growth(model.growth, changes, now);
    if ArrivalModel::is_dear(now) && worth >= 1.0 { model.arrivals.worth(changes, now) } else { worth }
}

/// Returns the worth of a smart pass that frees KSM's metadata for guests that have ended. It saves no memory, so that
/// the budget of probes pays for it.
pub fn of_tidying(parked: &ParkedPhase, changes: GuestChanges, config: &ProfitConfig, now: &HostSituation) -> f64 {
    let gain = changes.ended_pages.saturating_mul(now.ksmd.page_size) as f64 / now.growth_bytes.max(1) as f64;
    let is_affordable =
        now.ksmd.at.saturating_sub(parked.since) >= time_for(now.smart_passes_seconds(1), 1.0, config);
    if is_affordable { gain } else { 0.0 }
}

/// Returns the worth of two visits of all memory for pages that have changed and are stable again.
pub fn of_revisit(model: &ProfitModel, now: &HostSituation) -> f64 {
    let beliefs = ScanBeliefs::from_samples(now, &model.experience);
    let gain = beliefs.recurring.gain() + beliefs.unknown.gain();
    gain / price_of_two_passes(now).max(now.growth_bytes as f64 * SMALL_PART)
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
    // New memory that is too little to pay for its two passes waits for as long as they use a part of the budget.
    let retry_after = time_for(now.two_passes_seconds(), SMALL_PART, config).min(longest_interval(config));
    let has_waited = model.unfinished.has_new(changes) && since >= retry_after;
    let is_wanted = parked.next != ScanReason::Probe || has_waited || is_active(changes, since, now);
    is_wanted && now.ksmd.at >= parked.until
}

/// Returns the time from parking to the next probe: the less probes pay, the longer. They cost no more than the budget on
/// average, by the most expensive pass since the last burst.
pub fn probe_interval(model: &ProfitModel, config: &ProfitConfig) -> Duration {
    let longest = longest_interval(config);
    let first = Duration::from_secs_f64(config.first_probe_seconds);
    let least = first.max(time_for(model.dearest_pass, 1.0, config));
    let seconds = least.as_secs_f64() / model.probes.mean().max(f64::MIN_POSITIVE);
    Duration::try_from_secs_f64(seconds).unwrap_or(longest).min(longest)
}

/// The longest time between two probes.
fn longest_interval(config: &ProfitConfig) -> Duration {
    Duration::from_secs_f64(config.longest_probe_seconds.max(config.first_probe_seconds))
}

/// Returns the time in which `part` of the budget of scans that bring less than the price comes to so many CPU-seconds.
fn time_for(cpu_seconds: f64, part: f64, config: &ProfitConfig) -> Duration {
    let budget = config.probe_cpu_percent / 100.0;
    Duration::try_from_secs_f64(cpu_seconds / (part * budget)).unwrap_or(Duration::MAX)
}

/// Returns true if a burst may visit old memory too. Even if all new memory merged, that would save no more than the
/// new memory.
pub fn clean_burst_pays(model: &ProfitModel, grown_bytes: u64, now: &HostSituation) -> bool {
    grown_bytes.saturating_add(model.unfinished.unmet_bytes()) as f64 >= price_of_two_passes(now)
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

#[cfg(test)]
mod tests {
    use super::super::situation::ProcessHolding;
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A host that holds 100 MiB, of which growth by one is worth a burst.
    fn host(pressure: f64) -> HostSituation {
        let holding = ProcessHolding::for_test(100 * MIB);
        let now = HostSituation::for_test(Duration::ZERO, 1.0, 1.0, vec![holding]);
        HostSituation { pressure, growth_bytes: MIB, ..now }
    }

    #[test]
    fn the_price_falls_with_the_pressure_and_a_small_host_has_a_lower_threshold() {
        let priced = |pressure, held_bytes| {
            let now = HostSituation { held_bytes, ..host(pressure) };
            let now = price_scans(now, &ProfitConfig::default());
            (now.price / MIB as f64, now.growth_bytes)
        };
        assert_eq!(priced(0.0, 1024 * MIB), (8.0, 4 * MIB));
        assert_eq!(priced(0.5, 16 * MIB), (4.25, 2 * MIB));
        assert_eq!(priced(1.0, 0), (0.5, 4096));
    }

    #[test]
    fn half_of_all_memory_is_worth_a_burst_however_often_growth_was_wasted() {
        let mut model = ProfitModel::new();
        model.growth.learn(false, 6.0);
        let worth = |mib: u64| {
            let changes = GuestChanges { grown_bytes: mib * MIB, ..GuestChanges::default() };
            of_burst(&model, changes, &host(0.0))
        };
        assert!(worth(49) < 1.0 && worth(50) >= 1.0, "{} {}", worth(49), worth(50));
    }

    #[test]
    fn probes_wait_for_their_budget_and_the_longer_the_less_they_pay() {
        let config = ProfitConfig { longest_probe_seconds: 500.0, ..ProfitConfig::default() };
        let mut model = ProfitModel::new();
        let seconds = |model: &ProfitModel| probe_interval(model, &config).as_secs();
        assert_eq!(seconds(&model), 15, "the first");
        model.note_pass_cost(&host(0.0));
        assert_eq!(seconds(&model), 100, "a second in a hundred");
        model.probes.learn(0.0, 2.0);
        assert_eq!(seconds(&model), 400);
        model.probes.learn(0.0, 1.0);
        assert_eq!(seconds(&model), 500, "the longest");
    }

    /// Each is then followed from `decide` to the guard that it decides in three files: mod.rs, this one and machine.rs.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "files of this repository")]
    fn prices_thresholds_and_the_budget_are_used_in_this_file_alone() {
        let keys = [
            "price_mib_per_cpu_second",
            "pressed_price_mib_per_cpu_second",
            "growth_mib",
            "first_probe_seconds",
            "longest_probe_seconds",
            "probe_cpu_percent",
        ];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/decide/profit");
        for key in keys {
            let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let users =
                files.filter(|path| std::fs::read_to_string(path).unwrap().contains(&format!("config.{key}")));
            let users: Vec<_> = users.map(|path| path.file_name().unwrap().to_owned()).collect();
            assert_eq!(users, ["worth.rs"], "{key}");
        }
    }
}
