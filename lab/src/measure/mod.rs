//! The figures of one run, derived from its series. The same series always gives the same figures.

mod known;
mod rise;
mod series;
mod spread;
mod wait;

use ksmith_core::trial::BalancingRecord;
use schemars::JsonSchema;
use serde::Serialize;

pub use known::KnownGuests;
pub use rise::{SavingsRise, rises};
pub use series::{AttainableStep, RunSeries, SeriesPoint, TruthPoint};
pub use spread::Spread;
pub use wait::longest_wait;

const GIB: f64 = (1_u64 << 30) as f64;

/// Figures of one run that are not in its series.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunCounts {
    /// Pages that the guests' workers processed.
    pub work_pages: u64,
    /// Seconds that guests took to rewrite and refill parts.
    pub rewrite_seconds: f64,
    /// Peak resident memory of the controller.
    pub controller_rss_bytes: u64,
    /// Complete passes of ksmd.
    pub passes: u64,
    /// Pages of guests with wrong content.
    pub wrong_pages: usize,
    /// Proportional set size of all guests at the end.
    pub held_bytes: Option<u64>,
    /// The figures of balancing, if it was simulated.
    pub balance: Option<BalancingRecord>,
}

/// The figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RunMeasures {
    /// The most bytes that could be saved at any time.
    pub attainable_bytes: u64,
    /// Bytes saved at the end, at most the attainable ones.
    pub saved_bytes: u64,
    /// Each rise of the attainable savings, and the time until they were saved. Empty in a restless series.
    pub rises: Vec<SavingsRise>,
    /// Seconds until 50 % were saved, in the slowest rise. `null` if a rise did not reach that.
    pub seconds_to_50: Option<f64>,
    /// Seconds until 90 % were saved, in the slowest rise. `null` if a rise did not reach that.
    pub seconds_to_90: Option<f64>,
    /// Seconds until 99 % were saved, in the slowest rise. `null` if a rise did not reach that.
    pub seconds_to_99: Option<f64>,
    /// Integral of the saved memory over time.
    pub gib_seconds: f64,
    /// Integral of the attainable savings over time.
    pub attainable_gib_seconds: f64,
    /// CPU time of ksmd.
    pub ksmd_cpu_seconds: f64,
    /// Peak CPU share of ksmd over 5 seconds, in per cent of a CPU.
    pub ksmd_peak_percent: f64,
    /// CPU share of ksmd and the controller in the last third of the run, in per cent of a CPU.
    pub late_percent: f64,
    /// CPU time of the controller.
    pub controller_cpu_seconds: f64,
    /// Peak resident memory of the controller.
    pub controller_rss_bytes: u64,
    /// Merged pages that were copied on a write.
    pub breaks: u64,
    /// Complete passes of ksmd.
    pub passes: u64,
    /// Pages that the guests' workers processed.
    pub work_pages: u64,
    /// Seconds that guests took to rewrite and refill parts.
    pub rewrite_seconds: f64,
    /// Pages of guests with wrong content. More than 0 means that merging has damaged memory.
    pub wrong_pages: usize,
    /// Proportional set size of all guests at the end: less than without KSM by what is really saved. `null` if it can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_bytes: Option<u64>,
    /// Bytes that KSM counts as saved at the end, where guests are on huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_bytes: Option<u64>,
    /// Integral over time of what KSM counts, where guests are on huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_gib_seconds: Option<f64>,
    /// The figures of balancing, if it was simulated.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub balance: Option<BalancingRecord>,
}

impl RunMeasures {
    /// Derives the figures of a run.
    pub fn from_series(series: &RunSeries, counted: &RunCounts) -> Self {
        let last = series.points.last().copied().unwrap_or_default();
        let rises = if series.is_restless { Vec::new() } else { rises(series) };
        let slowest = |part: f64, time: fn(&SavingsRise) -> Option<f64>| {
            if series.is_restless {
                return longest_wait(series, part);
            }
            let times: Option<Vec<f64>> = rises.iter().map(time).collect();
            times.and_then(|times| times.into_iter().reduce(f64::max))
        };
        let cpu = |point: &SeriesPoint| point.ksmd_cpu_seconds + point.controller_cpu_seconds;
        Self {
            attainable_bytes: series.attainable.iter().map(|step| step.bytes).max().unwrap_or(0),
            saved_bytes: last.saved_bytes.min(series.attainable_at(last.at)),
            seconds_to_50: slowest(0.5, |rise| rise.seconds_to_50),
            seconds_to_90: slowest(0.90, |rise| rise.seconds_to_90),
            seconds_to_99: slowest(0.99, |rise| rise.seconds_to_99),
            rises,
            gib_seconds: series.integral(f64::min) / GIB,
            attainable_gib_seconds: series.integral(|_, attainable| attainable) / GIB,
            ksmd_cpu_seconds: last.ksmd_cpu_seconds,
            ksmd_peak_percent: 100.0 * series.peak_rate(5.0, |point| point.ksmd_cpu_seconds),
            late_percent: 100.0 * series.rate_since(last.at * 2.0 / 3.0, cpu),
            controller_cpu_seconds: last.controller_cpu_seconds,
            controller_rss_bytes: counted.controller_rss_bytes,
            breaks: last.breaks,
            passes: counted.passes,
            work_pages: counted.work_pages,
            rewrite_seconds: counted.rewrite_seconds,
            wrong_pages: counted.wrong_pages,
            held_bytes: counted.held_bytes,
            counted_bytes: series.truth.last().map(|point| point.counted_bytes),
            counted_gib_seconds: series.counted_integral().map(|bytes| bytes / GIB),
            balance: counted.balance,
        }
    }
}

