//! Statistics over a time range: means, sums, and the result of each decision.

use serde::Serialize;
use serde_json::Value as Json;

use crate::moment::is_beside_the_policy;
use crate::reader::{DecisionRow, HistoryReport};

/// Savings and costs of merging over a time range.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistorySummary {
    /// Recorded time, in seconds.
    pub recorded_seconds: f64,
    /// Mean of the memory saved.
    pub saved_mean_bytes: f64,
    /// Memory saved at the end of the range.
    pub saved_last_bytes: f64,
    /// Maximum of the memory saved.
    pub saved_max_bytes: f64,
    /// Integral of the memory saved over time.
    pub saved_gib_hours: f64,
    /// CPU time used by ksmd.
    pub ksmd_cpu_seconds: f64,
    /// CPU time used by the daemon.
    pub daemon_cpu_seconds: f64,
    /// Maximum exposure: memory that the host would need if all merged pages diverged.
    pub exposure_max_bytes: f64,
    /// Minimum headroom: memory available for that.
    pub headroom_min_bytes: Option<f64>,
    /// Time during which the exposure exceeded the headroom.
    pub exposed_seconds: f64,
    /// Huge pages of the processes that merge, where they were recorded.
    pub huge_pages: Option<HugeSummary>,
}

/// Huge pages that merging left and split over a time range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HugeSummary {
    /// Memory in huge pages at the end of the range.
    pub huge_last_bytes: f64,
    /// Memory that merging had split by then.
    pub split_last_bytes: f64,
    /// CPU time that programs have lost by splits, at most.
    pub lost_cpu_seconds: f64,
}

/// The interval from one decision to the next.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DecisionEpisode {
    /// The decision at its beginning.
    pub decision: DecisionRow,
    /// Its length, in seconds.
    pub seconds: f64,
    /// Difference of the memory saved between its end and its beginning.
    pub gained_bytes: f64,
    /// CPU time that ksmd used in it.
    pub ksmd_cpu_seconds: f64,
}

/// The numbers of one row.
#[derive(Debug, Clone, Copy)]
struct ReportPoint {
    time: f64,
    /// The recorded time that the row stands for, in seconds.
    recorded: f64,
    saved: Option<f64>,
    ksmd_percent: Option<f64>,
    exposure: Option<f64>,
    headroom: Option<f64>,
    daemon_cpu: Option<f64>,
    huge: Option<f64>,
    split: Option<f64>,
    split_cpus: Option<f64>,
}

fn points(report: &HistoryReport) -> Vec<ReportPoint> {
    let at = |name: &str| report.columns.iter().position(|column| column == name);
    let columns = [
        "saved_bytes",
        "ksmd_cpu_percent",
        "exposure_bytes",
        "headroom_bytes",
        "daemon_cpu_seconds",
        "huge_bytes",
        "split_bytes",
        "split_cost_cpus",
    ]
    .map(at);
    let point = |(index, row): (usize, &Vec<Json>)| {
        let [saved, ksmd_percent, exposure, headroom, daemon_cpu, huge, split, split_cpus] =
            columns.map(|at| row.get(at?)?.as_f64());
        let recorded = report.recorded_seconds.get(index).copied().unwrap_or(0.0);
        Some(ReportPoint {
            time: row.first()?.as_f64()?,
            recorded,
            saved,
            ksmd_percent,
            exposure,
            headroom,
            daemon_cpu,
            huge,
            split,
            split_cpus,
        })
    };
    report.rows.iter().enumerate().filter_map(point).collect()
}

/// Summarizes a report on the host. `None` if nothing was recorded.
pub fn summary(report: &HistoryReport) -> Option<HistorySummary> {
    let points = points(report);
    let last = points.iter().rev().find_map(|point| point.saved)?;
    let mut summary = HistorySummary {
        recorded_seconds: 0.0,
        saved_mean_bytes: last,
        saved_last_bytes: last,
        saved_max_bytes: points.iter().filter_map(|point| point.saved).fold(0.0, f64::max),
        saved_gib_hours: 0.0,
        ksmd_cpu_seconds: 0.0,
        daemon_cpu_seconds: 0.0,
        exposure_max_bytes: points.iter().filter_map(|point| point.exposure).fold(0.0, f64::max),
        headroom_min_bytes: points.iter().filter_map(|point| point.headroom).reduce(f64::min),
        exposed_seconds: 0.0,
        huge_pages: huge_summary(&points),
    };
    let mut byte_seconds = 0.0;
    let mut known_seconds = 0.0;
    let mut daemon_before = daemon_cpu_before(report);
    for point in &points {
        summary.recorded_seconds += point.recorded;
        if let Some(saved) = point.saved {
            byte_seconds += saved * point.recorded;
            known_seconds += point.recorded;
        }
        summary.ksmd_cpu_seconds += cpu(point);
        if let Some(after) = point.daemon_cpu {
            summary.daemon_cpu_seconds += daemon_before.map_or(0.0, |before| since(before, after));
            daemon_before = Some(after);
        }
        if let (Some(exposure), Some(headroom)) = (point.exposure, point.headroom)
            && exposure > headroom
        {
            summary.exposed_seconds += point.recorded;
        }
    }
    if known_seconds > 0.0 {
        summary.saved_mean_bytes = byte_seconds / known_seconds;
    }
    summary.saved_gib_hours = byte_seconds / f64::from(1 << 30) / 3600.0;
    Some(summary)
}

