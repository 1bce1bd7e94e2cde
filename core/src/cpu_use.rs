//! The CPUs that processes use, by the CPU time that samples show.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::sample::ProcessId;

/// Clock ticks per second in /proc: `USER_HZ`, 100 on every architecture that KSM runs on.
pub const TICKS_PER_SECOND: f64 = 100.0;

/// The least time between two figures of one average: ticks are hundredths of a second.
const LEAST: Duration = Duration::from_secs(1);

/// The exponential average of the CPUs that each process uses.
#[derive(Debug, Clone)]
pub struct CpuUse {
    /// The time constant.
    memory: Duration,
    averages: FxHashMap<ProcessId, UseAverage>,
}

#[derive(Debug, Clone, Copy)]
struct UseAverage {
    at: Duration,
    ticks: u64,
    cpus: f64,
}

impl CpuUse {
    /// Creates averages over about so much time. The longer it is, the less a process counts as busy that has just started.
    pub fn over(memory: Duration) -> Self {
        Self { memory, averages: FxHashMap::default() }
    }

    /// Records the processes of a sample with their `cpu_ticks`, and forgets all others. A process that is new here used no
    /// CPU before its start.
    pub fn record(&mut self, at: Duration, processes: impl IntoIterator<Item = (ProcessId, u64)>) {
        let mut before = std::mem::take(&mut self.averages);
        for (id, ticks) in processes {
            let mut average = before.remove(&id).unwrap_or_else(|| {
                let seconds = id.age(at).max(self.memory).as_secs_f64();
                UseAverage { at, ticks, cpus: ticks as f64 / TICKS_PER_SECOND / seconds }
            });
            average.record(at, ticks, self.memory);
            self.averages.insert(id, average);
        }
    }

    /// Returns the CPUs that a process uses, 0 if it was not in the last sample.
    pub fn cpus(&self, id: ProcessId) -> f64 {
        self.averages.get(&id).map_or(0.0, |average| average.cpus)
    }
}

impl UseAverage {
    fn record(&mut self, at: Duration, ticks: u64, memory: Duration) {
        let since = at.saturating_sub(self.at);
        if since < LEAST {
            return;
        }
        let cpus = ticks.saturating_sub(self.ticks) as f64 / TICKS_PER_SECOND / since.as_secs_f64();
        self.cpus += (cpus - self.cpus) * -(-since.div_duration_f64(memory)).exp_m1();
        (self.at, self.ticks) = (at, ticks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(start_seconds: u64) -> ProcessId {
        ProcessId { pid: 7, start_ticks: start_seconds * 100 }
    }

    fn cpus_after(start_seconds: u64, figures: &[(u64, u64)]) -> f64 {
        let mut used = CpuUse::over(Duration::from_secs(200));
        for (seconds, ticks) in figures {
            used.record(Duration::from_secs(*seconds), [(id(start_seconds), *ticks)]);
        }
        used.cpus(id(start_seconds))
    }

    #[test]
    fn a_process_counts_by_its_whole_life_and_then_by_its_last_minutes() {
        assert_eq!(cpus_after(0, &[(1000, 50_000)]), 0.5, "half a CPU since its start");
        assert_eq!(cpus_after(998, &[(1000, 200)]), 0.01, "it has just filled its memory");
        let busy = cpus_after(0, &[(1000, 0), (1200, 20_000)]);
        assert!((0.63..0.64).contains(&busy), "{busy}");
        let steps: Vec<(u64, u64)> = (0..=200).map(|second| (1000 + second, second * 100)).collect();
        assert!((cpus_after(0, &steps) - busy).abs() < 1e-9, "however often it is looked at");
        assert!(cpus_after(0, &[(1000, 100_000), (3000, 100_000)]) < 1e-4, "it has become idle");
    }

    #[test]
    fn a_process_that_is_gone_is_forgotten_and_a_figure_that_falls_is_none() {
        let mut used = CpuUse::over(Duration::from_secs(200));
        used.record(Duration::from_secs(1000), [(id(0), 100_000)]);
        used.record(Duration::from_secs(1001), [(id(0), 0)]);
        assert!((0.9..1.0).contains(&used.cpus(id(0))));
        used.record(Duration::from_secs(1002), []);
        assert_eq!(used.cpus(id(0)), 0.0);
    }
}
