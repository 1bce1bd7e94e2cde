//! The reader of the history. It never writes, and works while a daemon does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::ffi::ErrorCode;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::columns;
use crate::fault::is_damage;
use crate::query::{Query, Resolution};
use crate::schema::{self, APPLICATION, VERSION};
use crate::tier::Tier;

/// How long a reader waits for a writer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Decisions, events and guests of one answer at most: the newest.
const MOST: i64 = 2000;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such file, or it may not be read.
    #[error("there is no history to read at {path}: {why}")]
    Absent {
        /// The file.
        path: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
    /// The file is no history of ksmith, or of a later one.
    #[error("{path} is no history that this ksmith can read: {why}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        why: String,
    },
    /// The file is damaged.
    #[error("{path} is damaged ({why}); a running daemon sets it aside and begins anew")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        why: String,
    },
    /// The question names a figure that is not recorded.
    #[error("the history has no figure {name}; it has {known}")]
    NoColumn {
        /// The name.
        name: String,
        /// All names.
        known: String,
    },
    /// The question names a guest that was not recorded.
    #[error("the history has no guest {0}")]
    NoGuest(String),
    /// SQLite refuses an operation.
    #[error("{path}: {source}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        source: rusqlite::Error,
    },
}

/// What the history says of a stretch of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryReport {
    /// The beginning, in seconds since 1970.
    pub since: f64,
    /// The end, in the same unit.
    pub until: f64,
    /// The time between two rows, about.
    pub resolution_seconds: f64,
    /// The guest that the rows are of. `None`: the host.
    pub guest: Option<GuestLife>,
    /// The names of the columns; the first is `time`, in seconds since 1970.
    pub columns: Vec<String>,
    /// The rows, the oldest first. An unknown value is `null`.
    pub rows: Vec<Vec<Json>>,
    /// The decisions, the oldest first.
    pub decisions: Vec<DecisionRow>,
    /// The events, the oldest first.
    pub events: Vec<EventRow>,
    /// The guests that lived in that time.
    pub guests: Vec<GuestLife>,
}

/// A decision that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionRow {
    /// Seconds since 1970.
    pub time: f64,
    /// Name of the policy.
    pub policy: String,
    /// State of the policy, in a word.
    pub state: String,
    /// The reason, in a sentence.
    pub reason: String,
    /// The settings that were changed.
    pub settings: String,
}

/// An event that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventRow {
    /// Seconds since 1970.
    pub time: f64,
    /// What kind of event it is.
    pub kind: String,
    /// What happened, in a sentence.
    pub text: String,
}

/// A guest that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestLife {
    /// Its key, `PID:START`.
    pub id: String,
    /// Name of the guest.
    pub name: String,
    /// UUID of the guest.
    pub uuid: Option<String>,
    /// Kind of the guest.
    pub kind: String,
    /// Its trust domain.
    pub domain: Option<String>,
    /// The user of its first process.
    pub user: Option<String>,
    /// Its first record, in seconds since 1970.
    pub first: f64,
    /// Its end, in seconds since 1970. `None`: it lives.
    pub last: Option<f64>,
    #[serde(skip)]
    row: i64,
}

/// A guest with its last figures in a stretch of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Saver {
    /// The guest that saved memory.
    pub life: GuestLife,
    /// Its part of what the host saved.
    pub saved_bytes: Option<f64>,
    /// Saved less KSM's metadata for it.
    pub profit_bytes: Option<f64>,
    /// Its resident memory.
    pub rss_bytes: Option<f64>,
}

/// The file, open for reading.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    connection: Connection,
}

type Result<T> = std::result::Result<T, ReadError>;