/// Returns the sums of huge pages. `None` if no row has split memory.
fn huge_summary(points: &[ReportPoint]) -> Option<HugeSummary> {
    let last = points.iter().rev().find(|point| point.split.is_some())?;
    Some(HugeSummary {
        huge_last_bytes: last.huge.unwrap_or(0.0),
        split_last_bytes: last.split?,
        lost_cpu_seconds: points.iter().map(|point| point.split_cpus.unwrap_or(0.0) * point.recorded).sum(),
    })
}

/// Returns the CPU time that the daemon used between two rows. A restarted daemon counts from 0, and the time of a
/// reader child disappears when the child ends.
fn since(before: f64, after: f64) -> f64 {
    match after {
        after if after >= before => after - before,
        after if after < before / 2.0 => after,
        _ => 0.0,
    }
}

/// Returns the daemon's CPU time before the first row. A history that begins with a minute or an hour begins with the
/// daemon, which counts from 0.
fn daemon_cpu_before(report: &HistoryReport) -> Option<f64> {
    let at = report.columns.iter().position(|column| column == "daemon_cpu_seconds")?;
    match &report.before {
        Some(row) => row.get(at)?.as_f64(),
        // A sample stands for the time before it, and the first one for none.
        None => report.recorded_seconds.first().filter(|recorded| **recorded > 0.0).map(|_| 0.0),
    }
}

/// Returns ksmd's CPU time in the time of a row, from its share of one CPU.
fn cpu(point: &ReportPoint) -> f64 {
    point.ksmd_percent.unwrap_or(0.0) / 100.0 * point.recorded
}

