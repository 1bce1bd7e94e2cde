//! The reader of the history. It never writes, and works while a daemon writes.

mod connection;
mod error;
mod labels;
mod report;
mod rows;
mod together;

use std::path::{Path, PathBuf};

use ksmith_core::guest::{FindGuestError, describe, find_all};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};
use serde_json::json;

pub use self::error::ReadError;
use self::error::fault;
pub use self::labels::LabelSeries;
pub use self::report::{DecisionRow, EventRow, GuestLife, HistoryReport, SavingGuest};
use self::rows::recorded;
use crate::query::{ReportQuery, ReportResolution};
use crate::schema;
use crate::tier::HistoryTier;

/// Limit of decisions, events and guests in one report. The newest are kept.
const MOST: i64 = 2000;

/// A history file, open for reading.
#[derive(Debug)]
pub struct HistoryReader {
    path: PathBuf,
    connection: Connection,
}

type Result<T> = std::result::Result<T, ReadError>;

impl HistoryReader {
    /// Opens the history file.
    ///
    /// # Errors
    /// The file is missing, unreadable, or no history of ksmith.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), connection: connection::open(path)? })
    }

    /// Runs a query.
    ///
    /// # Errors
    /// A figure or a guest is not in the history, or SQLite fails.
    pub fn read_report(&self, query: &ReportQuery) -> Result<HistoryReport> {
        let guest = query.guest.as_deref().map(|name| self.find(name, query)).transpose()?;
        let columns = self.columns(query)?;
        let (rows, tier) = self.rows(query, &columns, guest.as_ref().map(|guest| guest.row))?;
        let (rows, width) = match query.resolution {
            ReportResolution::Tier(tier) => (rows, tier.milliseconds()),
            ReportResolution::Rows(most) => {
                together::aggregate_rows(rows, query, tier, most.max(1), &columns, guest.is_some())
            }
        };
        let before = match (&guest, rows.first()) {
            (None, Some(first)) => self.row_before(first, &columns)?,
            _ => None,
        };
        let recorded_seconds = rows.iter().map(|row| recorded(row) / 1000.0).collect();
        let named = |row: Vec<Option<f64>>| {
            let mut values = row.into_iter();
            let time = values.next().flatten().map(|time| json!(time / 1000.0)).unwrap_or_default();
            let figures = values.zip(&columns).map(|(value, column)| column.json(value));
            [time].into_iter().chain(figures).collect()
        };
        Ok(HistoryReport {
            since: seconds(query.since),
            until: seconds(query.until),
            resolution_seconds: seconds(width),
            guest,
            label: None,
            columns: ["time".to_owned()].into_iter().chain(columns.iter().map(|it| it.name.clone())).collect(),
            rows: rows.into_iter().map(named).collect(),
            recorded_seconds,
            before: before.map(named),
            decisions: self.decisions(query)?,
            events: self.events(query)?,
            guests: self.lives(query)?,
        })
    }

    /// Returns at most `most` guests with the largest savings in the time range, the largest first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn savers(&self, query: &ReportQuery, most: usize) -> Result<Vec<SavingGuest>> {
        let parts = HistoryTier::ALL.map(|tier| {
            format!(
                "SELECT guest, time, saved_bytes, profit_bytes, rss_bytes, merged_bytes FROM {} \
                 WHERE time >= ?1 AND time <= ?2",
                tier.guest_table()
            )
        });
        // The one max() of the inner SELECT chooses the row from which plain columns come: the last one.
        let sql = format!(
            "SELECT guest.{life}, saved, profit, rss, merged \
             FROM (SELECT guest, saved_bytes AS saved, profit_bytes AS profit, rss_bytes AS rss, merged_bytes AS merged, max(time) FROM ({parts}) GROUP BY guest) AS found \
             JOIN guest ON guest.id = found.guest ORDER BY saved DESC LIMIT ?3",
            life = self.life_columns()?,
            parts = parts.join(" UNION ALL ")
        );
        let read = || -> rusqlite::Result<Vec<SavingGuest>> {
            let mut statement = self.connection.prepare(&sql)?;
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let saver = |row: &Row<'_>| {
                Ok(SavingGuest {
                    life: life(row)?,
                    saved_bytes: number(row, 10)?,
                    profit_bytes: number(row, 11)?,
                    rss_bytes: number(row, 12)?,
                    merged_bytes: number(row, 13)?,
                })
            };
            statement.query_map(params![query.since, query.until, most], saver)?.collect()
        };
        read().map_err(|error| fault(&self.path, error))
    }

    fn decisions(&self, query: &ReportQuery) -> Result<Vec<DecisionRow>> {
        let detail =
            if self.has_column("decision", schema::REASON_DETAIL)? { schema::REASON_DETAIL } else { "NULL" };
        let sql = format!(
            "SELECT time, policy, state, reason, settings, {detail} FROM decision WHERE time >= ?1 AND time <= ?2 \
             ORDER BY time DESC, id DESC LIMIT ?3"
        );
        let row = |row: &Row<'_>| {
            Ok(DecisionRow {
                time: seconds(row.get(0)?),
                policy: row.get(1)?,
                state: row.get(2)?,
                reason: row.get(3)?,
                settings: row.get(4)?,
                reason_detail: row.get(5)?,
            })
        };
        self.newest(&sql, query, row)
    }

    fn events(&self, query: &ReportQuery) -> Result<Vec<EventRow>> {
        let sql = "SELECT time, kind, text FROM event WHERE time >= ?1 AND time <= ?2 ORDER BY time DESC, id DESC LIMIT ?3";
        let row = |row: &Row<'_>| Ok(EventRow { time: seconds(row.get(0)?), kind: row.get(1)?, text: row.get(2)? });
        self.newest(sql, query, row)
    }

    fn lives(&self, query: &ReportQuery) -> Result<Vec<GuestLife>> {
        let sql = format!(
            "SELECT {} FROM guest WHERE first <= ?2 AND (last IS NULL OR last >= ?1) ORDER BY first DESC, id DESC LIMIT ?3",
            self.life_columns()?
        );
        self.newest(&sql, query, life)
    }

    /// Returns the newest rows in the time range, in order of time.
    fn newest<T>(
        &self,
        sql: &str,
        query: &ReportQuery,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let all = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            let rows = statement.query_map(params![query.since, query.until, MOST], read)?;
            let mut rows = rows.collect::<rusqlite::Result<Vec<T>>>()?;
            rows.reverse();
            Ok(rows)
        };
        all().map_err(|error| fault(&self.path, error))
    }

    /// Returns the columns that [`life`] reads. The first histories have no labels.
    fn life_columns(&self) -> Result<String> {
        let labels = if self.has_column("guest", schema::LABELS)? { schema::LABELS } else { "NULL" };
        Ok(format!("id, key, name, uuid, kind, domain, user, first, last, {labels}"))
    }

    /// Returns true if the table has the column. The first histories lack some.
    fn has_column(&self, table: &str, column: &str) -> Result<bool> {
        let names = schema::names(&self.connection, table).map_err(|error| fault(&self.path, error))?;
        Ok(names.contains(column))
    }

    /// Finds a guest by name, by the convention of [`ksmith_core::guest::find`]. Of several consecutive lives, returns
    /// the last one that began before the end of the range. Guests that lived at the same time are ambiguous.
    fn find(&self, name: &str, query: &ReportQuery) -> Result<GuestLife> {
        let sql = format!(
            "SELECT {} FROM guest WHERE first <= ?2 \
             AND (key = ?1 OR uuid = lower(?1) OR name = ?1 OR kind || ':' || name = ?1 \
             OR (key >= ?1 || ':' AND key < ?1 || ';')) ORDER BY first DESC, id DESC",
            self.life_columns()?
        );
        let lives = || {
            let mut statement = self.connection.prepare_cached(&sql)?;
            let lives = statement.query_map(params![name, query.until], life)?;
            lives.collect::<rusqlite::Result<Vec<GuestLife>>>()
        };
        let lives = lives().map_err(|error| fault(&self.path, error))?;
        let found = find_all(&lives, name);
        let Some((newest, older)) = found.split_first() else {
            let known = self.lives(query)?;
            return Err(FindGuestError::unknown(name, known.iter().map(|life| life.name.as_str())).into());
        };
        let is_same = |life: &GuestLife| life.uuid.is_some() && life.uuid == newest.uuid;
        let lived_then = |life: &GuestLife| life.last.is_none_or(|last| last > newest.first);
        let others = older.iter().copied().filter(|life| lived_then(life) && !is_same(life));
        let which: Vec<String> = [*newest].into_iter().chain(others).map(describe).collect();
        match which[..] {
            [_] => Ok((*newest).clone()),
            _ => Err(FindGuestError::Several { wanted: name.to_owned(), which }.into()),
        }
    }
}

fn seconds(milliseconds: i64) -> f64 {
    milliseconds as f64 / 1000.0
}

fn number(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<f64>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Integer(number) => Some(number as f64),
        ValueRef::Real(number) if number.is_finite() => Some(number),
        _ => None,
    })
}

fn life(row: &Row<'_>) -> rusqlite::Result<GuestLife> {
    Ok(GuestLife {
        row: row.get(0)?,
        id: row.get(1)?,
        name: row.get(2)?,
        uuid: row.get(3)?,
        kind: row.get(4)?,
        domain: row.get(5)?,
        user: row.get(6)?,
        first: seconds(row.get(7)?),
        last: row.get::<_, Option<i64>>(8)?.map(seconds),
        labels: labels::parse_labels(row.get(9)?),
    })
}
