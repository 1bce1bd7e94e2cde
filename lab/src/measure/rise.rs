//! The time from a rise of the attainable savings until they are saved.

use schemars::JsonSchema;
use serde::Serialize;

use super::series::RunSeries;

/// Guests that start within this many seconds of each other count as one event.
const TOGETHER: f64 = 5.0;

/// One rise of the attainable savings, and the time until they were saved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct SavingsRise {
    /// End of the rise, in seconds since the start of the run.
    pub at: f64,
    /// Attainable bytes that were not yet saved when the rise began.
    pub missing_bytes: u64,
    /// Seconds from `at` until 50 % of `missing_bytes` were saved. `null` if another event came first.
    pub seconds_to_50: Option<f64>,
    /// Seconds from `at` until 90 % of `missing_bytes` were saved.
    pub seconds_to_90: Option<f64>,
    /// Seconds from `at` until 99 % of `missing_bytes` were saved.
    pub seconds_to_99: Option<f64>,
}

/// Finds every rise of the attainable savings. A rise ends where the next begins, where the attainable savings
/// fall, or with the run.
pub fn rises(series: &RunSeries) -> Vec<SavingsRise> {
    let steps = &series.attainable;
    let mut rises = Vec::new();
    let mut before = 0;
    let mut next = 0;
    while let Some(first) = steps.get(next) {
        next += 1;
        if first.bytes <= before {
            before = first.bytes;
            continue;
        }
        let mut last = first;
        while let Some(step) = steps.get(next).filter(|s| s.bytes >= last.bytes && s.at - last.at <= TOGETHER) {
            // A guest without equal pages changes nothing, so its start does not delay the clock.
            last = if step.bytes > last.bytes { step } else { last };
            next += 1;
        }
        before = last.bytes;
        // Steps without a change of the attainable savings end no rise.
        let changes = steps.iter().skip(next).find(|step| step.bytes != last.bytes);
        let end = changes.map_or(f64::INFINITY, |step| step.at);
        rises.extend(rise(series, first.at, last.at, end, last.bytes));
    }
    rises
}

fn rise(series: &RunSeries, begin: f64, at: f64, end: f64, target: u64) -> Option<SavingsRise> {
    let saved_before = series.points.iter().take_while(|p| p.at <= begin).last().map_or(0, |p| p.saved_bytes);
    let missing = target.checked_sub(saved_before).filter(|missing| *missing > 0)?;
    let reached = |part: f64| {
        let wanted = saved_before as f64 + part * missing as f64;
        let within = series.points.iter().filter(|point| point.at >= begin && point.at < end);
        let first = within.into_iter().find(|point| point.saved_bytes as f64 >= wanted)?;
        Some((first.at - at).max(0.0))
    };
    Some(SavingsRise {
        at,
        missing_bytes: missing,
        seconds_to_50: reached(0.5),
        seconds_to_90: reached(0.9),
        seconds_to_99: reached(0.99),
    })
}
