//! Keeps the history within its age and its size.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Result, Transaction, params};

use crate::bounds::Bounds;
use crate::tier::Tier;

/// Each time that the file is too large, so much of the oldest tier's time is deleted.
const PART: i64 = 10;

/// Rounds of deleting in one minute. The next minute goes on.
const ROUNDS: usize = 5;

/// Deletes what is older than is kept.
pub(crate) fn delete_old(transaction: &Transaction<'_>, now: i64, bounds: &Bounds) -> Result<()> {
    let oldest = |age: Duration| now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    for (tier, age) in [(Tier::Sample, bounds.samples), (Tier::Minute, bounds.minutes), (Tier::Hour, bounds.hours)]
    {
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

fn delete_before(transaction: &Transaction<'_>, tier: Tier, time: i64) -> Result<()> {
    let host = tier.of_host();
    transaction.prepare_cached(&format!("DELETE FROM {host} WHERE time < ?1"))?.execute([time])?;
    let guests = tier.of_guests();
    let condition = match tier {
        Tier::Sample => "time < ?1",
        // By the key, guest by guest: all other rows stay untouched.
        Tier::Minute | Tier::Hour => "guest IN (SELECT id FROM guest WHERE first < ?1) AND time < ?1",
    };
    transaction.prepare_cached(&format!("DELETE FROM {guests} WHERE {condition}"))?.execute([time])?;
    Ok(())
}

/// Deletes the oldest rows while the file uses more than `bytes`: samples first, then minutes, then hours.
pub(crate) fn keep_within(connection: &mut Connection, bytes: u64) -> Result<()> {
    for _ in 0..ROUNDS {
        if used(connection)? <= bytes {
            return Ok(());
        }
        let transaction = connection.transaction()?;
        let has_deleted = delete_oldest_part(&transaction)?;
        transaction.commit()?;
        if !has_deleted {
            return Ok(());
        }
    }
    Ok(())
}

/// Bytes of the file in use. Pages that became free are used again before the file grows.
fn used(connection: &Connection) -> Result<u64> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = number("page_count")?.saturating_sub(number("freelist_count")?);
    Ok(u64::try_from(pages.saturating_mul(number("page_size")?)).unwrap_or(0))
}

/// Deletes a part of the oldest time of the finest tier that has more than its newest row. Returns whether there was one.
fn delete_oldest_part(transaction: &Transaction<'_>) -> Result<bool> {
    for tier in Tier::ALL {
        let (Some(first), Some(last)) = (end_of(transaction, tier, "")?, end_of(transaction, tier, "DESC")?) else {
            continue;
        };
        if last - first < PART {
            continue;
        }
        let time = first + ((last - first) / PART).max(1);
        delete_before(transaction, tier, time)?;
        if tier == Tier::Minute {
            for table in ["decision", "event"] {
                transaction.execute(&format!("DELETE FROM {table} WHERE time < ?1"), params![time])?;
            }
        }
        return Ok(true);
    }
    Ok(false)
}

fn end_of(transaction: &Transaction<'_>, tier: Tier, order: &str) -> Result<Option<i64>> {
    let sql = format!("SELECT time FROM {} ORDER BY time {order} LIMIT 1", tier.of_host());
    transaction.query_row(&sql, [], |row| row.get(0)).optional()
}
