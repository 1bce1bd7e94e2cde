//! Aggregation of rows, to limit their number.

use std::collections::BTreeMap;

use super::rows::{RequestedColumn, Rows, recorded, time_of};
use crate::query::ReportQuery;
use crate::tier::HistoryTier;

/// Aggregates rows into at most `most` buckets: a host's gauges by their mean, all other values by the last one.
/// Returns the rows and the time between two of them.
pub(super) fn aggregate_rows(
    rows: Rows,
    query: &ReportQuery,
    tier: HistoryTier,
    most: usize,
    columns: &[RequestedColumn],
    is_of_guest: bool,
) -> (Rows, i64) {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let span = query.until.saturating_sub(query.since).max(1);
    let finest = tier.milliseconds();
    if i64::try_from(rows.len()).unwrap_or(i64::MAX) <= most {
        return (rows, finest);
    }
    let width = (span / most + 1).max(finest);
    let mut buckets: BTreeMap<i64, Rows> = BTreeMap::new();
    for row in rows {
        let bucket = time_of(Some(&row)).unwrap_or(query.since).saturating_sub(query.since) / width;
        buckets.entry(bucket).or_default().push(row);
    }
    let one = |rows: Rows| {
        let last = rows.last().cloned().unwrap_or_default();
        let value = |at: usize| match columns.get(at.wrapping_sub(1)) {
            Some(column) if column.is_averaged && !is_of_guest => mean(&rows, at),
            None if at > 0 => Some(rows.iter().map(|row| recorded(row)).sum()),
            _ => last.get(at).copied().flatten(),
        };
        (0..last.len()).map(value).collect()
    };
    (buckets.into_values().map(one).collect(), width)
}

/// Returns the mean of a column over the recorded time, or over rows where no time is recorded.
fn mean(rows: &Rows, at: usize) -> Option<f64> {
    let known = || rows.iter().filter_map(|row| Some(((*row.get(at)?)?, recorded(row))));
    let time: f64 = known().map(|(_, time)| time).sum();
    if time > 0.0 {
        return Some(known().map(|(value, time)| value * time).sum::<f64>() / time);
    }
    let count = known().count();
    (count > 0).then(|| known().map(|(value, _)| value).sum::<f64>() / count as f64)
}
