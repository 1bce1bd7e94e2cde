//! Forecast of the memory that merged pages may need when they diverge, and the response.

use std::collections::BTreeMap;
use std::time::Duration;

use super::config::{BalanceConfig, ExposureResponse, PoolWatermarks};
use super::{BalanceAction, BalanceView, GuestView, KsmStep};
use crate::units::Bytes;

/// The time ahead for which memory is kept ready while pages diverge.
const AHEAD: Duration = Duration::from_secs(10);

/// The shortest time between two bursts, and between two guests that are un-merged: each has an effect only after a
/// while.
const BETWEEN: Duration = Duration::from_secs(60);

/// The part of its merged memory that a diverging guest loses within [`BETWEEN`].
const DIVERGING: f64 = 0.1;

/// The merging state that a balance policy keeps between views.
#[derive(Debug, Clone, Default)]
pub struct MergeForecast {
    last_burst: Option<Duration>,
    last_unmerge: Option<Duration>,
    /// The merged bytes that each guest is compared with, and their time.
    merged: BTreeMap<String, (Duration, u64)>,
}

/// The demand of merging on balance: memory to keep available, and changes to merging.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MergeOutlook {
    /// The memory that should be available, whatever the marks say.
    pub needed_bytes: u64,
    /// The reason, where that is more than 0.
    pub why: Option<String>,
    /// The changes to merging itself.
    pub actions: Vec<BalanceAction>,
}

/// Returns a sentence on the memory that merged pages could need beyond what there is; `None` if the exposure is
/// covered.
pub fn shortfall(exposure_bytes: u64, headroom_bytes: u64) -> Option<String> {
    let short = exposure_bytes.checked_sub(headroom_bytes).filter(|short| *short > 0)?;
    Some(format!(
        "if all merged pages diverged they would need {}, {} more than there is",
        Bytes::from(exposure_bytes),
        Bytes::from(short),
    ))
}

impl MergeForecast {
    /// Computes the outlook from a view.
    pub fn assess(&mut self, view: &BalanceView, config: &BalanceConfig, marks: &PoolWatermarks) -> MergeOutlook {
        let pool = &view.pool;
        let mut outlook = MergeOutlook::default();
        if pool.available_bytes < marks.low && pool.size_bytes > 0 {
            self.burst(view, &mut outlook);
        }
        self.wave(view, config, marks, &mut outlook);
        if let Some(why) = shortfall(pool.exposure_bytes, pool.headroom_bytes) {
            if config.exposure >= ExposureResponse::Refuse {
                let reason = format!("{why}: no more memory is offered to merging");
                outlook.actions.push(BalanceAction::Ksm { step: KsmStep::RefuseSwitches, reason });
            }
            if config.exposure >= ExposureResponse::Cover {
                let elsewhere = pool.headroom_bytes.saturating_sub(pool.available_bytes);
                let needed = pool.exposure_bytes.saturating_sub(elsewhere);
                if needed > outlook.needed_bytes {
                    outlook.needed_bytes = needed;
                    outlook.why = Some(why);
                }
            }
            if config.exposure == ExposureResponse::Unmerge {
                self.unmerge(view, marks, &mut outlook);
            }
        }
        self.remember(view);
        outlook
    }

    /// Merges before memory is taken: what can be merged now need not be taken.
    fn burst(&mut self, view: &BalanceView, outlook: &mut MergeOutlook) {
        let is_due = self.last_burst.is_none_or(|last| view.now.saturating_sub(last) >= BETWEEN);
        if is_due {
            self.last_burst = Some(view.now);
            let reason =
                format!("{} available: merging comes before taking", Bytes::from(view.pool.available_bytes));
            outlook.actions.push(BalanceAction::Ksm { step: KsmStep::BurstMerge, reason });
        }
    }

    /// While pages diverge fast, memory for the next seconds must be ready.
    fn wave(&self, view: &BalanceView, config: &BalanceConfig, marks: &PoolWatermarks, outlook: &mut MergeOutlook) {
        let rate = view.pool.cow_bytes_per_second.filter(|rate| rate.is_finite() && *rate > 0.0);
        let Some(rate) = rate.filter(|_| config.exposure > ExposureResponse::Report) else { return };
        let ahead = ((rate * AHEAD.as_secs_f64()) as u64).min(view.pool.exposure_bytes);
        let needed = ahead.saturating_add(marks.min);
        if needed > view.pool.available_bytes {
            outlook.needed_bytes = needed;
            let rate = Bytes(rate as i128);
            outlook.why = Some(format!(
                "merged pages diverge at {rate}/s, and the next {} s need {}",
                AHEAD.as_secs(),
                Bytes::from(ahead)
            ));
        }
    }

