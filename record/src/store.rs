//! The writer of the history.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ksmith_core::figures::Value;
use rusqlite::ffi::ErrorCode;
use rusqlite::types::Value as Sql;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params, params_from_iter,
};

use crate::bounds::Bounds;
use crate::columns::{self, Column};
use crate::fault::{Fault, StoreError};
use crate::moment::{GuestFigures, Life, Moment};
use crate::owner::keep_owners;
use crate::schema::{self, APPLICATION, VERSION};
use crate::tier::Tier;
use crate::{rollup, space};

/// How long a write waits for a program that locks the file.
const PATIENCE: Duration = Duration::from_millis(250);

/// The file's mode: its group may read it.
const MODE: u32 = 0o640;

/// The mode of a directory that has to be made for it.
const DIRECTORY_MODE: u32 = 0o750;

/// A longer step of the clock between two minutes that are tidied is no mere pause, in milliseconds.
const FORWARD: i64 = 24 * 3_600_000;

const MINUTES_OF_A_DAY: u32 = 24 * 60;

/// The statements that write the figures of hosts and guests.
#[derive(Debug)]
struct Statements {
    host: String,
    guest: String,
}

/// What was written last of a guest.
#[derive(Debug)]
struct Written {
    id: i64,
    life: Life,
    values: Vec<Value>,
    /// The hour of the last row: each hour has a row of its own.
    hour: i64,
}

/// The file, open for writing.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
    bounds: Bounds,
    boot: i64,
    statements: Statements,
    guests: BTreeMap<String, Written>,
    /// The minute that was tidied last.
    tidied: i64,
    /// Minutes for which nothing is deleted by its age.
    distrust: u32,
}

/// A store that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The store, ready to be written.
    pub store: Store,
    /// Where a damaged file was set aside.
    pub set_aside: Option<PathBuf>,
}

impl Store {
    /// Opens the file, or makes it. A damaged one is set aside first, in the place of one that was set aside before.
    ///
    /// `boot_id` is the kernel's, and `now` the time in milliseconds since 1970.
    ///
    /// # Errors
    /// The file can't be opened or made, or belongs to another program.
    pub fn open(path: &Path, boot_id: &str, now: i64, bounds: Bounds) -> Result<Opened, StoreError> {
        match Self::open_as_it_is(path, boot_id, now, bounds.clone()) {
            Err(error) if error.fault() == Fault::Corrupt => {
                let aside = Self::set_aside(path)?;
                let store = Self::open_as_it_is(path, boot_id, now, bounds)?;
                Ok(Opened { store, set_aside: Some(aside) })
            }
            opened => opened.map(|store| Opened { store, set_aside: None }),
        }
    }

