//! The sentences of `profit`.

use std::time::Duration;

use super::guests::GuestChanges;
use super::scan_reason::ScanReason;
use super::state::RunningScan;
use crate::cpu_use::TICKS_PER_SECOND;
use crate::scan::{ScanOutcome, ScanSettings};
use crate::units::{Bytes, TimeSpan};

/// Describes the reason for a scan.
pub fn why(reason: ScanReason, changes: GuestChanges, expected_bytes: f64) -> String {
    match reason {
        ScanReason::Burst => growth(changes),
        ScanReason::Finish => {
            "huge pages were split, and equal pages in them may have missed each other".to_owned()
        }
        ScanReason::Retry => {
            "new guests merged few of the pages that they may have in common with others".to_owned()
        }
        ScanReason::Revisit | ScanReason::Sustain => format!("expecting {} more", Bytes(expected_bytes as i128)),
        ScanReason::Tidy if changes.ended_pages == 0 => {
            "KSM still tracks pages of guests that have ended".to_owned()
        }
        ScanReason::Tidy => format!("guests with {} merged pages have ended", changes.ended_pages),
        ScanReason::Probe if changes.grown_bytes > 0 => growth(changes),
        ScanReason::Probe => format!("guests were active for {}", TimeSpan(cpu_time(changes))),
    }
}

/// Describes the amount of new memory.
pub fn growth(changes: GuestChanges) -> String {
    match changes.new_guests {
        0 => format!("{} of new memory", Bytes::from(changes.grown_bytes)),
        1 => format!("{} of new memory, one new process", Bytes::from(changes.grown_bytes)),
        n => format!("{} of new memory, {n} new processes", Bytes::from(changes.grown_bytes)),
    }
}

/// Describes a scan in progress.
pub fn scanning(why: &str, settings: &ScanSettings) -> String {
    let pages = if settings.visits_all { "every page" } else { "few old pages" };
    format!("{why}; {pages}, up to {:.0} % of a CPU", settings.share * 100.0)
}

/// Describes the savings and the cost of a scan that has ended, beside those that were foretold.
pub fn outcome(running: &RunningScan, outcome: &ScanOutcome, price: f64) -> String {
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let foretold = running.foretold.map(|foretold| {
        format!(", foretold {} in {:.2} CPU-s", Bytes::from(foretold.saved_bytes), foretold.cpu_seconds)
    });
    format!(
        "{} saved {} in {:.2} CPU-s ({:.1} MiB/CPU-s, price {:.1}){}",
        running.reason.state(),
        Bytes::from(outcome.saved_bytes),
        outcome.cpu_seconds,
        mib(outcome.yield_per_cpu_second()),
        mib(price),
        foretold.unwrap_or_default(),
    )
}

/// Describes why a probe that is due is not made.
pub fn idle(changes: GuestChanges) -> String {
    format!("the guests are idle ({} of CPU since); a probe when they are not", TimeSpan(cpu_time(changes)))
}

fn cpu_time(changes: GuestChanges) -> Duration {
    Duration::from_secs_f64(changes.cpu_ticks as f64 / TICKS_PER_SECOND)
}
