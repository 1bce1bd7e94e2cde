//! The reasons for which ksmd waits, whatever a scan is worth.

use super::config::ProfitConfig;
use super::constants::{NEXT_TO_NOTHING, SPLIT_PART};
use super::guests::GuestChanges;
use super::look;
use super::scan_reason::ScanReason;
use super::situation::HostSituation;
use super::splits::SplitAccount;
use crate::sample::ForecastState;
use crate::units::Bytes;

/// A reason for which ksmd waits. Ended guests are tidied up and splits finished all the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WaitReason {
    /// Memory is plentiful, and `when = "short"`.
    Plenty {
        /// The available per cent of the host's memory.
        available_percent: f64,
    },
    /// ksmd has used its allowance (`max_delay_percent`).
    Spent,
    /// Memory that has just been filled is being folded (`after_init`).
    Folding,
    /// Pages are being read for a forecast.
    Pending,
    /// Merging would save little of memory in huge pages, or less than splits cost.
    HugePages {
        /// Bytes that merging would save.
        saved_bytes: u64,
        /// Bytes of huge pages that it would split.
        split_bytes: u64,
        /// CPU-seconds a second that the splits would cost at most.
        cost_cpus: f64,
    },
}

impl WaitReason {
    /// Derives from the forecast that ksmd waits, unless the pressure is full.
    ///
    /// Merging would save less than `split_saves_percent` of all memory, and either be the first, with most memory in huge
    /// pages, or split over [`SPLIT_PART`] of it and save less than that per cent of what it splits. The per cent falls with
    /// the pressure. Or it would split so much and newly save less than the price of two passes and of what the splits cost
    /// over the horizon, by the `account` of the forecast.
    pub fn from_forecast(
        forecast: ForecastState,
        account: Option<SplitAccount>,
        now: &HostSituation,
        config: &ProfitConfig,
    ) -> Option<Self> {
        let calm = 1.0 - now.pressure;
        let forecast = match forecast {
            ForecastState::Unavailable => return None,
            ForecastState::Pending => return (calm > 0.0).then_some(Self::Pending),
            ForecastState::Known(forecast) => forecast,
        };
        let bytes = forecast.bytes as f64;
        let least = config.split_saves_percent / 100.0 * calm;
        let saves_little = (forecast.saved_bytes as f64) < bytes * least;
        let is_first = now.held_merged_part() < NEXT_TO_NOTHING && forecast.huge_bytes as f64 > bytes / 2.0;
        let splits_much = forecast.split_bytes as f64 > bytes * SPLIT_PART;
        let is_dear = splits_much && forecast.saved_part() < least;
        let visits = look::cpu_seconds(forecast.bytes, ScanReason::Probe, GuestChanges::default(), now);
        let costs_more = account.is_some_and(|SplitAccount { new_bytes, cost_cpus }| {
            let cpu_seconds = visits + now.constants.horizon_seconds * cost_cpus;
            calm > 0.0 && splits_much && (new_bytes as f64) < now.price * cpu_seconds
        });
        (saves_little && (is_first || is_dear) || costs_more).then_some(Self::HugePages {
            saved_bytes: forecast.saved_bytes,
            split_bytes: forecast.split_bytes,
            cost_cpus: account.map_or(0.0, |account| account.cost_cpus),
        })
    }

