//! How soon what can newly be saved is saved.

use serde::Serialize;

use super::series::Series;

/// Guests that start within so many seconds of each other count as one event.
const TOGETHER: f64 = 5.0;

/// A part of what was missing that is merged, and when.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rise {
    /// When all of it was there to be saved, in seconds since the start.
    pub at: f64,
    /// What was attainable and not yet saved when it began.
    pub missing_bytes: u64,
    /// Seconds from `at` until half of that was saved. `None`: not before something else happened.
    pub seconds_to_50: Option<f64>,
    /// The same for 90 %.
    pub seconds_to_90: Option<f64>,
    /// The same for 99 %.
    pub seconds_to_99: Option<f64>,
}

/// Every rise of what can be saved. One ends where the next begins, where what can be saved falls, or with the run.
pub fn rises(series: &Series) -> Vec<Rise> {
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
            // A step that changes nothing, as when a guest with nothing to share starts, does not delay the clock.
            last = if step.bytes > last.bytes { step } else { last };
            next += 1;
        }
        before = last.bytes;
        // Nothing new to be saved is nothing new.
        let changes = steps.iter().skip(next).find(|step| step.bytes != last.bytes);
        let end = changes.map_or(f64::INFINITY, |step| step.at);
        rises.extend(rise(series, first.at, last.at, end, last.bytes));
    }
    rises
}

fn rise(series: &Series, begin: f64, at: f64, end: f64, target: u64) -> Option<Rise> {
    let saved_before = series.points.iter().take_while(|p| p.at <= begin).last().map_or(0, |p| p.saved_bytes);
    let missing = target.checked_sub(saved_before).filter(|missing| *missing > 0)?;
    let reached = |part: f64| {
        let wanted = saved_before as f64 + part * missing as f64;
        let within = series.points.iter().filter(|point| point.at >= begin && point.at < end);
        let first = within.into_iter().find(|point| point.saved_bytes as f64 >= wanted)?;
        Some((first.at - at).max(0.0))
    };
    Some(Rise {
        at,
        missing_bytes: missing,
        seconds_to_50: reached(0.5),
        seconds_to_90: reached(0.9),
        seconds_to_99: reached(0.99),
    })
}
