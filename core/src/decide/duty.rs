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

/// What ksmd had too little or too much is remembered as far as so many seconds at its share amount to, and made up for
/// within a second: more would make the next seconds' share as wrong as the last ones' was.
const MOST_OWED: f64 = 0.2;

/// The regulator of ksmd's CPU share.
#[derive(Debug, Clone, Default)]
pub struct Duty {
    /// What is in force.
    batch: Option<Batch>,
    /// When the knobs last changed: a share measured across that moment says nothing of the new batch.
    changed: Duration,
    /// What ksmd has had since it set out.
    account: Account,
}

/// So many pages, and then so long a sleep.
#[derive(Debug, Clone, Copy)]
struct Batch {
    pages: f64,
    sleep_ms: f64,
    cost_ns: f64,
}

/// What ksmd had, compared with what it was to have. Each measurement is rough (a few batches, of which the last is cut
/// off anywhere) and comes after the cost of a visit has changed; their sum is not.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// When it was last looked at, ksmd's CPU time then, and the share that it was to have from there on.
    last: Option<(Duration, u64, f64)>,
    /// CPU-seconds that ksmd has had too few. Below 0: too many.
    owed: f64,
}

impl Account {
    /// Takes in the time since the last look, and returns the share that makes up for it.
    fn aim(&mut self, share: f64, now: &Sample) -> f64 {
        let Some(cpu_ns) = now.ksmd_cpu_ns.get() else { return share };
        if let Some((at, before_ns, meant)) = self.last.replace((now.at, cpu_ns, share)) {
            let had = cpu_ns.saturating_sub(before_ns) as f64 / 1e9;
            self.owed += meant * now.at.saturating_sub(at).as_secs_f64() - had;
        }
        self.owed = self.owed.clamp(-MOST_OWED * share, MOST_OWED * share);
        share + self.owed
    }
}

impl Duty {
    /// Forgets the batch and what ksmd had, as when it was stopped meanwhile.
    pub fn reset(&mut self) {
        self.batch = None;
        self.account = Account::default();
    }

    /// The knobs that hold ksmd to `share` of a CPU (over 0, at most 1).
    ///
    /// For a batch b and a sleep s the share is b / (b + s), so share / (1 - share) is b / s. A visit that merges costs five
    /// times one that does not, and ksmd sleeps longer than told: both are as seen last. What ksmd had too little or too
    /// much until now is made up for.
    pub fn knobs(&mut self, share: f64, now: &Sample, history: &History, limits: &Limits) -> Knobs {
        let whole = BATCH.as_nanos() as f64 / history.ns_per_page().max(1.0);
        if share >= NO_SLEEP && limits.min_sleep_milliseconds == 0 {
            self.reset();
            let current = now.ksm.pages_to_scan.get().unwrap_or(0) as f64;
            return settings(steady(current, whole), 0);
        }
        // As long a sleep as a full batch leaves room for; share < 0.9 makes this at least half a millisecond.
        let sleep_ms = BATCH.as_secs_f64() * 1000.0 / odds(share);
        let sleep_ms = sleep_ms.max(f64::from(limits.min_sleep_milliseconds)).clamp(1.0, 10_000.0).round();
        let aim = self.account.aim(share, now).min(share.max(NO_SLEEP));
        let cost_ns = self.cost_ns(now, history);
        let sleep_ns = sleep_ms * 1e6 + history.oversleeps().as_nanos() as f64;
        // The kernel's rounding may make sleeps several times longer than asked; the batch then has to be too.
        let pages = (odds(aim) * sleep_ns / cost_ns).clamp(1.0, (whole * 8.0).max(1.0));
        let pages = steady(self.batch.map_or(0.0, |batch| batch.pages), pages);
        if self.batch.is_none_or(|batch| (batch.pages, batch.sleep_ms) != (pages, sleep_ms)) {
            self.changed = now.at;
        }
        self.batch = Some(Batch { pages, sleep_ms, cost_ns });
        settings(pages, sleep_ms as u64)
    }

