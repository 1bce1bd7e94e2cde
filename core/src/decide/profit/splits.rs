//! The splits of huge pages that a scan would make, and their cost.

use std::time::Duration;

use crate::cpu_use::CpuUse;
use crate::huge_worth::split_cost;
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
                account.cost_cpus += split_cost(cpu_use.cpus(*id), split_bytes, huge_bytes);
            }
            None => forecast = forecast.without(&part.forecast),
        }
    }
    (ForecastState::Known(forecast), (!now.process_forecasts.is_empty()).then_some(account))
}

#[cfg(test)]
mod tests {
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
    }

    #[test]
    fn without_a_forecast_there_is_no_account() {
        let now = Sample { merge_forecast: ForecastState::Pending, ..sample(&[(3, true)]) };
        assert_eq!(forecast_of_merging(&now, &CpuUse::over(MEMORY)), (ForecastState::Pending, None));
        let now = Sample { process_forecasts: [].into(), ..sample(&[(3, true)]) };
        assert_eq!(forecast_of_merging(&now, &CpuUse::over(MEMORY)), (now.merge_forecast, None));
    }
}
