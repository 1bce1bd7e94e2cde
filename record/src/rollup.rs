//! Roll-up of samples into minute and hour rows.

use rusqlite::{OptionalExtension, Result, Transaction, params};

use crate::columns::{self, HistoryColumn};
use crate::tier::{HistoryTier, LONGEST_STEP, RECORDED};

/// Creates all minute and hour rows that are complete at `now`.
///
/// A guest's minutes are created hour by hour, so that the rows of one guest are adjacent in the file.
pub(crate) fn roll_up(transaction: &Transaction<'_>, now: i64) -> Result<()> {
    of_host(transaction, HistoryTier::Sample, HistoryTier::Minute, now)?;
    of_host(transaction, HistoryTier::Minute, HistoryTier::Hour, now)?;
    for tier in [HistoryTier::Minute, HistoryTier::Hour] {
        of_guests(transaction, tier, now)?;
    }
    Ok(())
}

fn of_host(transaction: &Transaction<'_>, from: HistoryTier, to: HistoryTier, now: i64) -> Result<()> {
    let (source, table) = (from.host_table(), to.host_table());
    let Some((begin, end)) = due(transaction, &source, &table, to, now)? else { return Ok(()) };
    let columns = columns::host();
    let names = names(&columns);
    // The only min() or max() of a SELECT chooses the row from which plain columns come: here the last one.
    let values: Vec<String> = columns.iter().map(mean_or_last).collect();
    let length = to.milliseconds();
    // A sample stands for the time since the one before it, unless that is long ago.
    let recorded = match from {
        HistoryTier::Sample => format!(
            "CASE WHEN time - lag(time) OVER (ORDER BY time) <= {LONGEST_STEP} THEN time - lag(time) OVER (ORDER BY time) ELSE 0 END"
        ),
        HistoryTier::Minute | HistoryTier::Hour => format!("coalesce({RECORDED}, {})", from.milliseconds()),
    };
    let sql = format!(
        "INSERT OR REPLACE INTO {table} (time, {names}, {RECORDED}) SELECT begin, {names}, weights FROM (\
         SELECT time / {length} * {length} AS begin, {}, sum(weight) AS weights, max(time) FROM (\
         SELECT time, {names}, {recorded} AS weight FROM {source} WHERE time >= ?1 - {LONGEST_STEP} AND time < ?2) \
         WHERE time >= ?1 GROUP BY 1)",
        values.join(", "),
        names = names.join(", "),
    );
    transaction.prepare_cached(&sql)?.execute(params![begin, end])?;
    record_progress(transaction, &table, end)
}

fn of_guests(transaction: &Transaction<'_>, to: HistoryTier, now: i64) -> Result<()> {
    let (source, table) = (HistoryTier::Sample.guest_table(), to.guest_table());
    let Some((begin, end)) = due(transaction, &source, &table, HistoryTier::Hour, now)? else { return Ok(()) };
    let columns = columns::guest();
    let names = names(&columns).join(", ");
    let length = to.milliseconds();
    let sql = format!(
        "INSERT OR REPLACE INTO {table} (guest, time, {names}) SELECT guest, begin, {names} FROM (SELECT guest, \
         time / {length} * {length} AS begin, {names}, max(time) FROM {source} WHERE time >= ?1 AND time < ?2 GROUP BY 1, 2) \
         ORDER BY guest, begin"
    );
    transaction.prepare_cached(&sql)?.execute(params![begin, end])?;
    record_progress(transaction, &table, end)
}

fn names(columns: &[HistoryColumn]) -> Vec<&str> {
    columns.iter().map(|column| column.name.as_str()).collect()
}

fn mean_or_last(column: &HistoryColumn) -> String {
    let name = &column.name;
    match column.sql_type() {
        _ if !column.is_averaged() => name.clone(),
        "INTEGER" => format!("CAST(round({}) AS INTEGER) AS {name}", mean(name)),
        _ => format!("{} AS {name}", mean(name)),
    }
}

/// Returns the mean over time, or over rows where no time is recorded.
fn mean(name: &str) -> String {
    let time = format!("sum(CASE WHEN {name} IS NULL THEN 0 ELSE weight END)");
    format!("coalesce(sum(1.0 * {name} * weight) / nullif({time}, 0), avg({name}))")
}

/// Returns the time range to roll up. `None` if no row has become complete.
fn due(
    transaction: &Transaction<'_>,
    source: &str,
    table: &str,
    unit: HistoryTier,
    now: i64,
) -> Result<Option<(i64, i64)>> {
    let end = now - now.rem_euclid(unit.milliseconds());
    let noted = transaction
        .prepare_cached("SELECT time FROM progress WHERE name = ?1")?
        .query_row([table], |row| row.get::<_, i64>(0))
        .optional()?;
    let oldest = || {
        let sql = format!("SELECT time FROM {source} ORDER BY time LIMIT 1");
        transaction.query_row(&sql, [], |row| row.get::<_, i64>(0)).optional()
    };
    let begin = match noted {
        // A clock that was set back: the rows from then on are made again.
        Some(noted) => Some(noted.min(end - unit.milliseconds())).filter(|_| noted != end),
        None => oldest()?.map(|oldest| oldest - oldest.rem_euclid(unit.milliseconds())),
    };
    Ok(begin.filter(|begin| *begin < end).map(|begin| (begin, end)))
}

/// Records the time up to which a task is complete.
pub(crate) fn record_progress(transaction: &Transaction<'_>, name: &str, time: i64) -> Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO progress (name, time) VALUES (?1, ?2)")?
        .execute(params![name, time])?;
    Ok(())
}
