//! The share of a CPU that ksmd may use at the moment.

use super::KsmdState;

/// The share moves between its bounds in steps of `1 / STEPS`, since idle time is never quite the same.
const STEPS: f64 = 20.0;

/// Part of a CPU that is left idle for the guests' next activity.
const RESERVE: f64 = 0.25;

/// Per cent of the time in which work waits for a CPU from which on idle CPUs are not used.
const PRESSED: f32 = 20.0;

/// CPUs' worth of low-priority programs from which on the waiting work may be theirs.
const NICE: f64 = 0.1;

/// The share of a CPU that ksmd may use now, 0 to 1.
///
/// `share = clamp(spare_cpus - RESERVE, busy, max)`, rounded to steps. Time of ksmd itself and of low-priority programs
/// counts as spare. If work waits for a CPU, and no low-priority programs run, the share is `busy`.
pub(super) fn share(busy: f64, now: &KsmdState) -> f64 {
    let busy = busy.min(now.max_share);
    if now.nice_cpus < NICE && now.cpu_stall_percent.is_some_and(|stall| stall >= PRESSED) {
        return busy;
    }
    let Some(spare) = now.spare_cpus else { return now.max_share };
    (((spare - RESERVE) * STEPS).round() / STEPS).clamp(busy, now.max_share)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::history::PassHistory;
    use crate::kernel::{CpuTimes, HostReadings, Psi, StallTimes};
    use crate::limits::{CpuShare, PolicyLimits};
    use crate::reading::Reading;
    use crate::sample::Sample;

    #[test]
    fn the_share_is_the_minimum_on_busy_cpus_and_the_limit_on_idle_ones() {
        let mut history = PassHistory::default();
        let mut now = Sample::default();
        let mut cpu = |busy, nice, idle| {
            let times = CpuTimes { busy_ticks: busy, nice_ticks: nice, idle_ticks: idle, cpus: 2 };
            let host = HostReadings { cpu: Reading::Value(times), ..HostReadings::default() };
            history.push(&Sample { host, ..Sample::default() });
            history.clone()
        };
        let limits = PolicyLimits { max_cpu: CpuShare::new(0.8).unwrap(), ..PolicyLimits::default() };
        let of = |now: &Sample, history: &PassHistory| KsmdState::from_sample(now, history, &limits);
        cpu(0, 0, 0);
        let (busy, idle, nice) = (cpu(100, 0, 0), cpu(100, 0, 100), cpu(200, 60, 100));
        assert_eq!(share(0.2, &of(&now, &busy)), 0.2);
        assert_eq!(share(0.2, &of(&now, &idle)), 0.8);
        let some = StallTimes { avg10: Some(30.0), total_us: Some(0) };
        now.host.cpu_pressure = Reading::Value(Psi { some });
        assert_eq!(share(0.2, &of(&now, &idle)), 0.2);
        assert_eq!(share(0.2, &of(&now, &nice)), 0.8, "low-priority programs may be those that wait");
        // No work has waited for the last ten seconds, whatever the average says.
        let (mut calm, first) = (idle.clone(), now.clone());
        calm.push(&first);
        now.at += Duration::from_secs(10);
        calm.push(&now);
        assert_eq!(share(0.2, &of(&now, &calm)), 0.8);
    }
}
