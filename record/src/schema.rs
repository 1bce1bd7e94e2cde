//! The tables of the file, generated from the table of figures.

use std::collections::BTreeSet;
use std::fmt::Write;

use rusqlite::{Connection, Result};

use crate::columns::{self, HistoryColumn};
use crate::tier::{HistoryTier, RECORDED};

/// SQLite's application id for a history of ksmith: "ksmh".
pub(crate) const APPLICATION: i32 = 0x6b73_6d68;

/// Version of the tables that do not depend on figures.
pub(crate) const VERSION: i32 = 1;

/// Tables that do not depend on figures, with a sentence for each.
const FIXED: &[(&str, &str, &str)] = &[
    (
        "boot",
        "id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL UNIQUE, first INTEGER NOT NULL",
        "Each start of the host in which something was recorded. `first` is the time of the first record.",
    ),
    (
        "guest",
        "id INTEGER PRIMARY KEY, boot INTEGER NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL, uuid TEXT, \
         kind TEXT NOT NULL, program TEXT NOT NULL, user TEXT, cgroup TEXT, domain TEXT, first INTEGER NOT NULL, \
         last INTEGER, labels TEXT, UNIQUE (boot, key)",
        "Each guest from its first record to its last. `last` is NULL while the guest lives; `key` is PID:START; `labels` is \
         a JSON object: `labels ->> 'role'`.",
    ),
    (
        "decision",
        "id INTEGER PRIMARY KEY, time INTEGER NOT NULL, policy TEXT NOT NULL, state TEXT NOT NULL, \
         reason TEXT NOT NULL, settings TEXT NOT NULL, reason_detail TEXT",
        "Each decision that changed the policy's state or a setting other than the pace of ksmd. `reason_detail` has the \
         arithmetic behind `reason`.",
    ),
    (
        "event",
        "id INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL",
        "What happened besides. docs/how-to/history-and-report.md lists the kinds.",
    ),
    (
        "progress",
        "name TEXT PRIMARY KEY, time INTEGER NOT NULL",
        "The time up to which each tier is complete. For ksmith alone.",
    ),
];

/// The column of a guest's labels, which the first histories lack.
pub(crate) const LABELS: &str = "labels";

/// The column of the arithmetic behind a decision's reason, which the first histories lack.
pub(crate) const REASON_DETAIL: &str = "reason_detail";

/// Indexes of the fixed tables.
const INDEXES: &[&str] = &[
    "CREATE INDEX IF NOT EXISTS guest_first ON guest (first)",
    "CREATE INDEX IF NOT EXISTS decision_time ON decision (time)",
    "CREATE INDEX IF NOT EXISTS event_time ON event (time)",
];

fn of_host(tier: HistoryTier) -> (String, &'static str) {
    (tier.host_table(), "time INTEGER PRIMARY KEY")
}

/// Guest samples are written together, so they are ordered by time. Coarser tiers are read guest by guest.
fn of_guests(tier: HistoryTier) -> (String, &'static str) {
    (tier.guest_table(), "time INTEGER NOT NULL, guest INTEGER NOT NULL")
}

fn key_of_guests(tier: HistoryTier) -> &'static str {
    match tier {
        HistoryTier::Sample => "PRIMARY KEY (time, guest)",
        HistoryTier::Minute | HistoryTier::Hour => "PRIMARY KEY (guest, time)",
    }
}

fn typed(columns: &[HistoryColumn]) -> String {
    columns.iter().fold(String::new(), |mut text, column| {
        let _ = write!(text, ", {} {}", column.name, column.sql_type());
        text
    })
}

/// Creates missing tables, and adds columns for new figures.
pub(crate) fn make(connection: &Connection) -> Result<()> {
    for (table, columns, _) in FIXED {
        connection.execute_batch(&format!("CREATE TABLE IF NOT EXISTS {table} ({columns})"))?;
    }
    for (table, column) in [("guest", LABELS), ("decision", REASON_DETAIL)] {
        if !names(connection, table)?.contains(column) {
            connection.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {column} TEXT"))?;
        }
    }
    for index in INDEXES {
        connection.execute_batch(index)?;
    }
    let (host, guest) = (columns::host(), columns::guest());
    for tier in HistoryTier::ALL {
        let (table, key) = of_host(tier);
        connection.execute_batch(&format!("CREATE TABLE IF NOT EXISTS {table} ({key}{})", typed(&host)))?;
        add_missing(connection, &table, &host)?;
        if tier != HistoryTier::Sample && !names(connection, &table)?.contains(RECORDED) {
            connection.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {RECORDED} INTEGER"))?;
        }
        let (table, key) = of_guests(tier);
        let primary = key_of_guests(tier);
        connection.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS {table} ({key}{}, {primary}) WITHOUT ROWID",
            typed(&guest)
        ))?;
        add_missing(connection, &table, &guest)?;
    }
    connection.pragma_update(None, "application_id", APPLICATION)?;
    connection.pragma_update(None, "user_version", VERSION)
}

fn add_missing(connection: &Connection, table: &str, columns: &[HistoryColumn]) -> Result<()> {
    let there = names(connection, table)?;
    for column in columns.iter().filter(|column| !there.contains(&column.name)) {
        connection.execute_batch(&format!(
            "ALTER TABLE {table} ADD COLUMN {} {}",
            column.name,
            column.sql_type()
        ))?;
    }
    Ok(())
}

/// Returns the names of a table's columns.
pub(crate) fn names(connection: &Connection, table: &str) -> Result<BTreeSet<String>> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    statement.query_map([table], |row| row.get(0))?.collect()
}

/// Renders the page docs/reference/history.md: every table with its columns.
pub fn reference() -> String {
    let mut page = String::from(
        "# Tables of the history\n\n\
         The history is a SQLite file, `/var/lib/ksmith/history/history.db`. Times are milliseconds since 1970 (UTC): \
         `SELECT datetime(time / 1000, 'unixepoch'), saved_bytes FROM host_minute`. NULL means that the value is unknown, \
         or that this kernel lacks the figure.\n\n\
         This page is generated: `cargo run -p ksmith -- schema --history > docs/reference/history.md`.\n",
    );
    for (table, columns, sentence) in FIXED {
        let _ = write!(page, "\n## {table}\n\n{sentence}\n\n    CREATE TABLE {table} ({columns})\n");
    }
    let parts = [
        (
            "host_sample, host_minute, host_hour",
            columns::host(),
            "`time` is the key. A minute and an hour have the mean of each gauge over the recorded time, the last value of each counter and \
             state, and in `recorded_ms` the recorded time in milliseconds.",
        ),
        (
            "guest_sample, guest_minute, guest_hour",
            columns::guest(),
            "`guest` is the guest's `id`; `guest` and `time` are the key. A row holds until the guest's next row: where \
             nothing changes there is no row but for one in each hour. A minute and an hour have the last values.",
        ),
    ];
    for (tables, columns, sentence) in parts {
        let _ =
            write!(page, "\n## {tables}\n\n{sentence}\n\n| column | unit | kind | meaning |\n|---|---|---|---|\n");
        for HistoryColumn { name, field } in columns {
            let _ = writeln!(page, "| `{name}` | {} | {} | {} |", field.unit.word(), field.kind.word(), field.help);
        }
    }
    page
}
