//! Rows of figures, read from the tiers that have them.

use rusqlite::{Row, params};
use serde_json::{Value as Json, json};

use super::{HistoryReader, ReadError, Result, fault, number};
use crate::columns;
use crate::query::{ReportQuery, ReportResolution};
use crate::schema;
use crate::tier::{HistoryTier, LONGEST_STEP, RECORDED};

/// Rows of figures. The first value of each is the time in milliseconds, the last the recorded time that it stands for.
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
            let column = all.iter().find(|column| column.has_name(name))?;
            Some(RequestedColumn {
                name: column.name.clone(),
                is_there: there.contains(column.name.as_str()),
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
    /// its last. No two rows stand for the same recorded time.
    pub(super) fn rows(
        &self,
        query: &ReportQuery,
        columns: &[RequestedColumn],
        guest: Option<i64>,
    ) -> Result<(Rows, HistoryTier)> {
        let tier = query.tier();
        let is_tier_asked = matches!(query.resolution, ReportResolution::Tier(_));
        if is_tier_asked {
            return Ok((self.read_tier(tier, query.since, query.until, columns, guest)?, tier));
        }
        let read = |tier: HistoryTier, since: i64, until: i64| match guest {
            None => {
                let mut rows = self.read_overlap(tier, since, until, columns)?;
                // A sample behind another row stands for all of the time since the sample before it.
                if since == query.since {
                    clip_first_sample(&mut rows, tier, since);
                }
                Ok(rows)
            }
            Some(_) => self.read_tier(tier, since, until, columns, guest),
        };
        let mut rows = match guest {
            None => self.read_span(tier, query.since, query.until, columns)?,
            Some(_) => read(tier, query.since, query.until)?,
        };
        let mut coarsest = if rows.is_empty() { HistoryTier::Sample } else { tier };
        let mut tier_of_last = tier;
        let mut finest = tier;
        for coarser in HistoryTier::ALL.into_iter().filter(|other| *other > tier) {
            let begin = time_of(rows.first()).unwrap_or(query.until);
            let is_complete = match guest {
                // Rows are deleted from the oldest on: what a tier lacks behind an older row was not recorded.
                None => self.has_older(finest, query.since)?,
                Some(_) => begin - query.since <= coarser.milliseconds(),
            };
            if is_complete {
                break;
            }
            finest = coarser;
            // The row in which finer ones begin is read whole, less what these stand for.
            let length = coarser.milliseconds();
            let end = if guest.is_none() && !rows.is_empty() { begin + (-begin).rem_euclid(length) } else { begin };
            let mut before = read(coarser, query.since, end)?;
            match guest {
                None => drop_twice_recorded(&mut before, &rows, coarser, columns),
                // A guest's rows are its changes.
                Some(_) => before.retain(|row| time_of(Some(row)) < Some(begin)),
            }
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
            let end = match (guest, time_of(rows.last())) {
                (_, None) => query.since,
                (None, Some(time)) => {
                    time - time.rem_euclid(tier_of_last.milliseconds()) + tier_of_last.milliseconds()
                }
                (Some(_), Some(time)) => time.saturating_add(1),
            };
            if end < query.until {
                let mut after = read(finer, end, query.until)?;
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

    /// Reads the host's rows of a range. Up to the first whole row of the tier they come from finer ones, if these go
    /// back that far.
    fn read_span(&self, tier: HistoryTier, since: i64, until: i64, columns: &[RequestedColumn]) -> Result<Rows> {
        if tier == HistoryTier::Sample {
            let mut rows = self.read_tier(tier, since, until, columns, None)?;
            clip_first_sample(&mut rows, tier, since);
            return Ok(rows);
        }
        let length = tier.milliseconds();
        let whole = since.saturating_add((length - since.rem_euclid(length)) % length);
        let finer = HistoryTier::ALL.into_iter().rfind(|other| *other < tier);
        let Some(finer) = finer.filter(|_| whole > since) else {
            return self.read_overlap(tier, since, until, columns);
        };
        // Rows are deleted from the oldest on: what a tier lacks behind an older row was not recorded.
        if !self.has_older(finer, since)? {
            return self.read_overlap(tier, since, until, columns);
        }
        let mut rows = self.read_span(finer, since, until.min(whole - 1), columns)?;
        if whole <= until {
            let mut rest = self.read_overlap(tier, whole, until, columns)?;
            if rows.is_empty() {
                self.clip_first_row(&mut rest, tier, since, columns)?;
            }
            rows.append(&mut rest);
        }
        Ok(rows)
    }

    /// Takes from the first row behind a time without samples what its first sample stands for before that time.
    fn clip_first_row(
        &self,
        rows: &mut Rows,
        tier: HistoryTier,
        since: i64,
        columns: &[RequestedColumn],
    ) -> Result<()> {
        let Some(first) = rows.first_mut() else { return Ok(()) };
        let Some(begin) = time_of(Some(first)) else { return Ok(()) };
        let table = HistoryTier::Sample.host_table();
        let sql = format!(
            "SELECT (SELECT max(time) FROM {table} WHERE time < ?1), (SELECT min(time) FROM {table} WHERE time >= ?1)"
        );
        let around: (Option<i64>, Option<i64>) = self
            .connection
            .query_row(&sql, [since], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(|error| fault(&self.path, error))?;
        let (Some(before), Some(after)) = around else { return Ok(()) };
        if after - before <= LONGEST_STEP && (begin..begin + tier.milliseconds()).contains(&after) {
            let mut samples = self.read_tier(HistoryTier::Sample, after, after, columns, None)?;
            samples.iter_mut().for_each(|sample| set_recorded(sample, (since - before) as f64));
            if !take_away(first, columns, || samples.iter()) {
                rows.remove(0);
            }
        }
        Ok(())
    }

    /// Reads the host's rows whose time overlaps a range. A row at its edge stands for the part that is inside.
    fn read_overlap(&self, tier: HistoryTier, since: i64, until: i64, columns: &[RequestedColumn]) -> Result<Rows> {
        if tier == HistoryTier::Sample {
            return self.read_tier(tier, since, until, columns, None);
        }
        let length = tier.milliseconds();
        let first = since.saturating_sub(length - 1);
        let mut rows = self.read_tier(tier, first, until.saturating_sub(1), columns, None)?;
        for row in &mut rows {
            let Some(begin) = time_of(Some(row)) else { continue };
            let inside = (begin + length).min(until) - begin.max(since);
            let part = recorded(row) * inside as f64 / length as f64;
            set_recorded(row, part);
            if let Some(time) = row.first_mut() {
                *time = Some(begin.max(since) as f64);
            }
        }
        Ok(rows)
    }

    /// Returns true if a tier has a row from before a time.
    fn has_older(&self, tier: HistoryTier, time: i64) -> Result<bool> {
        let sql = format!("SELECT EXISTS (SELECT 1 FROM {} WHERE time < ?1)", tier.host_table());
        self.connection.query_row(&sql, [time], |row| row.get(0)).map_err(|error| fault(&self.path, error))
    }

    /// Returns the newest row that ends before a row begins, whatever its tier.
    pub(super) fn row_before(
        &self,
        first: &[Option<f64>],
        columns: &[RequestedColumn],
    ) -> Result<Option<Vec<Option<f64>>>> {
        let Some(begin) = first.first().copied().flatten().map(|time| time as i64) else { return Ok(None) };
        let mut newest: Option<(i64, Vec<Option<f64>>)> = None;
        for tier in HistoryTier::ALL {
            let length = if tier == HistoryTier::Sample { 1 } else { tier.milliseconds() };
            let sql = format!("SELECT max(time) FROM {} WHERE time <= ?1", tier.host_table());
            let last: Option<i64> = self
                .connection
                .query_row(&sql, [begin.saturating_sub(length)], |row| row.get(0))
                .map_err(|error| fault(&self.path, error))?;
            let Some(time) = last.filter(|time| newest.as_ref().is_none_or(|(end, _)| time + length > *end)) else {
                continue;
            };
            let found = self.read_tier(tier, time, time, columns, None)?.pop();
            newest = found.map(|row| (time + length, row)).or(newest);
        }
        Ok(newest.map(|(_, row)| row))
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
        let recorded = match (guest, tier) {
            (None, HistoryTier::Minute | HistoryTier::Hour) if self.has_recorded(tier)? => {
                format!(", coalesce({RECORDED}, {})", tier.milliseconds())
            }
            (None, HistoryTier::Minute | HistoryTier::Hour) => format!(", {}", tier.milliseconds()),
            _ => ", 0".to_owned(),
        };
        let figures: String = columns
            .iter()
            .map(|column| if column.is_there { format!(", {}", column.name) } else { ", NULL".to_owned() })
            .chain([recorded])
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
            let row = |row: &Row<'_>| (0..=columns.len() + 1).map(|at| number(row, at)).collect();
            match guest.filter(|_| is_of_guest) {
                Some(id) => statement.query_map(params![since, until, id], row)?.collect(),
                None => statement.query_map(params![since, until], row)?.collect(),
            }
        };
        let mut rows = read().map_err(|error| fault(&self.path, error))?;
        if guest.is_none() && tier == HistoryTier::Sample {
            self.add_recorded(&mut rows, since)?;
        }
        Ok(rows)
    }

    fn has_recorded(&self, tier: HistoryTier) -> Result<bool> {
        let names =
            schema::names(&self.connection, &tier.host_table()).map_err(|error| fault(&self.path, error))?;
        Ok(names.contains(RECORDED))
    }

    /// Sets the time that each sample stands for: since the one before it, which may be older than the range.
    fn add_recorded(&self, rows: &mut Rows, since: i64) -> Result<()> {
        let sql = format!("SELECT max(time) FROM {} WHERE time < ?1", HistoryTier::Sample.host_table());
        let mut before: Option<i64> =
            self.connection.query_row(&sql, [since], |row| row.get(0)).map_err(|error| fault(&self.path, error))?;
        for row in rows {
            let time = time_of(Some(row));
            if let Some((time, before)) = time.zip(before).filter(|(time, before)| time - before <= LONGEST_STEP) {
                set_recorded(row, (time - before) as f64);
            }
            before = time;
        }
        Ok(())
    }
}

/// Returns the recorded time that a row of the host stands for, in milliseconds: its last value.
pub(super) fn recorded(row: &[Option<f64>]) -> f64 {
    row.last().copied().flatten().unwrap_or(0.0)
}

/// Sets the time that a row of the host stands for.
pub(super) fn set_recorded(row: &mut [Option<f64>], milliseconds: f64) {
    if let Some(last) = row.last_mut() {
        *last = Some(milliseconds.max(0.0));
    }
}

/// Takes from the first sample of a range the time before the range.
fn clip_first_sample(rows: &mut Rows, tier: HistoryTier, since: i64) {
    let Some(first) = rows.first_mut().filter(|_| tier == HistoryTier::Sample) else { return };
    let inside = time_of(Some(first)).map_or(0.0, |time| (time - since) as f64);
    let clipped = recorded(first).min(inside);
    set_recorded(first, clipped);
}

/// Takes from coarser rows what finer rows behind them stand for: their recorded time, and their part of each mean. A row
/// that has no time left is dropped.
fn drop_twice_recorded(coarser: &mut Rows, finer: &Rows, tier: HistoryTier, columns: &[RequestedColumn]) {
    let Some(first) = time_of(finer.first()) else { return };
    let length = tier.milliseconds();
    coarser.retain_mut(|row| {
        let Some(begin) = time_of(Some(row)) else { return false };
        let end = begin - begin.rem_euclid(length) + length;
        if end <= first {
            return true;
        }
        take_away(row, columns, || finer.iter().take_while(|finer| time_of(Some(finer)) < Some(end)))
    });
}

/// Takes from a row what `parts` of it stand for: their recorded time, and their part of each mean. Returns true if some time
/// is left.
fn take_away<'a, I>(row: &mut [Option<f64>], columns: &[RequestedColumn], parts: impl Fn() -> I) -> bool
where
    I: Iterator<Item = &'a Vec<Option<f64>>>,
{
    let whole = recorded(row);
    let left = whole - parts().map(|part| recorded(part)).sum::<f64>();
    set_recorded(row, left);
    if left <= 0.0 {
        return false;
    }
    for (at, _) in (1..).zip(columns).filter(|(_, column)| column.is_averaged) {
        let Some(mean) = row.get(at).copied().flatten() else { continue };
        // Where a part lacks the figure, the mean of the whole stands for the rest.
        let again = parts().map(|part| Some(part.get(at).copied().flatten()? * recorded(part)));
        let Some(again) = again.sum::<Option<f64>>() else { continue };
        let rest = (mean * whole - again) / left;
        // Means of whole numbers are rounded.
        let rest = if mean >= 0.0 { rest.max(0.0) } else { rest };
        if let Some(value) = row.get_mut(at) {
            *value = Some(rest);
        }
    }
    true
}

/// Returns the time of a row.
pub(super) fn time_of(row: Option<&Vec<Option<f64>>>) -> Option<i64> {
    row?.first()?.map(|time| time as i64)
}
