//! The splits of huge pages that a scan would make, their cost, and where ksmd waits because of them.

use std::time::Duration;

use super::config::ProfitConfig;
use super::constants::{HORIZON_SECONDS, NEXT_TO_NOTHING, SPLIT_PART};
use super::guests::GuestChanges;
use super::look;
use super::scan_reason::ScanReason;
use super::situation::HostSituation;
use super::wait::WaitReason;
use crate::cpu_use::CpuUse;
use crate::sample::{ForecastState, MergeForecast, ProcessSample, Sample};

/// The time over which the CPU use of processes is averaged: three times the horizon of savings. A guest that boots, or fills
/// its memory, is not busy by that, and merging waits for neither.
pub const MEMORY: Duration = Duration::from_secs(600);

/// The gain of a scan beside the cost of the splits that it makes, by a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SplitAccount {
    /// Bytes that the scan would newly save.
    pub new_bytes: u64,
    /// CPU-seconds a second that its splits would cost at most.
    pub cost_cpus: f64,
}

/// Returns the forecast for the processes that may still merge, and their account; `None` if no process has a forecast of its
/// own.
///
/// A guest that was switched off since does not count. Processes without a forecast of their own have too little memory to
/// save or cost much.
pub fn forecast_of_merging(now: &Sample, cpu_use: &CpuUse) -> (ForecastState, Option<SplitAccount>) {
    let ForecastState::Known(mut forecast) = now.merge_forecast else { return (now.merge_forecast, None) };
    let mut account = SplitAccount::default();
    for part in now.process_forecasts.iter() {
        // Samples have processes in the order of their ids.
        let place = now.processes.binary_search_by_key(&part.pid, |process| process.id.pid);
        match place.ok().and_then(|place| now.processes.get(place)).filter(|process| process.may_merge()) {
            Some(ProcessSample { id, .. }) => {
                let MergeForecast { split_bytes, huge_bytes, .. } = part.forecast;
                account.new_bytes = account.new_bytes.saturating_add(part.new_bytes);
                account.cost_cpus += now.split_losses.split_cost(cpu_use.cpus(*id), split_bytes, huge_bytes);
            }
            None => forecast = forecast.without(&part.forecast),
        }
    }
    (ForecastState::Known(forecast), (!now.process_forecasts.is_empty()).then_some(account))
}

/// Returns the reason for which ksmd waits by a forecast, unless the pressure is full.
///
/// Merging would save less than `split_saves_percent` of all memory, and either be the first, with most memory in huge
/// pages, or split over [`SPLIT_PART`] of it and save less than that per cent of what it splits. The per cent falls with
/// the pressure. Or it would split so much and newly save less than the price of two passes and of what the splits cost
/// over the horizon, by the `account` of the forecast.
pub fn reason_to_wait(
    forecast: ForecastState,
    account: Option<SplitAccount>,
    now: &HostSituation,
    config: &ProfitConfig,
) -> Option<WaitReason> {
    let calm = 1.0 - now.pressure;
    let forecast = match forecast {
        ForecastState::Unavailable => return None,
        ForecastState::Pending => return (calm > 0.0).then_some(WaitReason::Pending),
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
        let cpu_seconds = visits + HORIZON_SECONDS * cost_cpus;
        calm > 0.0 && splits_much && (new_bytes as f64) < now.price * cpu_seconds
    });
    (saves_little && (is_first || is_dear) || costs_more).then_some(WaitReason::HugePages {
        saved_bytes: forecast.saved_bytes,
        split_bytes: forecast.split_bytes,
        cost_cpus: account.map_or(0.0, |account| account.cost_cpus),
    })
}

#[cfg(test)]
mod tests {
    use super::super::situation::ProcessHolding;
    use super::*;
    use crate::kernel::KsmStat;
    use crate::sample::{ProcessForecast, ProcessId};

    const GIB: u64 = 1 << 30;

    fn forecast(split_bytes: u64) -> MergeForecast {
        MergeForecast { bytes: GIB, huge_bytes: GIB, saved_bytes: 7, saved_in_huge_bytes: 5, split_bytes }
    }

    /// A sample with these processes, and a forecast of a gibibyte each for processes 1, 2 and 3.
    fn sample(processes: &[(u32, bool)]) -> Sample {
        let process = |&(pid, mergeable): &(u32, bool)| ProcessSample {
            ksm: KsmStat { mergeable: Some(mergeable), ..KsmStat::default() },
            ..ProcessSample::new(ProcessId { pid, start_ticks: 0 }, "guest".into(), true)
        };
        let part = |(pid, split)| ProcessForecast { pid, forecast: forecast(split), new_bytes: 3 };
        let parts = [(1, 0), (2, GIB / 2), (3, GIB)].map(part);
        let total = parts.iter().fold(MergeForecast::default(), |sum, part| sum.plus(&part.forecast));
        Sample {
            at: Duration::from_secs(1000),
            processes: processes.iter().map(process).collect(),
            merge_forecast: ForecastState::Known(total),
            process_forecasts: parts.into(),
            ..Sample::default()
        }
    }

    #[test]
    fn busy_processes_cost_and_those_that_were_switched_off_or_ended_do_not_count() {
        let of = |processes: &[(u32, bool)]| {
            let now = sample(processes);
            let mut used = CpuUse::over(MEMORY);
            // Each has used its PID in CPUs since boot.
            used.record(now.at, now.processes.iter().map(|it| (it.id, u64::from(it.id.pid) * 100_000)));
            let (state, account) = forecast_of_merging(&now, &used);
            let (ForecastState::Known(forecast), Some(account)) = (state, account) else { panic!("none") };
            let MergeForecast { bytes, saved_bytes, split_bytes, .. } = forecast;
            (bytes / GIB, saved_bytes, split_bytes, account.new_bytes, account.cost_cpus)
        };
        assert_eq!(of(&[(1, true), (2, true), (3, true)]), (3, 21, GIB * 3 / 2, 9, 1.0));
        assert_eq!(of(&[(1, true), (2, true), (3, false)]), (2, 14, GIB / 2, 6, 0.25));
        assert_eq!(of(&[(3, true)]), (1, 7, GIB, 3, 0.75));
        let mut dear = sample(&[(3, true)]);
        dear.split_losses = [0.1, 0.2, 0.5].try_into().unwrap();
        let mut used = CpuUse::over(MEMORY);
        used.record(dear.at, [(dear.processes[0].id, 300_000)]);
        assert_eq!(forecast_of_merging(&dear, &used).1.unwrap().cost_cpus, 1.5, "by this host's losses");
    }

    #[test]
    fn without_a_forecast_there_is_no_account() {
        let now = Sample { merge_forecast: ForecastState::Pending, ..sample(&[(3, true)]) };
        assert_eq!(forecast_of_merging(&now, &CpuUse::over(MEMORY)), (ForecastState::Pending, None));
        let now = Sample { process_forecasts: [].into(), ..sample(&[(3, true)]) };
        assert_eq!(forecast_of_merging(&now, &CpuUse::over(MEMORY)), (now.merge_forecast, None));
    }

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
        // The price that `worth` derives from the pressure.
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
        reason_to_wait(forecast, Some(account), &now, &ProfitConfig::default())
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
}
