//! Holding ksmd to a part of one CPU: which batch, and how long a sleep after it.

use std::time::Duration;

use super::{History, Limits, View};
use crate::knobs::{Knob, Knobs};
use crate::sample::Sample;

/// A batch can't be interrupted, and writing `run` waits for its end: it should stay imperceptible.
const BATCH: Duration = Duration::from_millis(5);

/// From this part of a CPU on, ksmd does not sleep at all: the shortest sleep there is, one tick of the
/// kernel's clock (4 ms at 250 Hz), would keep it below.
const NO_SLEEP: f64 = 0.9;

/// Visits that the last batch of a pass has to spare, and the sleep after it: long enough to be seen.
const LAST_SPARE: u64 = 512;
const MOST_LEFT: u64 = 1 << 30;
const LAST_SLEEP_MS: u64 = 100;

/// Steps in which the share moves between its bounds.
const STEPS: f64 = 20.0;

/// Per cent of the last ten seconds in which work waited for a CPU that take back what was idle.
const PRESSED: f32 = 20.0;

/// CPUs' worth of programs with less than usual priority from which on it may be those that wait.
const NICE: f64 = 0.1;

/// Changes of the batch smaller than this are not worth a write.
const TOLERANCE: f64 = 0.1;

/// The regulator of ksmd's CPU share.
#[derive(Debug, Clone, Default)]
pub struct Duty {
    /// The pages per batch in force, and the share they were meant for.
    batch: Option<(f64, f64)>,
    /// When the knobs last changed: a share measured across that moment says nothing of the new batch.
    changed: Duration,
}

impl Duty {
    /// Forgets the batch, as when ksmd was stopped meanwhile.
    pub fn reset(&mut self) {
        self.batch = None;
    }

    /// The knobs that hold ksmd to `share` of a CPU (over 0, at most 1).
    ///
    /// The first batch is reckoned from the cost per page seen so far. Then the measured share corrects it: the
    /// kernel rounds sleeps up to its clock's ticks, and a visit that merges costs five times one that does
    /// not. For a batch b and a sleep s the share is b / (b + s), so share / (1 - share) goes with the batch.
    pub fn knobs(&mut self, share: f64, now: &Sample, history: &History, limits: &Limits) -> Knobs {
        let whole = BATCH.as_nanos() as f64 / history.ns_per_page().max(1.0);
        if share >= NO_SLEEP && limits.min_sleep_milliseconds == 0 {
            self.batch = None;
            let current = now.ksm.pages_to_scan.get().unwrap_or(0) as f64;
            return settings(steady(current, whole), 0);
        }
        // As long a sleep as a full batch leaves room for; share < 0.9 makes this at least half a millisecond.
        let sleep = BATCH.as_secs_f64() * 1000.0 * (1.0 - share) / share;
        let sleep = sleep.max(f64::from(limits.min_sleep_milliseconds)).clamp(1.0, 10_000.0).round();
        let batch = match (self.batch, history.ksmd_share()) {
            // What was measured is the share that was meant until now; idle CPUs may have changed that since.
            (Some((batch, meant)), Some(measured)) if self.settled(now.at) && measured > 0.001 => {
                let correction = odds(meant) / odds(measured.min(0.99));
                batch * correction.clamp(0.25, 4.0)
            }
            (Some((batch, _)), _) => batch,
            (None, _) => sleep * 1e6 * share / (1.0 - share).max(0.01) / history.ns_per_page().max(1.0),
        };
        // The kernel's rounding may make sleeps several times longer than asked; the batch then has to be too.
        let batch = batch.clamp(1.0, (whole * 8.0).max(1.0));
        let current = self.batch.map_or(0.0, |(batch, _)| batch);
        let kept = steady(current, batch);
        if self.batch != Some((kept, share)) {
            self.changed = now.at;
        }
        self.batch = Some((kept, share));
        settings(kept, sleep as u64)
    }

    /// The knobs for the last `left` visits of a pass: one batch, which the pass's end cuts short, and then a sleep
    /// in which ksmd can be stopped right there.
    pub fn last_batch(&mut self, left: u64, limits: &Limits) -> Knobs {
        self.batch = None;
        // A kernel that counts nonsense is not to be asked for more than it takes.
        let left = left.min(MOST_LEFT);
        let sleep_ms = LAST_SLEEP_MS.max(limits.min_sleep_milliseconds.into());
        settings((left + left / 4 + LAST_SPARE) as f64, sleep_ms)
    }

    /// Whether the last sample's interval lies wholly behind the last change. The change is made right after
    /// the sample it was decided on, so the next sample measures the new batch alone.
    fn settled(&self, now: Duration) -> bool {
        now > self.changed
    }
}

fn odds(share: f64) -> f64 {
    share / (1.0 - share).max(0.001)
}

/// `wanted`, or `current` where the difference is not worth a write.
fn steady(current: f64, wanted: f64) -> f64 {
    if (wanted - current).abs() <= TOLERANCE * current { current } else { wanted }
}

fn settings(batch: f64, sleep_ms: u64) -> Knobs {
    Knobs::none().with(Knob::PagesToScan, (batch as u64).max(1)).with(Knob::SleepMillisecs, sleep_ms)
}