    /// Sets a damaged file aside, which no store has open any more. Returns its new path.
    ///
    /// # Errors
    /// It can't be renamed.
    pub fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
        rename_aside(path).map_err(|source| StoreError::File { path: path.to_owned(), source })
    }

    fn open_as_it_is(path: &Path, boot_id: &str, now: i64, bounds: Bounds) -> Result<Self, StoreError> {
        keep_owners();
        prepare_file(path).map_err(|source| StoreError::File { path: path.to_owned(), source })?;
        let sqlite = |source| StoreError::Sqlite { path: path.to_owned(), source };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
        connection.busy_timeout(PATIENCE).map_err(sqlite)?;
        if let Some(what) = foreign(&connection).map_err(sqlite)? {
            return Err(StoreError::Foreign { path: path.to_owned(), what });
        }
        configure(&connection, &bounds).map_err(sqlite)?;
        let boot = (|| {
            schema::make(&connection)?;
            begin(&connection, boot_id, now)
        })()
        .map_err(sqlite)?;
        let statements = Statements {
            host: insert(&Tier::Sample.of_host(), &["time"], &columns::host()),
            guest: insert(&Tier::Sample.of_guests(), &["time", "guest"], &columns::guest()),
        };
        let path = path.to_owned();
        let tidied =
            written_last(&connection).map_err(|source| StoreError::Sqlite { path: path.clone(), source })?;
        let tidied = tidied.unwrap_or(now);
        let tidied = tidied - tidied.rem_euclid(Tier::Minute.milliseconds()) - Tier::Minute.milliseconds();
        Ok(Self { path, connection, bounds, boot, statements, guests: BTreeMap::new(), tidied, distrust: 0 })
    }

    /// Writes moments, the oldest first: all of them or none.
    ///
    /// # Errors
    /// SQLite refuses. Nothing of these moments was written then.
    pub fn write(&mut self, moments: &[Moment]) -> Result<(), StoreError> {
        self.check_log()?;
        let mut written = self.write_all(moments);
        if written.as_ref().is_err_and(is_full) && self.make_room().unwrap_or(false) {
            self.guests.clear();
            written = self.write_all(moments);
        }
        written.map_err(|source| {
            // What was rolled back is looked up again.
            self.guests.clear();
            StoreError::Sqlite { path: self.path.clone(), source }
        })
    }

    fn write_all(&mut self, moments: &[Moment]) -> rusqlite::Result<()> {
        let Self { connection, statements, guests, boot, .. } = self;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for moment in moments {
            write_one(&transaction, moment, statements, guests, *boot)?;
        }
        if let Some(last) = moments.last() {
            rollup::note(&transaction, "written", last.time)?;
        }
        transaction.commit()
    }

    /// Makes the rows of coarser tiers, and deletes what is too old or too much. There is something to do once a minute.
    ///
    /// # Errors
    /// SQLite refuses. What was written stays, and is tidied the next time.
    pub fn tidy(&mut self, now: i64) -> Result<(), StoreError> {
        self.tidy_at(now).map_err(|source| StoreError::Sqlite { path: self.path.clone(), source })
    }

    fn tidy_at(&mut self, now: i64) -> rusqlite::Result<()> {
        let minute = now - now.rem_euclid(Tier::Minute.milliseconds());
        if minute == self.tidied {
            return Ok(());
        }
        // A clock that was set forward makes all rows old at once. Until it has run on for a day nothing is deleted by its age.
        let step = minute - std::mem::replace(&mut self.tidied, minute);
        self.distrust =
            if (0..=FORWARD).contains(&step) { self.distrust.saturating_sub(1) } else { MINUTES_OF_A_DAY };
        // Space first: rows of coarser tiers need some.
        if self.distrust == 0 {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            space::delete_old(&transaction, now, &self.bounds)?;
            transaction.commit()?;
        }
        space::keep_within(&mut self.connection, self.bounds.bytes)?;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        rollup::roll_up(&transaction, now)?;
        transaction.commit()
    }

    /// Makes room where the file is as large as it may be. Returns whether something was deleted.
    fn make_room(&mut self) -> rusqlite::Result<bool> {
        // What is deleted needs some pages itself.
        set_most_pages(&self.connection, self.bounds.bytes.saturating_mul(2))?;
        let made = space::keep_within(&mut self.connection, self.bounds.bytes - self.bounds.bytes / 5);
        set_most_pages(&self.connection, self.bounds.bytes)?;
        made
    }

    /// Refuses to add to a write-ahead log that can't be taken over into the file.
    fn check_log(&self) -> Result<(), StoreError> {
        if self.log_bytes() < self.bounds.log_bytes {
            return Ok(());
        }
        // Takes over what no reader holds. A disk that fails is an error, and a reader that holds on is none for SQLite.
        self.connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
            .map_err(|source| StoreError::Sqlite { path: self.path.clone(), source })?;
        match self.log_bytes() {
            bytes if bytes < self.bounds.log_bytes => Ok(()),
            bytes => Err(StoreError::HeldByReader { path: self.path.clone(), bytes }),
        }
    }

    fn log_bytes(&self) -> u64 {
        fs::metadata(beside(&self.path, "-wal")).map_or(0, |file| file.len())
    }

    /// Bytes on the disk, the write-ahead log included.
    pub fn bytes(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |file| file.len()) + self.log_bytes()
    }

    /// Notes that the host ends its records: guests that live are shown to have been there until now.
    ///
    /// # Errors
    /// SQLite refuses.
    pub fn close(self, now: i64) -> Result<(), StoreError> {
        let Self { path, connection, .. } = self;
        let noted = connection.execute("UPDATE guest SET last = ?1 WHERE last IS NULL", [now]);
        noted.map(|_| ()).map_err(|source| StoreError::Sqlite { path, source })
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes the file with its mode, which SQLite gives to the write-ahead log too.
fn prepare_file(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
        fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(MODE).open(path) {
        // The umask may have taken the group's right away.
        Ok(file) => file.set_permissions(Permissions::from_mode(MODE)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Renames the file and what SQLite has beside it. Only one such file is kept.
fn rename_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = beside(path, ".damaged");
    fs::rename(path, &aside)?;
    for suffix in ["-wal", "-shm"] {
        match fs::remove_file(beside(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(aside)
}

/// What the file is, if it is none of this program's.
fn foreign(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (number("application_id")?, number("user_version")?) {
        (0, 0) if tables == 0 => None,
        (APPLICATION, version) if version <= VERSION => None,
        (APPLICATION, _) => {
            Some("was written by a later version of ksmith; install that, or name another path".to_owned())
        }
        _ => Some("is a SQLite file of another program; name another path in [history]".to_owned()),
    })
}

fn configure(connection: &Connection, bounds: &Bounds) -> rusqlite::Result<()> {
    // A pragma that sets and answers: the answer is the mode in force.
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", -256)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
    connection.set_prepared_statement_cache_capacity(32);
    set_most_pages(connection, bounds.bytes)
}

/// Bounds the file's size: a tenth more than is kept, for a minute's rows.
fn set_most_pages(connection: &Connection, bytes: u64) -> rusqlite::Result<()> {
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let pages = bytes.saturating_add(bytes / 10) / page.max(1);
    connection.pragma_update_and_check(None, "max_page_count", pages.max(256), |_| Ok(()))
}

/// The time of the last record.
fn written_last(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.query_row("SELECT time FROM progress WHERE name = 'written'", [], |row| row.get(0)).optional()
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// Notes this start of the host. Guests that lived when the last record was made have ended by it, for all that is known.
fn begin(connection: &Connection, boot_id: &str, now: i64) -> rusqlite::Result<i64> {
    connection.execute(
        "UPDATE guest SET last = coalesce((SELECT time FROM progress WHERE name = 'written'), first) WHERE last IS NULL",
        [],
    )?;
    connection.execute("INSERT OR IGNORE INTO boot (boot_id, first) VALUES (?1, ?2)", params![boot_id, now])?;
    connection.query_row("SELECT id FROM boot WHERE boot_id = ?1", [boot_id], |row| row.get(0))
}

/// The statement that adds a row: its keys, and then the figures.
fn insert(table: &str, keys: &[&str], columns: &[Column]) -> String {
    let names: Vec<&str> = keys.iter().copied().chain(columns.iter().map(|column| column.name.as_str())).collect();
    let places = vec!["?"; names.len()].join(", ");
    format!("INSERT OR REPLACE INTO {table} ({}) VALUES ({places})", names.join(", "))
}

/// A figure for SQLite: its whole numbers are signed.
fn sql(value: &Value) -> Sql {
    match value {
        Value::Unknown | Value::Text(_) => Sql::Null,
        Value::Unsigned(number) => Sql::Integer(i64::try_from(*number).unwrap_or(i64::MAX)),
        Value::Signed(number) => Sql::Integer(*number),
        Value::Real(number) => Sql::Real(*number),
        Value::Flag(flag) => Sql::Integer(i64::from(*flag)),
    }
}

fn write_one(
    transaction: &Transaction<'_>,
    moment: &Moment,
    statements: &Statements,
    guests: &mut BTreeMap<String, Written>,
    boot: i64,
) -> rusqlite::Result<()> {
    if !moment.host.is_empty() {
        let row = [Sql::Integer(moment.time)].into_iter().chain(moment.host.iter().map(sql));
        transaction.prepare_cached(&statements.host)?.execute(params_from_iter(row))?;
    }
    if let Some(figures) = &moment.guests {
        write_guests(transaction, moment.time, figures, statements, guests, boot)?;
    }
    for made in &moment.decisions {
        transaction
            .prepare_cached(
                "INSERT INTO decision (time, policy, state, reason, settings) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![made.time, made.policy, made.state, made.reason, made.settings])?;
    }
    for event in &moment.events {
        transaction
            .prepare_cached("INSERT INTO event (time, kind, text) VALUES (?1, ?2, ?3)")?
            .execute(params![event.time, event.kind.word(), event.text])?;
    }
    Ok(())
}

fn write_guests(
    transaction: &Transaction<'_>,
    time: i64,
    figures: &[GuestFigures],
    statements: &Statements,
    guests: &mut BTreeMap<String, Written>,
    boot: i64,
) -> rusqlite::Result<()> {
    let hour = time.div_euclid(Tier::Hour.milliseconds());
    let mut before = std::mem::take(guests);
    let is_first = before.is_empty();
    for GuestFigures { life, values } in figures {
        let known = before.remove(&life.key);
        let is_known = known.as_ref().is_some_and(|known| known.life == *life);
        let id = match &known {
            Some(known) if is_known => known.id,
            _ => note_life(transaction, time, life, boot)?,
        };
        if known.is_none_or(|known| known.hour != hour || known.values != *values) {
            let row = [Sql::Integer(time), Sql::Integer(id)].into_iter().chain(values.iter().map(sql));
            transaction.prepare_cached(&statements.guest)?.execute(params_from_iter(row))?;
        }
        guests.insert(life.key.clone(), Written { id, life: life.clone(), values: values.clone(), hour });
    }
    let mut gone: Vec<i64> = before.into_values().map(|gone| gone.id).collect();
    if is_first {
        // After a start, or a write that failed: guests may have ended meanwhile.
        let living: BTreeSet<i64> = guests.values().map(|guest| guest.id).collect();
        let mut open = transaction.prepare_cached("SELECT id FROM guest WHERE last IS NULL")?;
        let ids = open.query_map([], |row| row.get::<_, i64>(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
        gone.extend(ids.into_iter().filter(|id| !living.contains(id)));
    }
    for id in gone {
        transaction.prepare_cached("UPDATE guest SET last = ?1 WHERE id = ?2")?.execute([time, id])?;
    }
    Ok(())
}

fn note_life(transaction: &Transaction<'_>, time: i64, life: &Life, boot: i64) -> rusqlite::Result<i64> {
    let Life { key, name, uuid, kind, program, user, cgroup, domain } = life;
    transaction
        .prepare_cached(
            "INSERT INTO guest (boot, key, name, uuid, kind, program, user, cgroup, domain, first) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (boot, key) DO UPDATE SET name = ?3, uuid = ?4, \
             kind = ?5, program = ?6, user = ?7, cgroup = ?8, domain = ?9, last = NULL RETURNING id",
        )?
        .query_row(params![boot, key, name, uuid, kind, program, user, cgroup, domain, time], |row| row.get(0))
}

#[cfg(test)]
mod tests;
