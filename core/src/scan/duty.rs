//! Holding ksmd to a share of one CPU by its batch and its sleep.

use std::time::Duration;

use super::KsmdState;
use crate::knobs::{Knob, KnobSettings};

/// A batch can't be interrupted, and writing `run` waits for its end: it should stay imperceptible.
const BATCH: Duration = Duration::from_millis(5);

/// From this part of a CPU on, ksmd does not sleep at all: the shortest sleep there is, one tick of the
/// kernel's clock (4 ms at 250 Hz), would keep it below.
const NO_SLEEP: f64 = 0.9;

/// Visits that the last batch of a pass has to spare, and the sleep after it: long enough to be seen.
const LAST_SPARE: u64 = 512;
const MOST_LEFT: u64 = 1 << 30;
const LAST_SLEEP_MS: u64 = 100;

/// Changes of the batch smaller than this are not worth a write.
const TOLERANCE: f64 = 0.1;

/// Bound of the integral error, in seconds at the share. It is corrected within a second: a larger one would make the
/// next seconds' share as wrong as the last ones' was.
const MOST_INTEGRAL_ERROR: f64 = 0.2;

/// The regulator of ksmd's CPU share.
#[derive(Debug, Clone, Default)]
pub struct DutyRegulator {
    /// The batch in force.
    batch: Option<PacedBatch>,
    /// The time when the knobs last changed: a share measured across that moment says nothing of the new batch.
    changed: Duration,
    /// The error of ksmd's CPU time since it was started.
    state: IntegralController,
}

/// A batch and the sleep after it.
#[derive(Debug, Clone, Copy)]
struct PacedBatch {
    pages: f64,
    sleep_ms: f64,
    cost_ns: f64,
}

/// The state of an integral controller. Each measurement is rough (a few batches, the last cut off anywhere) and comes
/// after the cost of a visit has changed; their sum is exact.
#[derive(Debug, Clone, Copy, Default)]
struct IntegralController {
    /// Time and CPU time at the last sample, and the share intended from there on.
    last: Option<(Duration, u64, f64)>,
    /// CPU-seconds intended minus CPU-seconds used.
    integral_error: f64,
}

impl IntegralController {
    /// Records the time since the last sample, and returns the share that corrects the error: `share + integral_error`.
    fn aim(&mut self, share: f64, now: &KsmdState) -> f64 {
        let Some(cpu_ns) = now.cpu_ns else { return share };
        if let Some((at, before_ns, meant)) = self.last.replace((now.at, cpu_ns, share)) {
            let had = cpu_ns.saturating_sub(before_ns) as f64 / 1e9;
            self.integral_error += meant * now.at.saturating_sub(at).as_secs_f64() - had;
        }
        self.integral_error = self.integral_error.clamp(-MOST_INTEGRAL_ERROR * share, MOST_INTEGRAL_ERROR * share);
        share + self.integral_error
    }
}

impl DutyRegulator {
    /// Forgets the batch and the error: ksmd was stopped.
    pub fn reset(&mut self) {
        self.batch = None;
        self.state = IntegralController::default();
    }

    /// The knobs that hold ksmd to `share` of a CPU (over 0, at most 1).
    ///
    /// `batch_ns = share / (1 - share) * (sleep_ns + oversleep_ns)`, since `share = batch / (batch + sleep)`. A visit
    /// that merges costs five times one that does not, and ksmd sleeps longer than told: both are as measured last.
    pub fn knobs(&mut self, share: f64, now: &KsmdState) -> KnobSettings {
        let whole = BATCH.as_nanos() as f64 / now.ns_per_page.max(1.0);
        if share >= NO_SLEEP && now.min_sleep_milliseconds == 0 {
            self.reset();
            let current = now.pages_to_scan as f64;
            return settings(steady(current, whole), 0);
        }
        // The sleep that belongs to a full batch; share < 0.9 makes this at least half a millisecond.
        let sleep_ms = BATCH.as_secs_f64() * 1000.0 / odds(share);
        let sleep_ms = sleep_ms.max(f64::from(now.min_sleep_milliseconds)).clamp(1.0, 10_000.0).round();
        let aim = self.state.aim(share, now).min(share.max(NO_SLEEP));
        let cost_ns = self.cost_ns(now);
        let sleep_ns = sleep_ms * 1e6 + now.oversleeps.as_nanos() as f64;
        // The kernel's rounding may make sleeps several times longer than asked; the batch then has to be too.
        let pages = (odds(aim) * sleep_ns / cost_ns).clamp(1.0, (whole * 8.0).max(1.0));
        let pages = steady(self.batch.map_or(0.0, |batch| batch.pages), pages);
        if self.batch.is_none_or(|batch| (batch.pages, batch.sleep_ms) != (pages, sleep_ms)) {
            self.changed = now.at;
        }
        self.batch = Some(PacedBatch { pages, sleep_ms, cost_ns });
        settings(pages, sleep_ms as u64)
    }