impl Reader {
    /// Opens the file.
    ///
    /// # Errors
    /// It is not there, may not be read, or is no history of ksmith.
    pub fn open(path: &Path) -> Result<Self> {
        if let Err(error) = std::fs::File::open(path) {
            let why = match error.kind() {
                std::io::ErrorKind::NotFound => {
                    "no daemon has recorded there yet; `ksmith daemon` records unless [history] enabled = false"
                        .to_owned()
                }
                std::io::ErrorKind::PermissionDenied => {
                    "permission denied; run as root, or as a member of the group that the directory belongs to"
                        .to_owned()
                }
                _ => error.to_string(),
            };
            return Err(ReadError::Absent { path: path.to_owned(), why });
        }
        let connection = match connect(path, "ro") {
            // Without a writer, and without the right to make files beside it. Then no log is left to be read either.
            Err(error) if cannot_open(&error) && !has_log(path) => connect(path, "immutable"),
            other => other,
        };
        let reader = Self { path: path.to_owned(), connection: connection.map_err(|error| fault(path, error))? };
        reader.check()?;
        Ok(reader)
    }

    fn check(&self) -> Result<()> {
        let number = |name: &str| {
            self.connection
                .pragma_query_value(None, name, |row| row.get::<_, i32>(0))
                .map_err(|error| fault(&self.path, error))
        };
        let why = match (number("application_id")?, number("user_version")?) {
            (APPLICATION, version) if version <= VERSION => return Ok(()),
            (APPLICATION, _) => "a later ksmith wrote it",
            _ => "another program wrote it",
        };
        Err(ReadError::Foreign { path: self.path.clone(), why: why.to_owned() })
    }

