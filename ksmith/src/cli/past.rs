//! Reads the past that `ksmith top` shows from the history.

use std::path::Path;

use ksmith_core::guest::{Guest, GuestKind, GuestMemoryFigures};
use ksmith_core::model::GuestsReport;
use ksmith_core::sample::{ProcessId, Sample};
use ksmith_record::{HistoryReader, ReadError, ReportQuery, ReportResolution, SavingGuest, times};
use serde_json::Value;

use crate::top::{HeaderFigures, PastFigures, PastMoment, ShownDecision};

/// Most moments that are read; of a longer time each stands for several.
const MOST_MOMENTS: usize = 2000;

/// Milliseconds before a moment in which each guest of it has a row: at least one an hour.
const GUEST_ROWS: i64 = 2 * 3_600_000;

/// Most guests of a moment.
const MOST_GUESTS: usize = 5000;

/// The history, as seen from the start of `ksmith top`.
pub(super) struct PastReader {
    reader: HistoryReader,
    /// The start, in milliseconds since 1970.
    started: i64,
}

impl PastReader {
    /// Opens the history.
    ///
    /// # Errors
    /// The file is missing, unreadable, or no history of ksmith.
    pub(super) fn open(file: &Path, started: i64) -> Result<Self, ReadError> {
        Ok(Self { reader: HistoryReader::open(file)?, started })
    }

    /// Returns the seconds from the start to a time in milliseconds since 1970.
    pub(super) fn seconds(&self, time: i64) -> f64 {
        time.saturating_sub(self.started) as f64 / 1000.0
    }

    /// Reads figures and decisions from a time, in milliseconds since 1970, up to the start.
    ///
    /// # Errors
    /// SQLite fails.
    pub(super) fn read_figures(&self, since: i64) -> Result<PastFigures, ReadError> {
        let query = ReportQuery {
            since,
            until: self.started,
            guest: None,
            // The default ones, which have what is shown.
            columns: Vec::new(),
            resolution: ReportResolution::Rows(MOST_MOMENTS),
        };
        let report = self.reader.read_report(&query)?;
        let decisions = report.decisions.into_iter().map(|made| ShownDecision {
            at: self.seconds((made.time * 1000.0) as i64),
            state: format!("{}: {}", made.policy, made.state),
            reason: made.reason,
            detail: made.reason_detail,
        });
        let moments = report.rows.iter().filter_map(|row| self.moment(&report.columns, row));
        Ok(PastFigures { moments: moments.collect(), decisions: decisions.collect() })
    }

    fn moment(&self, columns: &[String], row: &[Value]) -> Option<PastMoment> {
        let number = |name: &str| row.get(columns.iter().position(|column| column == name)?)?.as_f64();
        let bytes = |name: &str| number(name).map(|bytes| bytes.max(0.0) as u64);
        let time = (number("time")? * 1000.0) as i64;
        let figures = HeaderFigures {
            saved_bytes: bytes("saved_bytes"),
            profit_bytes: number("profit_bytes").map(|bytes| bytes as i64),
            exposure_bytes: bytes("exposure_bytes"),
            headroom_bytes: bytes("headroom_bytes"),
            ksmd_percent: number("ksmd_cpu_percent"),
            pressure_percent: number("memory_pressure_percent"),
            ..HeaderFigures::default()
        };
        Some(PastMoment { at: self.seconds(time), clock: times::local(time), figures })
    }

    /// Reads the guests of a moment, in seconds since the start.
    ///
    /// # Errors
    /// SQLite fails.
    pub(super) fn read_guests(&self, at: f64) -> Result<GuestsReport, ReadError> {
        let until = self.started.saturating_add((at * 1000.0) as i64);
        let query = ReportQuery {
            since: until.saturating_sub(GUEST_ROWS),
            until,
            guest: None,
            columns: Vec::new(),
            resolution: ReportResolution::Rows(1),
        };
        let moment = until as f64 / 1000.0;
        let savers = self.reader.savers(&query, MOST_GUESTS)?.into_iter();
        let guests: Vec<Guest> = savers
            .filter(|saver| saver.life.last.is_none_or(|last| last > moment))
            .filter_map(past_guest)
            .collect();
        let saved_bytes = guests.iter().map(|guest| guest.figures.saved_bytes).fold(0, u64::saturating_add);
        let profit_bytes = guests.iter().map(|guest| guest.figures.profit_bytes).fold(0, i64::saturating_add);
        let report = GuestsReport::new(&Sample::default(), guests, 0);
        Ok(GuestsReport { saved_bytes, profit_bytes, is_unknown: false, ..report })
    }
}