    /// Returns the reason in a sentence.
    pub fn in_words(self, config: &ProfitConfig) -> String {
        match self {
            Self::Plenty { available_percent } => format!(
                "{available_percent:.0} % of memory is available, and when = \"short\": ksmd waits until less than {} % is",
                config.short_percent
            ),
            Self::Spent => {
                format!("ksmd has used its {} % of the time (max_delay_percent)", config.max_delay_percent)
            }
            Self::Folding => {
                "huge pages are being split, as folding does: ksmd waits until their zeros are free".to_owned()
            }
            Self::Pending => "pages are being read, to tell what merging would save and split".to_owned(),
            Self::HugePages { saved_bytes, split_bytes, cost_cpus } => {
                let cost = if cost_cpus < 0.005 {
                    String::new()
                } else {
                    format!("; the splits would cost programs up to {cost_cpus:.2} CPU")
                };
                format!(
                    "merging would save about {} and split {} of huge pages for it: ksmd waits while memory is plentiful{cost}",
                    Bytes::from(saved_bytes),
                    Bytes::from(split_bytes),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::situation::ProcessHolding;
    use super::*;
    use crate::sample::{MergeForecast, ProcessId};

    const MIB: u64 = 1 << 20;

    /// Figures in MiB of a host that holds 1,024 of them, all in huge pages at first, and the CPUs that splits would cost.
    #[derive(Clone, Copy)]
    struct Case {
        merged: u64,
        saves: u64,
        splits: u64,
        cost_cpus: f64,
        pressure: f64,
    }

    const PART_MERGED: Case = Case { merged: 512, saves: 0, splits: 0, cost_cpus: 0.0, pressure: 0.0 };

    fn reason(case: Case) -> Option<WaitReason> {
        let holding = ProcessHolding {
            id: ProcessId { pid: 1, start_ticks: 1 },
            bytes: 1024 * MIB,
            cpu_ticks: 0,
            minor_faults: 0,
            merged_pages: case.merged * MIB / 4096,
        };
        // The price that `situation` derives from the pressure.
        let price = (8.0 - 7.5 * case.pressure) * MIB as f64;
        let now = HostSituation::for_test(Duration::ZERO, 0.0, price, vec![holding]);
        let now = HostSituation { pressure: case.pressure, ..now };
        let forecast = ForecastState::Known(MergeForecast {
            bytes: 1024 * MIB,
            huge_bytes: 1024 * MIB,
            saved_bytes: case.saves * MIB,
            saved_in_huge_bytes: case.saves * MIB,
            split_bytes: case.splits * MIB,
        });
        let account = SplitAccount { new_bytes: case.saves * MIB, cost_cpus: case.cost_cpus };
        WaitReason::from_forecast(forecast, Some(account), &now, &ProfitConfig::default())
    }

    #[test]
    fn ksmd_waits_where_little_is_saved_of_much_that_is_split() {
        let waits = |saves, splits, pressure| reason(Case { saves, splits, pressure, ..PART_MERGED }).is_some();
        assert!(waits(5, 1024, 0.0), "half a per cent");
        assert!(!waits(100, 1024, 0.0), "a tenth");
        assert!(!waits(1, 30, 0.0), "little is split");
        assert!(waits(20, 1024, 0.0) && !waits(20, 1024, 0.7), "memory is short");
        assert!(!waits(0, 1024, 1.0), "anything is welcome");
    }

    #[test]
    fn the_first_scan_must_save_its_part_of_all_memory() {
        let waits = |merged, saves, splits, pressure| {
            reason(Case { merged, saves, splits, pressure, cost_cpus: 0.0 }).is_some()
        };
        assert!(waits(0, 25, 60, 0.0), "an equal twentieth, in runs");
        assert!(!waits(512, 25, 60, 0.0), "others are merged already");
        assert!(!waits(0, 55, 110, 0.0), "an equal tenth");
        assert!(!waits(0, 25, 60, 0.9), "memory is short");
    }

    #[test]
    fn what_is_saved_must_pay_for_what_the_splits_cost_by_the_price_of_cpu_time() {
        // A quarter of a CPU for 200 s, at 8 MiB for a CPU-second, is worth 400 MiB, and two visits of all memory 10.
        let waits = |saves, splits, cost_cpus, pressure| {
            reason(Case { saves, splits, cost_cpus, pressure, ..PART_MERGED }).is_some()
        };
        assert!(waits(400, 1024, 0.25, 0.0) && !waits(420, 1024, 0.25, 0.0));
        assert!(waits(60, 512, 0.05, 0.0) && !waits(60, 512, 0.025, 0.0), "by how busy the programs are");
        assert!(!waits(60, 60, 0.25, 0.0), "little is split");
        assert!(!waits(240, 1024, 0.25, 0.5), "memory is short");
        assert!(!waits(0, 1024, 9.0, 1.0), "anything is welcome");
    }

    #[test]
    fn the_reason_names_a_cost_that_can_be_felt() {
        let words = |cost_cpus| {
            let case = Case { saves: 5, splits: 1024, cost_cpus, ..PART_MERGED };
            reason(case).unwrap().in_words(&ProfitConfig::default())
        };
        let idle = "merging would save about 5.00 MiB and split 1.00 GiB of huge pages for it: ksmd waits while memory is plentiful";
        assert_eq!(words(0.001), idle);
        assert_eq!(words(0.25), format!("{idle}; the splits would cost programs up to 0.25 CPU"));
    }
}
