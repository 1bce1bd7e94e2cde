//! The difference between a simulated run and a live one.

use std::fmt;

use super::trace::TracedRun;

/// The difference between a simulated run and the live one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunDifference {
    /// The greatest difference of saved memory over all samples, as a part of the live run's savings at the end. If the
    /// live run saved nothing at the end, its peak is the measure; if it never saved anything, the simulated run's
    /// peak.
    pub saved: f64,
    /// The moment of that difference, in seconds.
    pub at: f64,
    /// The mean difference of saved memory over the run, in the same measure. It has a sign: above 0 the simulated one saved more.
    pub mean: f64,
    /// The CPU time of ksmd, simulated and live, in seconds.
    pub cpu: [f64; 2],
    /// Passes, simulated and live.
    pub passes: [u64; 2],
}

/// ksmd's CPU time in seconds that is next to nothing: the ratio of two such figures means nothing.
const LITTLE_CPU: f64 = 0.05;

impl TracedRun {
    /// Saved bytes at a moment, linear between two samples.
    pub(super) fn saved_at(&self, at: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 < at);
        let (before, after) = (self.points.get(after.saturating_sub(1)), self.points.get(after));
        match (before, after) {
            (Some(a), Some(b)) if b.0 > a.0 => a.1 as f64 + (b.1 as f64 - a.1 as f64) * (at - a.0) / (b.0 - a.0),
            (Some(a), _) => a.1 as f64,
            _ => 0.0,
        }
    }

    pub(super) fn cpu(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.2)
    }
}

impl RunDifference {
    /// Compares a simulated run with a live one, at the samples of the live one.
    pub fn between(simulated: &TracedRun, live: &TracedRun) -> Self {
        let last = live.points.last().map_or(0, |point| point.1);
        let most = |run: &TracedRun| run.points.iter().map(|point| point.1).max().unwrap_or(0);
        let unit = [last, most(live), most(simulated)].into_iter().find(|bytes| *bytes > 0).unwrap_or(1) as f64;
        let apart =
            live.points.iter().map(|point| (point.0, (simulated.saved_at(point.0) - point.1 as f64) / unit));
        let (at, saved) = apart.clone().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).unwrap_or_default();
        let mean = apart.map(|(_, apart)| apart).sum::<f64>() / live.points.len().max(1) as f64;
        Self {
            saved: saved.abs(),
            at,
            mean,
            cpu: [simulated.cpu(), live.cpu()],
            passes: [simulated.passes, live.passes],
        }
    }

    /// The CPU time of ksmd, simulated over live. 1 where both are next to nothing.
    pub fn cpu_ratio(&self) -> f64 {
        let [simulated, live] = self.cpu;
        if simulated.max(live) < LITTLE_CPU { 1.0 } else { simulated / live.max(f64::MIN_POSITIVE) }
    }

    /// Returns true if the simulator's aim is met: saved memory within 5 % at each sample, ksmd's CPU within 10 %,
    /// passes within one.
    pub fn is_within_aim(&self) -> bool {
        self.saved <= 0.05
            && (0.9..=1.1).contains(&self.cpu_ratio())
            && self.passes[0].abs_diff(self.passes[1]) <= 1
    }
}

/// The cells of a row: greatest and mean difference, CPU, passes, and whether the aim is met.
impl fmt::Display for RunDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { saved, at, mean, cpu: [simulated, live], passes: [passes, live_passes] } = self;
        let (saved, mean, ratio) = (100.0 * saved, 100.0 * mean, self.cpu_ratio());
        let met = if self.is_within_aim() { "yes" } else { "no" };
        write!(
            f,
            "{saved:.1} % at {at:.1} s | {mean:+.1} % | {simulated:.2} / {live:.2} s = {ratio:.2} | {passes} / {live_passes} | {met}"
        )
    }
}
