//! Writing a snapshot within a transaction.

use std::collections::{BTreeMap, BTreeSet};

use ksmith_core::figures::FigureScalar;
use rusqlite::types::Value as Sql;
use rusqlite::{Transaction, params, params_from_iter};

use crate::columns::{self, HistoryColumn};
use crate::moment::{GuestFigures, GuestIdentity, HistorySnapshot};
use crate::tier::HistoryTier;

/// The INSERT statements for the figures of the host and its guests.
#[derive(Debug)]
pub(super) struct InsertStatements {
    /// The statement for the host.
    pub(super) host: String,
    /// The statement for a guest.
    pub(super) guest: String,
}

/// A guest as it was last written.
#[derive(Debug)]
pub(super) struct WrittenGuest {
    id: i64,
    life: GuestIdentity,
    values: Vec<FigureScalar>,
    /// The hour of the last row: each hour has at least one row.
    hour: i64,
}

impl InsertStatements {
    /// Builds the statements for the columns of this version.
    pub(super) fn new() -> Self {
        Self {
            host: insert(&HistoryTier::Sample.host_table(), &["time"], &columns::host()),
            guest: insert(&HistoryTier::Sample.guest_table(), &["time", "guest"], &columns::guest()),
        }
    }
}

/// Builds an INSERT statement: the keys, then the figures.
fn insert(table: &str, keys: &[&str], columns: &[HistoryColumn]) -> String {
    let names: Vec<&str> = keys.iter().copied().chain(columns.iter().map(|column| column.name.as_str())).collect();
    let places = vec!["?"; names.len()].join(", ");
    format!("INSERT OR REPLACE INTO {table} ({}) VALUES ({places})", names.join(", "))
}

/// Converts a figure to an SQLite value. SQLite's integers are signed.
fn sql(value: &FigureScalar) -> Sql {
    match value {
        FigureScalar::Unknown | FigureScalar::Text(_) => Sql::Null,
        FigureScalar::Unsigned(number) => Sql::Integer(i64::try_from(*number).unwrap_or(i64::MAX)),
        FigureScalar::Signed(number) => Sql::Integer(*number),
        FigureScalar::Real(number) => Sql::Real(*number),
        FigureScalar::Flag(flag) => Sql::Integer(i64::from(*flag)),
    }
}

/// Writes one snapshot: the host, its guests, decisions and events.
pub(super) fn write_one(
    transaction: &Transaction<'_>,
    moment: &HistorySnapshot,
    statements: &InsertStatements,
    guests: &mut BTreeMap<String, WrittenGuest>,
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
                "INSERT INTO decision (time, policy, state, reason, settings, reason_detail) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![made.time, made.policy, made.state, made.reason, made.settings, made.reason_detail])?;
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
    statements: &InsertStatements,
    guests: &mut BTreeMap<String, WrittenGuest>,
    boot: i64,
) -> rusqlite::Result<()> {
    let hour = time.div_euclid(HistoryTier::Hour.milliseconds());
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
        guests.insert(life.key.clone(), WrittenGuest { id, life: life.clone(), values: values.clone(), hour });
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

fn note_life(transaction: &Transaction<'_>, time: i64, life: &GuestIdentity, boot: i64) -> rusqlite::Result<i64> {
    let GuestIdentity { key, name, uuid, kind, program, user, cgroup, domain, labels } = life;
    transaction
        .prepare_cached(
            "INSERT INTO guest (boot, key, name, uuid, kind, program, user, cgroup, domain, labels, first) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (boot, key) DO UPDATE SET name = ?3, \
             uuid = ?4, kind = ?5, program = ?6, user = ?7, cgroup = ?8, domain = ?9, labels = ?10, last = NULL \
             RETURNING id",
        )?
        .query_row(params![boot, key, name, uuid, kind, program, user, cgroup, domain, labels, time], |row| row.get(0))
}
