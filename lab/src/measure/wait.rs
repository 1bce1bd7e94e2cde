//! How long savings take where what could be saved changes all the time.

use super::series::Series;

/// The longest time for which less than `part` was saved of what could have been saved all that time, in seconds.
///
/// `None` if that time lasted until the end of the run: the part was never saved.
pub fn longest_wait(series: &Series, part: f64) -> Option<f64> {
    let Some(last) = series.points.last() else { return None };
    let mut longest = 0.0_f64;
    for pair in series.points.windows(2) {
        let [point, next] = pair else { continue };
        if let Some(since) = missing_since(series, point.at, point.saved_bytes as f64 / part) {
            longest = longest.max(next.at - since);
        }
    }
    let lasts = missing_since(series, last.at, last.saved_bytes as f64 / part).map(|since| last.at - since);
    let is_reached = lasts.is_none_or(|lasts| lasts < longest);
    (is_reached && !series.attainable.is_empty()).then_some(longest)
}

/// Since when more than `enough` bytes could be saved without a break. `None` if that is not so at the moment `at`.
fn missing_since(series: &Series, at: f64, enough: f64) -> Option<f64> {
    let count = series.attainable.partition_point(|step| step.at <= at);
    let steps = series.attainable.get(..count)?;
    let first = steps.iter().rposition(|step| step.bytes as f64 <= enough).map_or(0, |before| before + 1);
    steps.get(first).map(|step| step.at)
}
