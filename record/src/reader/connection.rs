//! Read-only connections to the history file.

use std::path::Path;
use std::time::Duration;

use rusqlite::ffi::ErrorCode;
use rusqlite::{Connection, OpenFlags};

use super::error::{ReadError, fault};
use crate::schema::{APPLICATION, VERSION};

/// SQLite's busy timeout for a reader.
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens the history file at `path`.
///
/// # Errors
/// The file is missing, unreadable, or no history of ksmith.
pub(super) fn open(path: &Path) -> Result<Connection, ReadError> {
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
    let connection = connection.map_err(|error| fault(path, error))?;
    check(&connection, path)?;
    Ok(connection)
}

/// Rejects a file that is no history, or one of a later version.
fn check(connection: &Connection, path: &Path) -> Result<(), ReadError> {
    let number = |name: &str| {
        connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0)).map_err(|error| fault(path, error))
    };
    let why = match (number("application_id")?, number("user_version")?) {
        (APPLICATION, version) if version <= VERSION => return Ok(()),
        (APPLICATION, _) => "a later ksmith wrote it",
        _ => "another program wrote it",
    };
    Err(ReadError::Foreign { path: path.to_owned(), why: why.to_owned() })
}

/// Opens the file read-only: `mode` is `ro` or `immutable`.
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

/// Formats the path as SQLite's URI; percent-encodes all but plain characters.
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

/// Returns true if the file has a write-ahead log that is not empty.
fn has_log(path: &Path) -> bool {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    std::fs::metadata(name).is_ok_and(|file| file.len() > 0)
}

/// Returns true if SQLite was denied access to the file, or to the files that it creates beside it.
fn cannot_open(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied)
    )
}
