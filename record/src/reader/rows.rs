//! Rows of figures, read from the tiers that have them.

use rusqlite::{Row, params};
use serde_json::{Value as Json, json};

use super::{HistoryReader, ReadError, Result, fault, number};
use crate::columns;
use crate::query::{ReportQuery, ReportResolution};
use crate::schema;
use crate::tier::HistoryTier;

/// Rows of figures. The first value of each is the time in milliseconds.
pub(super) type Rows = Vec<Vec<Option<f64>>>;

/// A requested column.
#[derive(Debug)]
pub(super) struct RequestedColumn {
    /// Its name.
    pub(super) name: String,
    /// True if the file has the column.
    is_there: bool,
    /// True if aggregated rows have the column's mean.
    pub(super) is_averaged: bool,
    /// True if the values are integers.
    is_whole: bool,
}

impl RequestedColumn {
    /// Converts a value of the column to JSON.
    pub(super) fn json(&self, value: Option<f64>) -> Json {
        match value {
            // Memory of a host is far below 2^53 bytes.
            Some(value) if self.is_whole => json!(value.round() as i64),
            Some(value) => json!(value),
            None => Json::Null,
        }
    }
}

impl HistoryReader {
    /// Resolves the requested columns. A column that is missing from the file is unknown in all rows.
    pub(super) fn columns(&self, query: &ReportQuery) -> Result<Vec<RequestedColumn>> {
        let all = if query.guest.is_some() { columns::guest() } else { columns::host() };
        let table = match query.guest {
            Some(_) => HistoryTier::Sample.guest_table(),
            None => HistoryTier::Sample.host_table(),
        };
        let there = schema::names(&self.connection, &table).map_err(|error| fault(&self.path, error))?;
        let names: Vec<&str> = match query.columns.is_empty() {
            true => query.shown().to_vec(),
            false => query.columns.iter().map(String::as_str).collect(),
        };
        let find = |name: &str| {
            let column = all.iter().find(|column| column.name == name)?;
            Some(RequestedColumn {
                name: name.to_owned(),
                is_there: there.contains(name),
                is_averaged: column.is_averaged(),
                is_whole: column.sql_type() == "INTEGER",
            })
        };
        let known = || all.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
        let asked = names.into_iter().filter(|name| *name != "time");
        asked
            .map(|name| find(name).ok_or_else(|| ReadError::NoColumn { name: name.to_owned(), known: known() }))
            .collect()
    }

    /// Reads the rows of the best tier. Coarser tiers fill the time before its first row, and finer ones the time after
    /// its last.
    pub(super) fn rows(
        &self,
        query: &ReportQuery,
        columns: &[RequestedColumn],
        guest: Option<i64>,
    ) -> Result<(Rows, HistoryTier)> {
        let tier = query.tier();
        let mut rows = self.read_tier(tier, query.since, query.until, columns, guest)?;
        let mut coarsest = if rows.is_empty() { HistoryTier::Sample } else { tier };
        if matches!(query.resolution, ReportResolution::Tier(_)) {
            return Ok((rows, tier));
        }
        let mut begin = time_of(rows.first()).unwrap_or(query.until);
        let mut tier_of_last = tier;
        for coarser in HistoryTier::ALL.into_iter().filter(|other| *other > tier) {
            if begin - query.since <= coarser.milliseconds() {
                break;
            }
            let mut before = self.read_tier(coarser, query.since, begin, columns, guest)?;
            begin = time_of(before.first()).unwrap_or(begin);
            if !before.is_empty() {
                coarsest = coarser;
                if rows.is_empty() {
                    tier_of_last = coarser;
                }
            }
            before.append(&mut rows);
            rows = before;
        }
        for finer in HistoryTier::ALL.into_iter().rev().filter(|other| *other < tier) {
            // A host's row covers the whole time of its tier. A guest's rows are its changes.
            let covered = if guest.is_none() { tier_of_last.milliseconds() } else { 1 };
            let end = time_of(rows.last()).map_or(query.since, |time| time.saturating_add(covered));
            if end < query.until {
                let mut after = self.read_tier(finer, end, query.until, columns, guest)?;
                if !after.is_empty() {
                    coarsest = coarsest.max(finer);
                    tier_of_last = finer;
                }
                rows.append(&mut after);
            }
        }
        if let Some(guest) = guest {
            self.add_beginning(&mut rows, query, columns, guest)?;
        }
        Ok((rows, coarsest.max(tier)))
    }

    /// Adds a row with the guest's figures at the beginning of the range, since a row holds until the next one.
    fn add_beginning(
        &self,
        rows: &mut Rows,
        query: &ReportQuery,
        columns: &[RequestedColumn],
        guest: i64,
    ) -> Result<()> {
        if time_of(rows.first()).is_some_and(|first| first <= query.since) {
            return Ok(());
        }
        let mut last: Option<Vec<Option<f64>>> = None;
        for tier in HistoryTier::ALL {
            let long_ago = query.since.saturating_sub(2 * HistoryTier::Hour.milliseconds());
            let before = self.read_tier(tier, long_ago, query.since, columns, Some(guest))?.pop();
            if time_of(before.as_ref()) > time_of(last.as_ref()) {
                last = before;
            }
        }
        if let Some(mut row) = last {
            if let Some(time) = row.first_mut() {
                *time = Some(query.since as f64);
            }
            rows.insert(0, row);
        }
        Ok(())
    }

    fn read_tier(
        &self,
        tier: HistoryTier,
        since: i64,
        until: i64,
        columns: &[RequestedColumn],
        guest: Option<i64>,
    ) -> Result<Rows> {
        let figures: String = columns
            .iter()
            .map(|column| if column.is_there { format!(", {}", column.name) } else { ", NULL".to_owned() })
            .collect();
        let (sql, is_of_guest) = match guest {
            None => {
                let table = tier.host_table();
                (format!("SELECT time{figures} FROM {table} WHERE time >= ?1 AND time <= ?2 ORDER BY time"), false)
            }
            Some(_) => {
                let table = tier.guest_table();
                let condition = "guest = ?3 AND time >= ?1 AND time <= ?2";
                (format!("SELECT time{figures} FROM {table} WHERE {condition} ORDER BY time"), true)
            }
        };
        let read = || -> rusqlite::Result<Rows> {
            let mut statement = self.connection.prepare_cached(&sql)?;
            let row = |row: &Row<'_>| (0..=columns.len()).map(|at| number(row, at)).collect();
            match guest.filter(|_| is_of_guest) {
                Some(id) => statement.query_map(params![since, until, id], row)?.collect(),
                None => statement.query_map(params![since, until], row)?.collect(),
            }
        };
        read().map_err(|error| fault(&self.path, error))
    }
}

/// Returns the time of a row.
pub(super) fn time_of(row: Option<&Vec<Option<f64>>>) -> Option<i64> {
    row?.first()?.map(|time| time as i64)
}