    /// Answers a question.
    ///
    /// # Errors
    /// A figure or a guest is not in the history, or SQLite refuses.
    pub fn ask(&self, query: &Query) -> Result<HistoryReport> {
        let guest = query.guest.as_deref().map(|name| self.find(name, query)).transpose()?;
        let columns = self.columns(query)?;
        let (rows, tier) = self.rows(query, &columns, guest.as_ref().map(|guest| guest.row))?;
        let (rows, width) = match query.resolution {
            Resolution::Tier(tier) => (rows, tier.milliseconds()),
            Resolution::Rows(most) => brought_together(rows, query, tier, most.max(1), &columns, guest.is_some()),
        };
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
            columns: ["time".to_owned()].into_iter().chain(columns.iter().map(|it| it.name.clone())).collect(),
            rows: rows.into_iter().map(named).collect(),
            decisions: self.decisions(query)?,
            events: self.events(query)?,
            guests: self.lives(query)?,
        })
    }

    /// The columns that are asked for. One that the file does not have yet is unknown in all rows.
    fn columns(&self, query: &Query) -> Result<Vec<Asked>> {
        let all = if query.guest.is_some() { columns::guest() } else { columns::host() };
        let table = match query.guest {
            Some(_) => Tier::Sample.of_guests(),
            None => Tier::Sample.of_host(),
        };
        let there = schema::names(&self.connection, &table).map_err(|error| fault(&self.path, error))?;
        let names: Vec<&str> = match query.columns.is_empty() {
            true => query.shown().to_vec(),
            false => query.columns.iter().map(String::as_str).collect(),
        };
        let find = |name: &str| {
            let column = all.iter().find(|column| column.name == name)?;
            Some(Asked {
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

    /// The rows of the best tier, with those of others where it has none: coarser ones before, and finer ones after.
    fn rows(&self, query: &Query, columns: &[Asked], guest: Option<i64>) -> Result<(Rows, Tier)> {
        let tier = query.tier();
        let mut rows = self.of_tier(tier, query.since, query.until, columns, guest)?;
        let mut coarsest = if rows.is_empty() { Tier::Sample } else { tier };
        if matches!(query.resolution, Resolution::Tier(_)) {
            return Ok((rows, tier));
        }
        let mut begin = time_of(rows.first()).unwrap_or(query.until);
        for coarser in Tier::ALL.into_iter().filter(|other| *other > tier) {
            if begin - query.since <= coarser.milliseconds() {
                break;
            }
            let mut before = self.of_tier(coarser, query.since, begin, columns, guest)?;
            begin = time_of(before.first()).unwrap_or(begin);
            if !before.is_empty() {
                coarsest = coarser;
            }
            before.append(&mut rows);
            rows = before;
        }
        for finer in Tier::ALL.into_iter().rev().filter(|other| *other < tier) {
            let end = match time_of(rows.last()) {
                None => query.since,
                Some(time) => {
                    time + 1 + if guest.is_none() { Tier::milliseconds(coarser_than(finer)) - 1 } else { 0 }
                }
            };
            if end < query.until {
                let mut after = self.of_tier(finer, end, query.until, columns, guest)?;
                if !after.is_empty() {
                    coarsest = coarsest.max(finer);
                }
                rows.append(&mut after);
            }
        }
        if let Some(guest) = guest {
            self.add_beginning(&mut rows, query, columns, guest)?;
        }
        Ok((rows, coarsest.max(tier)))
    }

    /// Adds what a guest's figures were at the beginning: a row holds until the next one.
    fn add_beginning(&self, rows: &mut Rows, query: &Query, columns: &[Asked], guest: i64) -> Result<()> {
        if time_of(rows.first()).is_some_and(|first| first <= query.since) {
            return Ok(());
        }
        let mut last: Option<Vec<Option<f64>>> = None;
        for tier in Tier::ALL {
            let long_ago = query.since.saturating_sub(2 * Tier::Hour.milliseconds());
            let before = self.of_tier(tier, long_ago, query.since, columns, Some(guest))?.pop();
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

    fn of_tier(&self, tier: Tier, since: i64, until: i64, columns: &[Asked], guest: Option<i64>) -> Result<Rows> {
        let figures: String = columns
            .iter()
            .map(|column| if column.is_there { format!(", {}", column.name) } else { ", NULL".to_owned() })
            .collect();
        let (sql, is_of_guest) = match guest {
            None => {
                let table = tier.of_host();
                (format!("SELECT time{figures} FROM {table} WHERE time >= ?1 AND time <= ?2 ORDER BY time"), false)
            }
            Some(_) => {
                let table = tier.of_guests();
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

    /// The guests that saved most in that time, the largest first: `most` at most.
    ///
    /// # Errors
    /// SQLite refuses.
    pub fn savers(&self, query: &Query, most: usize) -> Result<Vec<Saver>> {
        let parts = Tier::ALL.map(|tier| {
            format!(
                "SELECT guest, time, saved_bytes, profit_bytes, rss_bytes FROM {} WHERE time >= ?1 AND time <= ?2",
                tier.of_guests()
            )
        });
        // The one max() of the inner SELECT chooses the row from which plain columns come: the last one.
        let sql = format!(
            "SELECT guest.id, key, name, uuid, kind, domain, user, first, last, saved, profit, rss \
             FROM (SELECT guest, saved_bytes AS saved, profit_bytes AS profit, rss_bytes AS rss, max(time) FROM ({parts}) GROUP BY guest) AS found \
             JOIN guest ON guest.id = found.guest ORDER BY saved DESC LIMIT ?3",
            parts = parts.join(" UNION ALL ")
        );
        let read = || -> rusqlite::Result<Vec<Saver>> {
            let mut statement = self.connection.prepare(&sql)?;
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let saver = |row: &Row<'_>| {
                Ok(Saver {
                    life: life(row)?,
                    saved_bytes: number(row, 9)?,
                    profit_bytes: number(row, 10)?,
                    rss_bytes: number(row, 11)?,
                })
            };
            statement.query_map(params![query.since, query.until, most], saver)?.collect()
        };
        read().map_err(|error| fault(&self.path, error))
    }

    fn decisions(&self, query: &Query) -> Result<Vec<DecisionRow>> {
        let sql = "SELECT time, policy, state, reason, settings FROM decision WHERE time >= ?1 AND time <= ?2 \
                   ORDER BY time DESC, id DESC LIMIT ?3";
        let row = |row: &Row<'_>| {
            Ok(DecisionRow {
                time: seconds(row.get(0)?),
                policy: row.get(1)?,
                state: row.get(2)?,
                reason: row.get(3)?,
                settings: row.get(4)?,
            })
        };
        self.newest(sql, query, row)
    }

    fn events(&self, query: &Query) -> Result<Vec<EventRow>> {
        let sql = "SELECT time, kind, text FROM event WHERE time >= ?1 AND time <= ?2 ORDER BY time DESC, id DESC LIMIT ?3";
        let row = |row: &Row<'_>| Ok(EventRow { time: seconds(row.get(0)?), kind: row.get(1)?, text: row.get(2)? });
        self.newest(sql, query, row)
    }

    fn lives(&self, query: &Query) -> Result<Vec<GuestLife>> {
        let sql = "SELECT id, key, name, uuid, kind, domain, user, first, last FROM guest \
                   WHERE first <= ?2 AND (last IS NULL OR last >= ?1) ORDER BY first DESC, id DESC LIMIT ?3";
        self.newest(sql, query, life)
    }

    /// The newest rows in that time, the oldest of them first.
    fn newest<T>(
        &self,
        sql: &str,
        query: &Query,
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

    /// The guest of that key, UUID, PID or name, in this order: a guest may be given another's UUID as its name. Of several lives
    /// the last one that began before the end.
    fn find(&self, name: &str, query: &Query) -> Result<GuestLife> {
        let sql = "SELECT id, key, name, uuid, kind, domain, user, first, last FROM guest \
                   WHERE first <= ?2 \
                   AND (key = ?1 OR uuid = lower(?1) OR name = ?1 OR (key >= ?1 || ':' AND key < ?1 || ';')) \
                   ORDER BY key = ?1 DESC, uuid IS lower(?1) DESC, key >= ?1 || ':' AND key < ?1 || ';' DESC, \
                   first DESC, id DESC LIMIT 1";
        let found = self.connection.query_row(sql, params![name, query.until], life);
        match found {
            Err(rusqlite::Error::QueryReturnedNoRows) => Err(ReadError::NoGuest(name.to_owned())),
            other => other.map_err(|error| fault(&self.path, error)),
        }
    }
}

/// Rows of a time in milliseconds, and figures.
type Rows = Vec<Vec<Option<f64>>>;

/// A column that is asked for.
#[derive(Debug)]
struct Asked {
    name: String,
    is_there: bool,
    is_averaged: bool,
    is_whole: bool,
}

impl Asked {
    fn json(&self, value: Option<f64>) -> Json {
        match value {
            // Memory of a host is far below 2^53 bytes.
            Some(value) if self.is_whole => json!(value.round() as i64),
            Some(value) => json!(value),
            None => Json::Null,
        }
    }
}

fn coarser_than(tier: Tier) -> Tier {
    match tier {
        Tier::Sample => Tier::Minute,
        Tier::Minute | Tier::Hour => Tier::Hour,
    }
}

fn seconds(milliseconds: i64) -> f64 {
    milliseconds as f64 / 1000.0
}

fn time_of(row: Option<&Vec<Option<f64>>>) -> Option<i64> {
    row?.first()?.map(|time| time as i64)
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
    })
}

/// Rows brought together until `most` are left at most: the mean of gauges of the host, the last value of all others.
/// Returns the time between two rows besides.
fn brought_together(
    rows: Rows,
    query: &Query,
    tier: Tier,
    most: usize,
    columns: &[Asked],
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
            Some(column) if column.is_averaged && !is_of_guest => {
                let known: Vec<f64> = rows.iter().filter_map(|row| *row.get(at)?).collect();
                (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
            }
            _ => last.get(at).copied().flatten(),
        };
        (0..last.len()).map(value).collect()
    };
    (buckets.into_values().map(one).collect(), width)
}

fn connect(path: &Path, mode: &str) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri(path, mode), flags)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // The file is opened only now.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
    Ok(connection)
}

/// The path as SQLite's URI, in which all but plain characters are escaped.
fn uri(path: &Path, mode: &str) -> String {
    use std::os::unix::ffi::OsStrExt;

    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => uri.push(char::from(*byte)),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push_str(if mode == "immutable" { "?immutable=1" } else { "?mode=ro" });
    uri
}

fn has_log(path: &Path) -> bool {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    std::fs::metadata(name).is_ok_and(|file| file.len() > 0)
}

fn cannot_open(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied)
    )
}

fn fault(path: &Path, error: rusqlite::Error) -> ReadError {
    let path = path.to_owned();
    if is_damage(&error) {
        return ReadError::Damaged { path, why: error.to_string() };
    }
    ReadError::Sqlite { path, source: error }
}