/// A figure that is summarised over repeats.
#[derive(Debug, Clone, Copy)]
pub struct SummaryFigure {
    /// Key in `results.json`.
    pub key: &'static str,
    /// Reads the figure from a run. `None` if the run did not reach it.
    pub of: fn(&RunMeasures) -> Option<f64>,
}

/// All figures of a summary, in the order of `results.json`.
pub const FIGURES: [SummaryFigure; 15] = [
    SummaryFigure { key: "saved_bytes", of: |m| Some(m.saved_bytes as f64) },
    SummaryFigure { key: "seconds_to_50", of: |m| m.seconds_to_50 },
    SummaryFigure { key: "seconds_to_90", of: |m| m.seconds_to_90 },
    SummaryFigure { key: "seconds_to_99", of: |m| m.seconds_to_99 },
    SummaryFigure { key: "gib_seconds", of: |m| Some(m.gib_seconds) },
    SummaryFigure { key: "ksmd_cpu_seconds", of: |m| Some(m.ksmd_cpu_seconds) },
    SummaryFigure { key: "ksmd_peak_percent", of: |m| Some(m.ksmd_peak_percent) },
    SummaryFigure { key: "late_percent", of: |m| Some(m.late_percent) },
    SummaryFigure { key: "controller_cpu_seconds", of: |m| Some(m.controller_cpu_seconds) },
    SummaryFigure { key: "controller_rss_bytes", of: |m| Some(m.controller_rss_bytes as f64) },
    SummaryFigure { key: "breaks", of: |m| Some(m.breaks as f64) },
    SummaryFigure { key: "passes", of: |m| Some(m.passes as f64) },
    SummaryFigure { key: "work_pages", of: |m| Some(m.work_pages as f64) },
    SummaryFigure { key: "rewrite_seconds", of: |m| Some(m.rewrite_seconds) },
    SummaryFigure { key: "wrong_pages", of: |m| Some(m.wrong_pages as f64) },
];

/// Figures of a summary where guests are on huge pages: those of the counters, which do not tell what is saved.
pub const COUNTED_FIGURES: [SummaryFigure; 2] = [
    SummaryFigure { key: "counted_bytes", of: |m| m.counted_bytes.map(|bytes| bytes as f64) },
    SummaryFigure { key: "counted_gib_seconds", of: |m| m.counted_gib_seconds },
];

/// Figure of a summary where guests run.
pub const HELD_FIGURE: SummaryFigure =
    SummaryFigure { key: "held_bytes", of: |m| m.held_bytes.map(|bytes| bytes as f64) };

/// Figures of a summary where guests were balanced.
pub const BALANCE_FIGURES: [SummaryFigure; 8] = [
    SummaryFigure { key: "overflow_seconds", of: |m| Some(m.balance?.overflow_seconds) },
    SummaryFigure { key: "overflow_gib_seconds", of: |m| Some(m.balance?.overflow_gib_seconds) },
    SummaryFigure { key: "most_overflow_bytes", of: |m| Some(m.balance?.most_overflow_bytes as f64) },
    SummaryFigure { key: "taken_bytes", of: |m| Some(m.balance?.taken_bytes as f64) },
    SummaryFigure { key: "away_gib_seconds", of: |m| Some(m.balance?.away_gib_seconds) },
    SummaryFigure { key: "refaults", of: |m| Some(m.balance?.refaults as f64) },
    SummaryFigure { key: "waited_seconds", of: |m| Some(m.balance?.waited_seconds) },
    SummaryFigure { key: "guest_kills", of: |m| Some(m.balance?.guest_kills as f64) },
];

#[cfg(test)]
mod tests;