    /// The cost of a visit. Before Linux 6.6, which counts no visits, it is derived from the measured share of the
    /// batch in force, as if ksmd slept no longer than told.
    fn cost_ns(&self, now: &KsmdState) -> f64 {
        let Some(batch) = self.batch.filter(|_| now.visited.is_none()) else {
            return now.ns_per_page.max(1.0);
        };
        let measured = now.used_share.filter(|measured| *measured > 0.001 && self.settled(now.at));
        measured.map_or(batch.cost_ns, |measured| {
            let seen = odds(measured.min(0.99)) * batch.sleep_ms * 1e6 / batch.pages;
            seen.clamp(batch.cost_ns / 4.0, batch.cost_ns * 4.0)
        })
    }

    /// The knobs for the last `left` visits of a pass: one batch, which the pass's end cuts short, and then a sleep
    /// in which ksmd can be stopped right there.
    pub fn last_batch(&mut self, left: u64, min_sleep_milliseconds: u32) -> KnobSettings {
        self.batch = None;
        let sleep_ms = LAST_SLEEP_MS.max(min_sleep_milliseconds.into());
        settings(last_batch_pages(left) as f64, sleep_ms)
    }

    /// Returns true if the last sample's interval lies wholly behind the last change. The change is made right after
    /// the sample it was decided on, so the next sample measures the new batch alone.
    fn settled(&self, now: Duration) -> bool {
        now > self.changed
    }
}

/// The longest time that a batch may be in force. Below a whole CPU it is short, since the cost of a visit changes
/// fivefold when pages begin to merge.
pub fn look_after(share: f64) -> Duration {
    Duration::from_millis(if share < NO_SLEEP { 125 } else { 250 })
}

/// Pages in the last batch of a pass of which so many are left. A kernel that counts nonsense is not to be asked for
/// more than it takes.
pub fn last_batch_pages(left: u64) -> u64 {
    let left = left.min(MOST_LEFT);
    left + left / 4 + LAST_SPARE
}

fn odds(share: f64) -> f64 {
    share / (1.0 - share).max(0.001)
}

/// `wanted`, or `current` where the difference is not worth a write.
fn steady(current: f64, wanted: f64) -> f64 {
    if (wanted - current).abs() <= TOLERANCE * current { current } else { wanted }
}

fn settings(batch: f64, sleep_ms: u64) -> KnobSettings {
    KnobSettings::none().with(Knob::PagesToScan, (batch as u64).max(1)).with(Knob::SleepMillisecs, sleep_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::PassHistory;
    use crate::limits::PolicyLimits;
    use crate::reading::Reading;
    use crate::sample::Sample;

    /// Returns ksmd's share of a CPU in each of so many eighths of a second. The intended share is `meant`, a page
    /// costs `cost_ns`, and each sleep is `oversleeps_ns` longer than told. Before Linux 6.6 the kernel does not count
    /// visits.
    fn shares(
        eighths: u32,
        counts: bool,
        oversleeps_ns: f64,
        meant: impl Fn(u32) -> f64,
        cost_ns: impl Fn(u32) -> f64,
    ) -> Vec<f64> {
        const EIGHTH_NS: f64 = 125e6;
        let (mut duty, mut history) = (DutyRegulator::default(), PassHistory::default());
        let (mut cpu, mut visited, mut set) = (0.0, 0.0, KnobSettings::none());
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
            set = duty.knobs(meant(eighth), &KsmdState::from_sample(&sample, &history, &PolicyLimits::default()));
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
        let limits = PolicyLimits { min_sleep_milliseconds: 1, ..PolicyLimits::default() };
        let now = Sample { ksmd_cpu_ns: Reading::Value(0), ..Sample::default() };
        let knobs =
            DutyRegulator::default().knobs(1.0, &KsmdState::from_sample(&now, &PassHistory::default(), &limits));
        // 4 us a page.
        let batch_ms = knobs.get(Knob::PagesToScan).unwrap() as f64 * 0.004;
        assert_eq!(knobs.get(Knob::SleepMillisecs), Some(1));
        assert!(batch_ms / (batch_ms + 1.0) > 0.95, "{batch_ms}");
    }

    #[test]
    fn the_last_batch_covers_what_is_left_and_stays_within_what_the_kernel_takes() {
        let knobs = DutyRegulator::default().last_batch(1000, 200);
        assert_eq!((knobs.get(Knob::PagesToScan), knobs.get(Knob::SleepMillisecs)), (Some(1762), Some(200)));
        let knobs = DutyRegulator::default().last_batch(u64::MAX, 200);
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
}