    /// Un-merges the guest that diverges most, while the pool has memory for its copies: merging it only costs ksmd's
    /// time.
    fn unmerge(&mut self, view: &BalanceView, marks: &PoolWatermarks, outlook: &mut MergeOutlook) {
        if self.last_unmerge.is_some_and(|last| view.now.saturating_sub(last) < BETWEEN) {
            return;
        }
        let diverging = |guest: &&GuestView| {
            let before = self.merged.get(&guest.key).map_or(0, |(_, merged)| *merged);
            let lost = before.saturating_sub(guest.merged_bytes);
            let fits = guest.merged_bytes.saturating_add(marks.low) < view.pool.available_bytes;
            (lost as f64 > before as f64 * DIVERGING && guest.merged_bytes > 0 && fits && !guest.held)
                .then_some((lost, guest.key.clone()))
        };
        if let Some((lost, key)) = view.guests.iter().filter_map(|guest| diverging(&guest)).max() {
            self.last_unmerge = Some(view.now);
            let reason = format!(
                "{} of its merged pages diverged, and there would be no memory for the rest later",
                Bytes::from(lost)
            );
            outlook.actions.push(BalanceAction::Ksm { step: KsmStep::Unmerge { key }, reason });
        }
    }

    fn remember(&mut self, view: &BalanceView) {
        let mut merged = std::mem::take(&mut self.merged);
        for guest in &view.guests {
            let kept = merged
                .remove(&guest.key)
                .filter(|(since, most)| view.now.saturating_sub(*since) < BETWEEN && *most >= guest.merged_bytes);
            self.merged.insert(guest.key.clone(), kept.unwrap_or((view.now, guest.merged_bytes)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MIB, guest, pool, view};
    use super::*;
    use crate::balance::PoolView;

    fn config(exposure: ExposureResponse) -> BalanceConfig {
        BalanceConfig { exposure, ..BalanceConfig::default() }
    }

    fn exposed(exposure: u64, available: u64) -> PoolView {
        PoolView { exposure_bytes: exposure * MIB, ..pool(1000, available) }
    }

    fn assess(forecast: &mut MergeForecast, view: &BalanceView, config: &BalanceConfig) -> MergeOutlook {
        forecast.assess(view, config, &config.marks(&view.pool))
    }

    fn steps(outlook: &MergeOutlook) -> Vec<&KsmStep> {
        outlook
            .actions
            .iter()
            .filter_map(|it| if let BalanceAction::Ksm { step, .. } = it { Some(step) } else { None })
            .collect()
    }

    #[test]
    fn each_response_includes_those_before_it() {
        let view = view(0, exposed(600, 400), vec![guest("a", 100, 50)]);
        let of = |exposure| assess(&mut MergeForecast::default(), &view, &config(exposure));
        assert_eq!(of(ExposureResponse::Report), MergeOutlook::default());
        assert_eq!(steps(&of(ExposureResponse::Refuse)), [&KsmStep::RefuseSwitches]);
        assert_eq!(of(ExposureResponse::Refuse).needed_bytes, 0);
        let covering = of(ExposureResponse::Cover);
        assert_eq!((covering.needed_bytes, steps(&covering).len()), (600 * MIB, 1));
        assert!(covering.why.unwrap().contains("need 600 MiB, 200 MiB more"));
    }

    #[test]
    fn swap_counts_as_headroom() {
        let mut pool = exposed(600, 400);
        pool.headroom_bytes = 500 * MIB;
        let outlook =
            assess(&mut MergeForecast::default(), &view(0, pool, vec![]), &config(ExposureResponse::Cover));
        assert_eq!(outlook.needed_bytes, 500 * MIB);
    }

    #[test]
    fn a_burst_comes_first_and_at_most_once_a_minute() {
        let mut forecast = MergeForecast::default();
        let mut bursts = |second| {
            let outlook =
                assess(&mut forecast, &view(second, pool(1000, 90), vec![]), &config(ExposureResponse::Report));
            steps(&outlook) == [&KsmStep::BurstMerge]
        };
        assert_eq!([0, 1, 59, 60].map(&mut bursts), [true, false, false, true]);
    }

    #[test]
    fn during_a_wave_memory_for_the_next_seconds_is_kept_ready() {
        let mut pool = exposed(600, 400);
        pool.headroom_bytes = 4000 * MIB;
        pool.cow_bytes_per_second = Some(50.0 * MIB as f64);
        let outlook =
            assess(&mut MergeForecast::default(), &view(0, pool, vec![]), &config(ExposureResponse::Refuse));
        // Ten seconds of it, and half the low mark.
        assert_eq!(outlook.needed_bytes, 550 * MIB);
        assert!(outlook.why.unwrap().starts_with("merged pages diverge at 50.0 MiB/s"));
    }

    #[test]
    fn the_guest_that_diverges_is_unmerged_if_memory_allows_and_one_at_a_time() {
        let merged = |key: &str, mib: u64| GuestView { merged_bytes: mib * MIB, ..guest(key, 500, 100) };
        let config = config(ExposureResponse::Unmerge);
        let run = |available: u64| {
            let mut forecast = MergeForecast::default();
            assess(
                &mut forecast,
                &view(0, exposed(900, available), vec![merged("a", 200), merged("b", 200)]),
                &config,
            );
            let then = view(5, exposed(800, available), vec![merged("a", 100), merged("b", 199)]);
            let first = assess(&mut forecast, &then, &config);
            let second = assess(&mut forecast, &then, &config);
            (steps(&first).len(), steps(&first).last().copied().cloned(), steps(&second).len())
        };
        assert_eq!(run(400), (2, Some(KsmStep::Unmerge { key: "a".to_owned() }), 1));
        // 100 MiB would come back, and the low mark is 100 MiB.
        assert_eq!(run(150).0, 1);
    }
}