/// Returns the episode of each decision, up to the next one. Decisions without rows around them are left out.
pub fn episodes(report: &HistoryReport) -> Vec<DecisionEpisode> {
    let points = points(report);
    let saved_at = |time: f64| {
        let end = points.partition_point(|point| point.time <= time);
        // The first rows may come after the first decision.
        points.get(end.saturating_sub(1)).and_then(|point| point.saved)
    };
    let decisions = || report.decisions.iter().filter(|decision| !is_beside_the_policy(&decision.policy));
    let ends = decisions().skip(1).map(|next| next.time).chain([report.until]);
    let mut episodes: Vec<DecisionEpisode> = Vec::new();
    for (decision, end) in decisions().zip(ends) {
        // A setting that changed within one state does not begin another episode.
        let again = episodes.last_mut().filter(|last| last.decision.state == decision.state);
        let within = points.iter().filter(|point| point.time > decision.time && point.time <= end);
        let ksmd_cpu_seconds = within.map(cpu).sum::<f64>();
        let (Some(before), Some(after)) = (saved_at(decision.time), saved_at(end)) else { continue };
        let (seconds, gained_bytes) = (end - decision.time, after - before);
        match again {
            Some(last) => {
                last.seconds += seconds;
                last.gained_bytes += gained_bytes;
                last.ksmd_cpu_seconds += ksmd_cpu_seconds;
            }
            None => {
                episodes.push(DecisionEpisode {
                    decision: decision.clone(),
                    seconds,
                    gained_bytes,
                    ksmd_cpu_seconds,
                });
            }
        }
    }
    episodes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GIB: f64 = (1_u64 << 30) as f64;

    fn report(rows: Json, decisions: &[(f64, &str)]) -> HistoryReport {
        let decisions: Vec<Json> = decisions
            .iter()
            .map(|(time, state)| json!({"time": time, "policy": "profit", "state": state, "reason": "", "settings": ""}))
            .collect();
        serde_json::from_value(json!({
            "since": 0.0, "until": 400.0, "resolution_seconds": 1.0, "guest": null,
            "columns": ["time", "saved_bytes", "ksmd_cpu_percent", "exposure_bytes", "headroom_bytes", "daemon_cpu_seconds"],
            "recorded_seconds": recorded(&rows), "rows": rows, "decisions": decisions, "events": [], "guests": [],
        }))
        .unwrap()
    }

    /// Returns the time that each sample stands for.
    fn recorded(rows: &Json) -> Vec<f64> {
        let times: Vec<f64> = rows.as_array().unwrap().iter().map(|row| row[0].as_f64().unwrap()).collect();
        let steps = times.windows(2).map(|pair| pair[1] - pair[0]);
        [0.0].into_iter().chain(steps.map(|step| if step <= 90.0 { step } else { 0.0 })).take(times.len()).collect()
    }

    #[test]
    fn means_and_sums_are_over_the_time_that_was_recorded() {
        let rows = json!([
            [0.0, GIB, 0.0, GIB, 2.0 * GIB, 1.0],
            [10.0, 3.0 * GIB, 50.0, 3.0 * GIB, 2.0 * GIB, 1.5],
            [20.0, 3.0 * GIB, 100.0, 3.0 * GIB, 2.0 * GIB, 2.0],
            // A daemon that was away for five minutes, and began anew.
            [320.0, null, null, null, null, null],
            [330.0, GIB, 10.0, GIB, 4.0 * GIB, 0.25],
            [340.0, GIB, 10.0, GIB, 4.0 * GIB, 0.5],
        ]);
        let summary = summary(&report(rows, &[])).unwrap();
        assert_eq!(summary.recorded_seconds, 40.0);
        // A row stands for the time before it.
        assert_eq!(summary.saved_gib_hours, (30.0 + 30.0 + 10.0 + 10.0) / 3600.0);
        assert_eq!(summary.ksmd_cpu_seconds, 5.0 + 10.0 + 1.0 + 1.0);
        assert_eq!(summary.daemon_cpu_seconds, 0.5 + 0.5 + 0.25 + 0.25);
        assert_eq!(summary.exposed_seconds, 20.0);
        assert_eq!((summary.saved_max_bytes, summary.headroom_min_bytes), (3.0 * GIB, Some(2.0 * GIB)));
    }

    #[test]
    fn splits_count_as_long_as_they_last() {
        let with_splits = |rows: Json| {
            let mut report = report(rows, &[]);
            report.columns.extend(["huge_bytes", "split_bytes", "split_cost_cpus"].map(str::to_owned));
            summary(&report).unwrap().huge_pages
        };
        let row = |time: f64, huge: Json, split: Json, cpus: Json| {
            json!([time, GIB, 0.0, GIB, GIB, 0.0, huge, split, cpus])
        };
        let unknown = row(0.0, Json::Null, Json::Null, Json::Null);
        assert_eq!(with_splits(json!([unknown])), None, "where no page tables were read");
        let rows = json!([
            unknown,
            row(10.0, json!(3.0 * GIB), json!(GIB), json!(0.5)),
            row(20.0, json!(2.0 * GIB), json!(2.0 * GIB), json!(0.25)),
            row(30.0, Json::Null, Json::Null, Json::Null),
        ]);
        let sums = HugeSummary { huge_last_bytes: 2.0 * GIB, split_last_bytes: 2.0 * GIB, lost_cpu_seconds: 7.5 };
        assert_eq!(with_splits(rows), Some(sums));
    }

    #[test]
    fn a_child_that_ends_is_no_new_daemon() {
        let row = |n: usize, cpu: f64| json!([n as f64, 0.0, 0.0, 0.0, 1.0, cpu]);
        let rows: Vec<Json> =
            [100.0, 101.0, 99.5, 100.5, 0.5].into_iter().enumerate().map(|(n, cpu)| row(n, cpu)).collect();
        assert_eq!(summary(&report(json!(rows), &[])).unwrap().daemon_cpu_seconds, 1.0 + 0.0 + 1.0 + 0.5);
    }

    #[test]
    fn without_a_row_there_is_no_summary() {
        assert_eq!(summary(&report(json!([]), &[])), None);
        assert_eq!(episodes(&report(json!([]), &[(1.0, "burst")])), []);
    }

    #[test]
    fn an_episode_lasts_until_the_state_changes() {
        let rows = json!([
            [0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
            [10.0, 4096.0, 100.0, 0.0, 1.0, 0.0],
            [20.0, 8192.0, 100.0, 0.0, 1.0, 0.0],
            [30.0, 8192.0, 0.0, 0.0, 1.0, 0.0],
        ]);
        let episodes = episodes(&report(rows, &[(0.0, "burst"), (10.0, "burst"), (20.0, "parked")]));
        let found: Vec<_> = episodes
            .iter()
            .map(|e| (e.decision.state.as_str(), e.seconds, e.gained_bytes, e.ksmd_cpu_seconds))
            .collect();
        assert_eq!(found, [("burst", 20.0, 8192.0, 20.0), ("parked", 380.0, 0.0, 0.0)]);
    }
}