/// Returns a recorded guest as far as the history knows it.
fn past_guest(saver: SavingGuest) -> Option<Guest> {
    let SavingGuest { life, saved_bytes, profit_bytes, rss_bytes, merged_bytes } = saver;
    let (pid, start_ticks) = life.id.split_once(':')?;
    let process = ProcessId { pid: pid.parse().ok()?, start_ticks: start_ticks.parse().ok()? };
    let bytes = |bytes: Option<f64>| bytes.unwrap_or(0.0).max(0.0) as u64;
    let (saved, profit) = (bytes(saved_bytes), profit_bytes.unwrap_or(0.0) as i64);
    let figures = GuestMemoryFigures {
        rss_bytes: rss_bytes.map(|rss| rss.max(0.0) as u64),
        merged_bytes: bytes(merged_bytes),
        saved_bytes: saved,
        metadata_bytes: u64::try_from(i128::from(saved) - i128::from(profit)).unwrap_or(0),
        profit_bytes: profit,
        is_metadata_unknown: profit_bytes.is_none(),
        is_unknown: saved_bytes.is_none(),
        ..GuestMemoryFigures::default()
    };
    Some(Guest {
        uuid: life.uuid,
        kind: GuestKind::new(&life.kind),
        user: life.user,
        domain: life.domain,
        labels: life.labels,
        figures,
        ..Guest::plain(&life.name, process)
    })
}

#[cfg(test)]
mod tests {
    use ksmith_core::figures::FigureScalar;
    use ksmith_record::{
        DecisionMade, GuestFigures, GuestIdentity, HistoryBounds, HistorySnapshot, HistoryStore, columns,
    };

    use super::*;

    const BEGIN: i64 = 1_795_467_600_000;

    fn values(columns: &[columns::HistoryColumn], known: &[(&str, u64)]) -> Vec<FigureScalar> {
        let value = |column: &columns::HistoryColumn| {
            let found = known.iter().find(|(name, _)| *name == column.name);
            found.map_or(FigureScalar::Unknown, |(_, value)| FigureScalar::Unsigned(*value))
        };
        columns.iter().map(value).collect()
    }

    fn guest(pid: u32, saved_bytes: u64) -> GuestFigures {
        let life = GuestIdentity {
            key: format!("{pid}:7"),
            name: format!("web-{pid}"),
            kind: "qemu".to_owned(),
            ..GuestIdentity::default()
        };
        let known = [("saved_bytes", saved_bytes), ("merged_bytes", 3 * saved_bytes)];
        GuestFigures { life, values: values(&columns::guest(), &known) }
    }

    #[test]
    fn the_past_is_read_with_its_decisions_and_the_guests_of_a_moment() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("history.db");
        let mut store = HistoryStore::open(&file, "boot", BEGIN, HistoryBounds::default()).unwrap().store;
        let moment = |second: i64, saved_bytes: u64, guests: Vec<GuestFigures>| HistorySnapshot {
            time: BEGIN + second * 1000,
            host: values(&columns::host(), &[("saved_bytes", saved_bytes)]),
            guests: Some(guests),
            ..HistorySnapshot::default()
        };
        let mut second = moment(10, 5, vec![guest(2, 5)]);
        second.decisions.push(DecisionMade {
            time: BEGIN + 10_000,
            policy: "profit".to_owned(),
            state: "burst".to_owned(),
            reason: "new memory".to_owned(),
            reason_detail: Some("every page".to_owned()),
            settings: String::new(),
        });
        store.write(&[moment(1, 7, vec![guest(1, 4), guest(2, 3)]), second]).unwrap();
        let past = PastReader::open(&file, BEGIN + 60_000).unwrap();
        let figures = past.read_figures(BEGIN).unwrap();
        let seen: Vec<_> = figures.moments.iter().map(|moment| (moment.at, moment.figures.saved_bytes)).collect();
        assert_eq!(seen, [(-59.0, Some(7)), (-50.0, Some(5))]);
        let decision = &figures.decisions[0];
        assert_eq!((decision.at, decision.state.as_str()), (-50.0, "profit: burst"));
        assert_eq!(decision.detail.as_deref(), Some("every page"));
        let guests = |at: f64| -> Vec<(String, u64, u64)> {
            let report = past.read_guests(at).unwrap();
            let figures = report.guests.iter().map(|guest| (guest.name.clone(), guest.figures));
            figures.map(|(name, figures)| (name, figures.saved_bytes, figures.merged_bytes)).collect()
        };
        assert_eq!(guests(-55.0), [("web-1".to_owned(), 4, 12), ("web-2".to_owned(), 3, 9)]);
        assert_eq!(guests(-50.0), [("web-2".to_owned(), 5, 15)], "the other has ended");
        assert!(guests(-59.5).is_empty());
    }
}