/// The share of a CPU that ksmd may take now, from 0 to 1, in steps of a twentieth.
///
/// CPUs that nobody else uses are free to take, up to the limit; when there are none, or when work waits for a
/// CPU for a fifth of the time, `busy` (0 to 1) of a CPU is what it keeps. ksmd's own use counts as free: it would
/// stop at once. So does that of programs with less than usual priority, as ksmd's own is: whoever runs them (a
/// backup, a compiler) has said that they may wait, so where there are any, waiting says nothing.
pub fn share(busy: f64, view: &View<'_>) -> f64 {
    let View { now, history, limits } = *view;
    let most = limits.max_cpu.part();
    let nice = history.nice_cpus();
    if nice < NICE && now.cpu_pressure.value().is_some_and(|psi| psi.some.avg10 >= PRESSED) {
        return busy.min(most);
    }
    let Some(free) = history.spare_cpus() else { return most };
    // A quarter of a CPU is left idle for the guests' next move. Steps, since what is idle is never quite the same.
    (((free - 0.25) * STEPS).round() / STEPS).clamp(busy.min(most), most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Share;
    use crate::kernel::{CpuTimes, Psi, Stall};
    use crate::reading::Reading;

    /// A ksmd that spends `cost` ns per page and sleeps `slack` ns longer than told.
    fn steady_share(target: f64, cost: f64, slack: f64) -> f64 {
        let mut duty = Duty::default();
        let mut history = History::default();
        let limits = Limits::default();
        let (mut cpu, mut visited, mut share) = (0.0, 0.0, 0.0);
        for tick in 0..40 {
            let mut sample = Sample { at: Duration::from_millis(250 * tick), ..Sample::default() };
            sample.ksmd_cpu_ns = Reading::Value(cpu as u64);
            sample.ksm.pages_scanned = Reading::Value(visited as u64);
            history.push(&sample);
            let knobs = duty.knobs(target, &sample, &history, &limits);
            let batch = knobs.get(Knob::PagesToScan).unwrap() as f64 * cost;
            let sleep = knobs.get(Knob::SleepMillisecs).unwrap() as f64 * 1e6;
            share = batch / (batch + sleep + if sleep > 0.0 { slack } else { 0.0 });
            cpu += share * 250e6;
            visited += share * 250e6 / cost;
        }
        share
    }

    #[test]
    fn the_share_is_held_whatever_a_page_costs_and_however_the_kernel_rounds() {
        for target in [0.05, 0.2, 0.5, 0.8] {
            for cost in [1300.0, 4000.0, 7000.0] {
                for slack in [0.0, 3e6] {
                    let share = steady_share(target, cost, slack);
                    let off = (share / target - 1.0).abs();
                    assert!(off < 0.15, "{target} at {cost} ns and {slack} ns slack became {share}");
                }
            }
        }
        assert_eq!(steady_share(1.0, 4000.0, 3e6), 1.0);
    }

    #[test]
    fn the_last_batch_covers_what_is_left_and_stays_within_what_the_kernel_takes() {
        let limits = Limits { min_sleep_milliseconds: 200, ..Limits::default() };
        let knobs = Duty::default().last_batch(1000, &limits);
        assert_eq!((knobs.get(Knob::PagesToScan), knobs.get(Knob::SleepMillisecs)), (Some(1762), Some(200)));
        let knobs = Duty::default().last_batch(u64::MAX, &limits);
        assert!(knobs.get(Knob::PagesToScan).unwrap() <= u64::from(u32::MAX));
    }

    #[test]
    fn a_share_that_moves_all_the_time_is_held_on_average() {
        let mut duty = Duty::default();
        let mut history = History::default();
        let (mut cpu, mut visited, mut meant) = (0.0, 0.0, 0.0);
        for tick in 0..80 {
            let mut sample = Sample { at: Duration::from_millis(250 * tick), ..Sample::default() };
            sample.ksmd_cpu_ns = Reading::Value(cpu as u64);
            sample.ksm.pages_scanned = Reading::Value(visited as u64);
            history.push(&sample);
            let target = if tick % 2 == 0 { 0.3 } else { 0.35 };
            let knobs = duty.knobs(target, &sample, &history, &Limits::default());
            let batch = knobs.get(Knob::PagesToScan).unwrap() as f64 * 4000.0;
            // Each sleep is 3 ms longer than asked.
            let share = batch / (batch + knobs.get(Knob::SleepMillisecs).unwrap() as f64 * 1e6 + 3e6);
            cpu += share * 250e6;
            visited += share * 250e6 / 4000.0;
            meant += target * 250e6;
        }
        assert!((cpu / meant - 1.0).abs() < 0.1, "{}", cpu / meant);
    }

    #[test]
    fn busy_cpus_leave_ksmd_its_minimum_and_idle_ones_the_limit() {
        let mut history = History::default();
        let mut now = Sample::default();
        let mut cpu = |busy, nice, idle| {
            let times = CpuTimes { busy_ticks: busy, nice_ticks: nice, idle_ticks: idle, cpus: 2 };
            history.push(&Sample { cpu: Reading::Value(times), ..Sample::default() });
            history.clone()
        };
        let limits = Limits { max_cpu: Share::new(0.8).unwrap(), ..Limits::default() };
        cpu(0, 0, 0);
        let (busy, idle, nice) = (cpu(100, 0, 0), cpu(100, 0, 100), cpu(200, 60, 100));
        assert_eq!(share(0.2, &View { now: &now, history: &busy, limits: &limits }), 0.2);
        assert_eq!(share(0.2, &View { now: &now, history: &idle, limits: &limits }), 0.8);
        let some = Stall { avg10: 30.0, ..Stall::default() };
        now.cpu_pressure = Reading::Value(Psi { some });
        assert_eq!(share(0.2, &View { now: &now, history: &idle, limits: &limits }), 0.2);
        assert_eq!(
            share(0.2, &View { now: &now, history: &nice, limits: &limits }),
            0.8,
            "compilers wait for others"
        );
    }
}
