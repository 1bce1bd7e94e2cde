//! The store's file: its mode, its companion files, and SQLite's settings.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::bounds::HistoryBounds;
use crate::schema::{APPLICATION, VERSION};

/// The file's mode: readable by its group.
pub(super) const MODE: u32 = 0o640;

/// The mode of a directory that is created for the file.
const DIRECTORY_MODE: u32 = 0o750;

/// Returns the path of a companion file, by its suffix.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Creates the file with its mode, which SQLite also gives to the write-ahead log.
pub(super) fn prepare_file(path: &Path) -> io::Result<()> {
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

/// Renames the file, and removes SQLite's companion files. Keeps only the latest such file.
pub(super) fn rename_aside(path: &Path) -> io::Result<PathBuf> {
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

/// Returns a description of the file if another program or a later version wrote it.
pub(super) fn foreign(connection: &Connection) -> rusqlite::Result<Option<String>> {
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

/// Configures how SQLite writes the file, and limits its size.
pub(super) fn configure(connection: &Connection, bounds: &HistoryBounds) -> rusqlite::Result<()> {
    // A pragma that sets and answers: the answer is the mode in force.
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", -256)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
    connection.set_prepared_statement_cache_capacity(32);
    set_most_pages(connection, bounds.bytes)
}

/// Limits the file's size to a tenth more than `bytes`, as space for a minute's rows.
pub(super) fn set_most_pages(connection: &Connection, bytes: u64) -> rusqlite::Result<()> {
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let pages = bytes.saturating_add(bytes / 10) / page.max(1);
    connection.pragma_update_and_check(None, "max_page_count", pages.max(256), |_| Ok(()))
}
