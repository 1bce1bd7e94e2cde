//! Retention: deletes rows by age and by size.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Result, Transaction, params};

use crate::bounds::HistoryBounds;
use crate::tier::HistoryTier;

/// Divisor of a tier's rows: the part that is deleted each time that the file is too large.
const PART: i64 = 10;

/// Size limit divided by this is the maximum number of ended guests. A guest takes some 600 bytes.
const BYTES_FOR_A_GUEST: u64 = 2048;

/// Limit of deletion rounds in one minute. The next minute continues.
const ROUNDS: usize = 5;

/// Deletes rows older than their tier's maximum age.
pub(crate) fn delete_old(transaction: &Transaction<'_>, now: i64, bounds: &HistoryBounds) -> Result<()> {
    let oldest = |age: Duration| now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    for (tier, age) in [
        (HistoryTier::Sample, bounds.samples),
        (HistoryTier::Minute, bounds.minutes),
        (HistoryTier::Hour, bounds.hours),
    ] {
        delete_before(transaction, tier, oldest(age))?;
    }
    for table in ["decision", "event"] {
        transaction
            .prepare_cached(&format!("DELETE FROM {table} WHERE time < ?1"))?
            .execute([oldest(bounds.minutes)])?;
    }
    transaction.prepare_cached("DELETE FROM guest WHERE last < ?1")?.execute([oldest(bounds.hours)])?;
    Ok(())
}

fn delete_before(transaction: &Transaction<'_>, tier: HistoryTier, time: i64) -> Result<()> {
    let host = tier.host_table();
    transaction.prepare_cached(&format!("DELETE FROM {host} WHERE time < ?1"))?.execute([time])?;
    let guests = tier.guest_table();
    let condition = match tier {
        HistoryTier::Sample => "time < ?1",
        // By the key, guest by guest: all other rows stay untouched.
        HistoryTier::Minute | HistoryTier::Hour => "guest IN (SELECT id FROM guest WHERE first < ?1) AND time < ?1",
    };
    transaction.prepare_cached(&format!("DELETE FROM {guests} WHERE {condition}"))?.execute([time])?;
    Ok(())
}

/// Deletes the oldest rows while the file uses more than `bytes`: surplus guests, then samples, minutes and hours.
/// Returns true if rows were deleted.
pub(crate) fn keep_within(connection: &mut Connection, bytes: u64) -> Result<bool> {
    let mut has_deleted = false;
    for _ in 0..ROUNDS {
        if used(connection)? <= bytes {
            break;
        }
        let transaction = connection.transaction()?;
        let deleted = delete_guests(&transaction, bytes)? || delete_oldest_part(&transaction)?;
        transaction.commit()?;
        has_deleted |= deleted;
        if !deleted {
            break;
        }
    }
    Ok(has_deleted)
}

/// Deletes the oldest ended guests if there are too many. Any user may start processes that count as guests.
fn delete_guests(transaction: &Transaction<'_>, bytes: u64) -> Result<bool> {
    let most = i64::try_from(bytes / BYTES_FOR_A_GUEST).unwrap_or(i64::MAX);
    let many: i64 =
        transaction.query_row("SELECT count(*) FROM guest WHERE last IS NOT NULL", [], |row| row.get(0))?;
    if many <= most {
        return Ok(false);
    }
    let oldest = "SELECT id FROM guest WHERE last IS NOT NULL ORDER BY last LIMIT ?1";
    for tier in HistoryTier::ALL {
        let table = tier.guest_table();
        transaction.execute(&format!("DELETE FROM {table} WHERE guest IN ({oldest})"), [many - most / 2])?;
    }
    transaction.execute(&format!("DELETE FROM guest WHERE id IN ({oldest})"), [many - most / 2])?;
    Ok(true)
}

/// Returns the bytes in use in the file. SQLite reuses free pages before the file grows.
fn used(connection: &Connection) -> Result<u64> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = number("page_count")?.saturating_sub(number("freelist_count")?);
    Ok(u64::try_from(pages.saturating_mul(number("page_size")?)).unwrap_or(0))
}

/// Deletes the oldest part of the finest tier that has enough rows. Returns true if there was one.
fn delete_oldest_part(transaction: &Transaction<'_>) -> Result<bool> {
    for tier in HistoryTier::ALL {
        let Some(time) = end_of_oldest_part(transaction, tier)? else { continue };
        delete_before(transaction, tier, time)?;
        if tier == HistoryTier::Minute {
            for table in ["decision", "event"] {
                transaction.execute(&format!("DELETE FROM {table} WHERE time < ?1"), params![time])?;
            }
        }
        return Ok(true);
    }
    Ok(false)
}

/// Returns the time at which the oldest part of the rows ends. Counts rows, since a clock step leaves gaps of years.
fn end_of_oldest_part(transaction: &Transaction<'_>, tier: HistoryTier) -> Result<Option<i64>> {
    let table = tier.host_table();
    let rows: i64 = transaction.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))?;
    if rows < PART {
        return Ok(None);
    }
    let sql = format!("SELECT time FROM {table} ORDER BY time LIMIT 1 OFFSET ?1");
    transaction.query_row(&sql, [rows / PART], |row| row.get(0)).optional()
}