    /// What a visit costs. Before Linux 6.6, which counts no visits, it is reckoned from the share that the batch in force
    /// has come to, as if ksmd slept no longer than told.
    fn cost_ns(&self, now: &Sample, history: &History) -> f64 {
        let Some(batch) = self.batch.filter(|_| now.ksm.pages_scanned.get().is_none()) else {
            return history.ns_per_page().max(1.0);
        };
        let measured = history.ksmd_share().filter(|measured| *measured > 0.001 && self.settled(now.at));
        measured.map_or(batch.cost_ns, |measured| {
            let seen = odds(measured.min(0.99)) * batch.sleep_ms * 1e6 / batch.pages;
            seen.clamp(batch.cost_ns / 4.0, batch.cost_ns * 4.0)
        })
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

/// How long a batch may be in force at most: where ksmd is to keep to a share, what a visit costs has to be seen soon, since
/// those that merge cost five times as much as those before.
pub fn look_after(share: f64) -> Duration {
    Duration::from_millis(if share < NO_SLEEP { 125 } else { 250 })
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

    /// What ksmd has of a CPU in each of so many eighths of a second, where it is to have `meant`, spends `cost_ns` on each
    /// page and sleeps so much longer than told. Before Linux 6.6 nobody `counts` visits.
    fn shares(
        eighths: u32,
        counts: bool,
        oversleeps_ns: f64,
        meant: impl Fn(u32) -> f64,
        cost_ns: impl Fn(u32) -> f64,
    ) -> Vec<f64> {
        const EIGHTH_NS: f64 = 125e6;
        let (mut duty, mut history) = (Duty::default(), History::default());
        let (mut cpu, mut visited, mut set) = (0.0, 0.0, Knobs::none());
        let one = |eighth: u32| {
            let mut sample = Sample { at: Duration::from_millis(125) * eighth, ..Sample::default() };
            sample.ksmd_cpu_ns = Reading::Value(cpu as u64);
            sample.ksm.run = Reading::Value(1);
            let of = |knob| set.get(knob).map_or(Reading::Absent, Reading::Value);
            sample.ksm.pages_to_scan = of(Knob::PagesToScan);
            sample.ksm.sleep_millisecs = of(Knob::SleepMillisecs);
            if counts {
                sample.ksm.pages_scanned = Reading::Value(visited as u64);
            }
            history.push(&sample);
            set = duty.knobs(meant(eighth), &sample, &history, &Limits::default());
            let batch = set.get(Knob::PagesToScan).unwrap() as f64 * cost_ns(eighth);
            let sleep = set.get(Knob::SleepMillisecs).unwrap() as f64 * 1e6;
            let share = batch / (batch + sleep + if sleep > 0.0 { oversleeps_ns } else { 0.0 });
            cpu += share * EIGHTH_NS;
            visited += share * EIGHTH_NS / cost_ns(eighth);
            share
        };
        (0..eighths).map(one).collect()
    }

    fn mean(shares: &[f64]) -> f64 {
        shares.iter().sum::<f64>() / shares.len() as f64
    }

    #[test]
    fn the_share_is_held_whatever_a_page_costs_and_however_the_kernel_rounds() {
        for meant in [0.05, 0.2, 0.5, 0.8] {
            for cost_ns in [1300.0, 4000.0, 7000.0] {
                for oversleeps_ns in [0.0, 3e6] {
                    for counts in [true, false] {
                        let shares = shares(80, counts, oversleeps_ns, |_| meant, |_| cost_ns);
                        let share = mean(&shares[40..]);
                        let what =
                            format!("{meant} at {cost_ns} ns, {oversleeps_ns} ns too long, {counts}: {share}");
                        assert!((share / meant - 1.0).abs() < 0.05, "{what}");
                    }
                }
            }
        }
        assert_eq!(shares(40, true, 3e6, |_| 1.0, |_| 4000.0)[39], 1.0);
    }

    #[test]
    fn the_share_is_held_over_five_seconds_although_costs_jump() {
        for counts in [true, false] {
            // A second of checksums, and then half of one in which nearly all merges.
            let cost_ns = |eighth: u32| if eighth % 12 < 8 { 1300.0 } else { 7000.0 };
            for window in shares(400, counts, 3e6, |_| 0.2, cost_ns)[40..].windows(40) {
                let share = mean(window);
                assert!((0.18..=0.22).contains(&share), "{share:.3}, visits counted: {counts}");
            }
        }
    }

    #[test]
    fn a_sleep_that_has_to_be_leaves_the_rest_of_a_whole_cpu() {
        let limits = Limits { min_sleep_milliseconds: 1, ..Limits::default() };
        let now = Sample { ksmd_cpu_ns: Reading::Value(0), ..Sample::default() };
        let knobs = Duty::default().knobs(1.0, &now, &History::default(), &limits);
        // 4 us a page.
        let batch_ms = knobs.get(Knob::PagesToScan).unwrap() as f64 * 0.004;
        assert_eq!(knobs.get(Knob::SleepMillisecs), Some(1));
        assert!(batch_ms / (batch_ms + 1.0) > 0.95, "{batch_ms}");
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
        for counts in [true, false] {
            let moving = |eighth: u32| if eighth % 4 < 2 { 0.3 } else { 0.35 };
            let share = mean(&shares(160, counts, 3e6, moving, |_| 4000.0)[40..]);
            assert!((share / 0.325 - 1.0).abs() < 0.05, "{share}");
        }
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
