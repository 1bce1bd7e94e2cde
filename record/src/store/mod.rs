//! The writer of the history.

mod file;
mod write;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::ffi::ErrorCode;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};

use self::file::{beside, configure, foreign, prepare_file, rename_aside, set_most_pages};
use self::write::{InsertStatements, WrittenGuest, write_one};
use crate::bounds::HistoryBounds;
use crate::fault::{StoreError, StoreFault};
use crate::moment::HistorySnapshot;
use crate::owner::keep_owners;
use crate::schema;
use crate::tier::HistoryTier;
use crate::{rollup, space};

/// SQLite's busy timeout for a write.
const PATIENCE: Duration = Duration::from_millis(250);

/// Longest plausible step between two tidied minutes, in milliseconds. A longer one means that the clock was set
/// forward.
const FORWARD: i64 = 24 * 3_600_000;

const MINUTES_OF_A_DAY: u32 = 24 * 60;

/// A history file, open for writing.
#[derive(Debug)]
pub struct HistoryStore {
    path: PathBuf,
    connection: Connection,
    bounds: HistoryBounds,
    boot: i64,
    statements: InsertStatements,
    guests: BTreeMap<String, WrittenGuest>,
    /// The last tidied minute.
    tidied: i64,
    /// Minutes for which deletion by age stays disabled after a clock step.
    distrust: u32,
}

/// The result of opening a store.
#[derive(Debug)]
pub struct OpenedStore {
    /// The store, ready for writing.
    pub store: HistoryStore,
    /// New path of a damaged file that was set aside.
    pub set_aside: Option<PathBuf>,
}

impl HistoryStore {
    /// Opens the file, or creates it. A damaged file is first set aside, replacing an earlier one.
    ///
    /// `boot_id` is the kernel's, and `now` is the time in milliseconds since 1970.
    ///
    /// # Errors
    /// The file can't be opened or created, or belongs to another program.
    pub fn open(path: &Path, boot_id: &str, now: i64, bounds: HistoryBounds) -> Result<OpenedStore, StoreError> {
        match Self::open_as_it_is(path, boot_id, now, bounds.clone()) {
            Err(error) if error.fault() == StoreFault::Corrupt => {
                let aside = Self::set_aside(path)?;
                let store = Self::open_as_it_is(path, boot_id, now, bounds)?;
                Ok(OpenedStore { store, set_aside: Some(aside) })
            }
            opened => opened.map(|store| OpenedStore { store, set_aside: None }),
        }
    }

    /// Renames a damaged file that no store has open. Returns its new path.
    ///
    /// # Errors
    /// The file can't be renamed.
    pub fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
        rename_aside(path).map_err(|source| StoreError::File { path: path.to_owned(), source })
    }

    fn open_as_it_is(path: &Path, boot_id: &str, now: i64, bounds: HistoryBounds) -> Result<Self, StoreError> {
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
        let statements = InsertStatements::new();
        let path = path.to_owned();
        let tidied =
            written_last(&connection).map_err(|source| StoreError::Sqlite { path: path.clone(), source })?;
        let tidied = tidied.unwrap_or(now);
        let tidied =
            tidied - tidied.rem_euclid(HistoryTier::Minute.milliseconds()) - HistoryTier::Minute.milliseconds();
        Ok(Self { path, connection, bounds, boot, statements, guests: BTreeMap::new(), tidied, distrust: 0 })
    }

    /// Writes snapshots in order of time, in one transaction.
    ///
    /// # Errors
    /// SQLite fails. None of the snapshots is written then.
    pub fn write(&mut self, moments: &[HistorySnapshot]) -> Result<(), StoreError> {
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

    fn write_all(&mut self, moments: &[HistorySnapshot]) -> rusqlite::Result<()> {
        let Self { connection, statements, guests, boot, .. } = self;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for moment in moments {
            write_one(&transaction, moment, statements, guests, *boot)?;
        }
        if let Some(last) = moments.last() {
            rollup::record_progress(&transaction, "written", last.time)?;
        }
        transaction.commit()
    }

    /// Creates the rows of coarser tiers, and deletes rows beyond the bounds. Does work once a minute.
    ///
    /// # Errors
    /// SQLite fails. Written rows stay, and are tidied the next time.
    pub fn tidy(&mut self, now: i64) -> Result<(), StoreError> {
        self.tidy_at(now).map_err(|source| StoreError::Sqlite { path: self.path.clone(), source })
    }

    fn tidy_at(&mut self, now: i64) -> rusqlite::Result<()> {
        let minute = now - now.rem_euclid(HistoryTier::Minute.milliseconds());
        if minute == self.tidied {
            return Ok(());
        }
        // A clock that was set forward makes all rows old at once. Until it has run on for a day nothing is deleted by its age.
        let step = minute - std::mem::replace(&mut self.tidied, minute);
        self.distrust =
            if (0..=FORWARD).contains(&step) { self.distrust.saturating_sub(1) } else { MINUTES_OF_A_DAY };
        // Space first: rows of coarser tiers need some.
        space::keep_within(&mut self.connection, self.bounds.bytes)?;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        rollup::roll_up(&transaction, now)?;
        // Only then: after a downtime, rows may be too old that had not been rolled up.
        if self.distrust == 0 {
            space::delete_old(&transaction, now, &self.bounds)?;
        }
        transaction.commit()
    }

    /// Frees space in a full file. Returns true if rows were deleted.
    fn make_room(&mut self) -> rusqlite::Result<bool> {
        // What is deleted needs some pages itself.
        set_most_pages(&self.connection, self.bounds.bytes.saturating_mul(2))?;
        let made = space::keep_within(&mut self.connection, self.bounds.bytes - self.bounds.bytes / 5);
        set_most_pages(&self.connection, self.bounds.bytes)?;
        made
    }

    /// Rejects writes while the write-ahead log is at its limit and can't be checkpointed.
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

    /// Returns the bytes on disk, including the write-ahead log.
    pub fn bytes(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |file| file.len()) + self.log_bytes()
    }

    /// Ends the recording: sets the end of all living guests to `now`.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn close(self, now: i64) -> Result<(), StoreError> {
        let Self { path, connection, .. } = self;
        let noted = connection.execute("UPDATE guest SET last = ?1 WHERE last IS NULL", [now]);
        noted.map(|_| ()).map_err(|source| StoreError::Sqlite { path, source })
    }
}

/// Returns the time of the last snapshot.
fn written_last(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.query_row("SELECT time FROM progress WHERE name = 'written'", [], |row| row.get(0)).optional()
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// Records the boot and returns its row. Guests that are still open from an earlier run are closed at the last
/// snapshot's time.
fn begin(connection: &Connection, boot_id: &str, now: i64) -> rusqlite::Result<i64> {
    connection.execute(
        "UPDATE guest SET last = coalesce((SELECT time FROM progress WHERE name = 'written'), first) WHERE last IS NULL",
        [],
    )?;
    connection.execute("INSERT OR IGNORE INTO boot (boot_id, first) VALUES (?1, ?2)", params![boot_id, now])?;
    connection.query_row("SELECT id FROM boot WHERE boot_id = ?1", [boot_id], |row| row.get(0))
}

#[cfg(test)]
mod tests;
