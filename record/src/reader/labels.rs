//! Memory saved by the guests with one value of a label, over time.
//!
//! The operator gives the labels: `[[guests.label]]` in the configuration.

use std::collections::BTreeMap;

use rusqlite::{Row, params};
use serde_json::{Value as Json, json};

use super::report::HistoryReport;
use super::rows::{Rows, time_of};
use super::{HistoryReader, MOST, ReadError, Result, fault, seconds};
use crate::query::{ReportQuery, ReportResolution};
use crate::schema;

/// Most moments at which the sums are taken.
const MOMENTS: i64 = 240;

/// Memory saved by the guests with one value of a label.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelSeries {
    /// Name of the label, such as `role`.
    pub label: String,
    /// Its value, such as `database`.
    pub value: String,
    /// Moments in seconds since 1970, each with the bytes saved then. A moment without such a guest has 0.
    pub points: Vec<(f64, f64)>,
}

/// A guest with labels, and the time of its life in milliseconds since 1970.
struct LabelledLife {
    row: i64,
    labels: BTreeMap<String, String>,
    first: i64,
    last: Option<i64>,
}

impl LabelSeries {
    /// Returns the mean of the bytes saved.
    pub fn mean_bytes(&self) -> f64 {
        self.points.iter().map(|(_, bytes)| bytes).sum::<f64>() / (self.points.len() as f64).max(1.0)
    }
}

impl HistoryReader {
    /// Returns a report with a column for each value of a label: the bytes that its guests saved. Decisions and events are
    /// those of the host, and the guests those with the label.
    ///
    /// # Errors
    /// No guest had the label in that time, or SQLite fails.
    pub fn read_by_label(&self, query: &ReportQuery, label: &str) -> Result<HistoryReport> {
        let mut all = self.saved_by_label(query)?;
        let mut known: Vec<String> = all.iter().map(|series| series.label.clone()).collect();
        known.dedup();
        all.retain(|series| series.label == label);
        let Some(first) = all.first() else {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(ReadError::NoLabel { name: label.to_owned(), known });
        };
        let row = |(at, (time, _)): (usize, &(f64, f64))| -> Vec<Json> {
            let saved = all.iter().map(|series| json!(series.points.get(at).map(|(_, bytes)| *bytes as u64)));
            std::iter::once(json!(time)).chain(saved).collect()
        };
        let rows: Vec<Vec<Json>> = first.points.iter().enumerate().map(row).collect();
        let mut guests = self.lives(query)?;
        guests.retain(|life| life.labels.contains_key(label));
        Ok(HistoryReport {
            since: seconds(query.since),
            until: seconds(query.until),
            resolution_seconds: seconds(query.until.saturating_sub(query.since))
                / (rows.len() as f64 - 1.0).max(1.0),
            guest: None,
            label: Some(label.to_owned()),
            columns: std::iter::once("time".to_owned()).chain(all.iter().map(|it| it.value.clone())).collect(),
            recorded_seconds: vec![0.0; rows.len()],
            rows,
            before: None,
            decisions: self.decisions(query)?,
            events: self.events(query)?,
            guests,
        })
    }

    /// Sums memory saved over the guests of each value of each label, at moments from the beginning to the end of the
    /// time range: as many as rows are wanted, at most 240. Of more than 2,000 guests with labels the newest count.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn saved_by_label(&self, query: &ReportQuery) -> Result<Vec<LabelSeries>> {
        let of_guest =
            ReportQuery { guest: Some(String::new()), columns: vec!["saved_bytes".to_owned()], ..query.clone() };
        let columns = self.columns(&of_guest)?;
        let span = query.until.saturating_sub(query.since).max(1);
        let count = match query.resolution {
            ReportResolution::Rows(most) => i64::try_from(most).map_or(MOMENTS, |most| most.clamp(2, MOMENTS)),
            ReportResolution::Tier(_) => MOMENTS,
        };
        let moment = |at: i64| {
            query.since + i64::try_from(i128::from(span) * i128::from(at) / i128::from(count - 1)).unwrap_or(span)
        };
        let moments: Vec<i64> = (0..count).map(moment).collect();
        let mut sums: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
        for life in self.labelled_lives(query)? {
            let (rows, _) = self.rows(&of_guest, &columns, Some(life.row))?;
            let saved = life.saved_at(&moments, &rows);
            for label in life.labels {
                let sum = sums.entry(label).or_insert_with(|| vec![0.0; moments.len()]);
                sum.iter_mut().zip(&saved).for_each(|(sum, bytes)| *sum += bytes);
            }
        }
        let series = |((label, value), sums): ((String, String), Vec<f64>)| LabelSeries {
            label,
            value,
            points: moments.iter().map(|time| seconds(*time)).zip(sums).collect(),
        };
        Ok(sums.into_iter().map(series).collect())
    }

    fn labelled_lives(&self, query: &ReportQuery) -> Result<Vec<LabelledLife>> {
        if !self.has_column("guest", schema::LABELS)? {
            return Ok(Vec::new());
        }
        let sql = "SELECT id, labels, first, last FROM guest WHERE labels IS NOT NULL AND first <= ?2 \
                   AND (last IS NULL OR last >= ?1) ORDER BY first DESC, id DESC LIMIT ?3";
        let life = |row: &Row<'_>| {
            Ok(LabelledLife {
                row: row.get(0)?,
                labels: parse_labels(row.get(1)?),
                first: row.get(2)?,
                last: row.get(3)?,
            })
        };
        let lives = || -> rusqlite::Result<Vec<LabelledLife>> {
            let mut statement = self.connection.prepare(sql)?;
            statement.query_map(params![query.since, query.until, MOST], life)?.collect()
        };
        lives().map_err(|error| fault(&self.path, error))
    }
}

/// Parses the column of a guest's labels.
pub(super) fn parse_labels(column: Option<String>) -> BTreeMap<String, String> {
    column.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

impl LabelledLife {
    /// Returns the bytes saved at each moment: a row of a guest holds until the next one, and until its end.
    fn saved_at(&self, moments: &[i64], rows: &Rows) -> Vec<f64> {
        let bytes = |time: &i64| {
            if *time < self.first || self.last.is_some_and(|last| *time > last) {
                return 0.0;
            }
            let end = rows.partition_point(|row| time_of(Some(row)) <= Some(*time));
            let row = end.checked_sub(1).and_then(|at| rows.get(at));
            row.and_then(|row| row.get(1).copied().flatten()).unwrap_or(0.0)
        };
        moments.iter().map(bytes).collect()
    }
}
