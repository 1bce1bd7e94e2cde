//! A recorded history as a story for the simulator: guests with their lifetimes, sizes and merged memory.

use std::path::Path;
use std::time::Duration;

use ksmith_core::sim::GuestPlan;
use ksmith_lab::simulate::SimulationStory;
use ksmith_record::{GuestLife, HistoryReader, HistoryReport, ReportQuery, ReportResolution};

use crate::cli::CommandFailure;

/// Most rows that are read of each guest.
const ROWS: usize = 500;

const PAGE: f64 = 4096.0;

/// Period of rewriting, over which CoW breaks are spread.
const ROUND: Duration = Duration::from_secs(60);

/// Reads a story from the history in `file`. Returns it with the assumptions behind it.
pub(super) fn story(file: &Path, host_bytes: Option<u64>) -> anyhow::Result<(SimulationStory, Vec<String>)> {
    let reader = HistoryReader::open(file).map_err(CommandFailure::from)?;
    let query = |guest: Option<String>, columns: &[&str], since, until, most| ReportQuery {
        since,
        until,
        guest,
        columns: columns.iter().map(|&name| name.to_owned()).collect(),
        resolution: ReportResolution::Rows(most),
    };
    let host = reader
        .read_report(&query(None, &["cow_ksm"], 0, i64::MAX / 4, usize::MAX))
        .map_err(CommandFailure::from)?;
    let times: Vec<f64> = column(&host, 0).flatten().collect();
    let (Some(&began), Some(&ended)) = (times.first(), times.last()) else {
        return Err(CommandFailure::usage(format!("{} has no records", file.display())).into());
    };
    let mut seen = Vec::new();
    for life in &host.guests {
        let (since, until) = ((began * 1000.0) as i64, (ended * 1000.0) as i64);
        let asked = query(Some(life.id.clone()), &["rss_bytes", "merged_bytes"], since, until, ROWS);
        let rows = reader.read_report(&asked).map_err(CommandFailure::from)?;
        seen.extend(RecordedGuest::from_records(life, &rows, began));
    }
    let seconds = (ended - began).max(1.0);
    let breaks = rise(column(&host, 1)) / seconds;
    let merged: f64 = seen.iter().map(|guest| guest.merged).sum();
    let plans: Vec<GuestPlan> = seen
        .iter()
        .enumerate()
        .map(|(number, guest)| guest.plan(number, breaks * guest.merged / merged.max(1.0)))
        .collect();
    let held: f64 = seen.iter().map(|guest| guest.most).sum();
    let host_bytes = host_bytes.unwrap_or(((held * 1.25) as u64).max(4 << 30));
    let assumptions = vec![
        format!("{} guests over {seconds:.0} s, the newest 2000 at most; sizes, starts and ends are as recorded", seen.len()),
        "the most that was merged of a guest equals, page by page, what was merged of the others from its start to its end"
            .to_owned(),
        "the rest of a guest is its own, and what it grew by is there bit by bit until its greatest size".to_owned(),
        format!("guests wrote to {breaks:.1} merged pages a second: as many pages of their own are rewritten instead"),
        format!("the host has {} GiB, a quarter more than all guests together; --host names another size", host_bytes >> 30),
    ];
    let story = SimulationStory::Planned {
        guests: Vec::new(),
        has_demands: false,
        name: file.file_stem().map_or_else(|| "history".to_owned(), |stem| stem.to_string_lossy().into_owned()),
        about: "What a daemon recorded, played again".to_owned(),
        plans,
        duration: Duration::from_secs_f64(seconds),
        host_bytes,
        night_permille: 1000,
    };
    Ok((story, assumptions))
}

/// The recorded life of one guest. Amounts are in bytes, times in seconds since the first record.
#[derive(Debug, PartialEq)]
struct RecordedGuest {
    name: String,
    from: f64,
    until: Option<f64>,
    first: f64,
    most: f64,
    /// Time from the start to the greatest size.
    grown_after: f64,
    merged: f64,
}

impl RecordedGuest {
    fn from_records(life: &GuestLife, rows: &HistoryReport, began: f64) -> Option<Self> {
        let sizes: Vec<(f64, f64)> =
            column(rows, 0).zip(column(rows, 1)).filter_map(|(at, size)| Some((at?, size?))).collect();
        let &(_, first) = sizes.first()?;
        let &(grown, most) = sizes.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
        let merged = column(rows, 2).flatten().fold(0.0, f64::max).min(most);
        Some(Self {
            name: life.name.clone(),
            from: (life.first - began).max(0.0),
            until: life.last.map(|last| (last - began).max(0.0)),
            first: first.max(merged),
            most: most.max(first),
            grown_after: (grown - life.first).max(1.0),
            merged,
        })
    }

    /// Returns the plan of a guest of which `breaks` merged pages a second were written to.
    fn plan(&self, number: usize, breaks: f64) -> GuestPlan {
        let pages = |bytes: f64| (bytes / PAGE).max(0.0) as u32;
        let own = pages(self.first - self.merged);
        let rewritten = ((breaks * ROUND.as_secs_f64()) as u32).min(own);
        let mut plan = GuestPlan::new(&self.name)
            .equal(0, pages(self.merged))
            .unique(own - rewritten)
            .starting_at(Duration::from_secs_f64(self.from));
        if rewritten > 0 {
            plan = plan.rewritten(rewritten, ROUND);
        }
        let grown = pages(self.most - self.first);
        if grown > 0 {
            // A label of its own: no other guest has these pages.
            let label = (number % (usize::from(u16::MAX) - 1)) as u16 + 1;
            plan = plan.growing(label, grown, Duration::from_secs_f64(self.grown_after));
        }
        match self.until {
            Some(until) => plan.stopping_at(Duration::from_secs_f64(until)),
            None => plan,
        }
    }
}

/// Returns a column of the rows, by its number.
fn column(report: &HistoryReport, number: usize) -> impl Iterator<Item = Option<f64>> {
    report.rows.iter().map(move |row| row.get(number).and_then(serde_json::Value::as_f64))
}

/// Sums the increments of a counter, which may be reset in between.
fn rise(values: impl Iterator<Item = Option<f64>>) -> f64 {
    let values: Vec<f64> = values.flatten().collect();
    values.windows(2).map(|pair| (pair[1] - pair[0]).max(0.0)).sum()
}

#[cfg(test)]
mod tests {
    use ksmith_core::figures::FigureScalar;
    use ksmith_record::{GuestFigures, GuestIdentity, HistoryBounds, HistorySnapshot, HistoryStore, columns};

    use super::*;

    /// The beginning of an hour in 2026, in milliseconds.
    const BEGIN: i64 = 1_795_467_600_000;

    const MIB: u64 = 1 << 20;

    fn guest(number: u64, rss_bytes: u64, merged_bytes: u64) -> GuestFigures {
        let life = GuestIdentity {
            key: format!("{number}:{number}"),
            name: format!("guest-{number}"),
            kind: "qemu".to_owned(),
            ..GuestIdentity::default()
        };
        let values = columns::guest().into_iter().map(|column| match column.name.as_str() {
            "rss_bytes" => FigureScalar::Unsigned(rss_bytes),
            "merged_bytes" => FigureScalar::Unsigned(merged_bytes),
            _ => FigureScalar::Unknown,
        });
        GuestFigures { life, values: values.collect() }
    }

    #[test]
    fn guests_come_back_with_their_starts_sizes_and_growth() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("history.db");
        let mut store = HistoryStore::open(&file, "boot", BEGIN, HistoryBounds::default()).unwrap().store;
        let moment = |second: i64| {
            let first = guest(1, 100 * MIB + second as u64 * MIB / 6, 40 * MIB);
            let second_one = guest(2, 80 * MIB, 40 * MIB);
            let guests = if second < 300 { vec![first] } else { vec![first, second_one] };
            let host = columns::host().into_iter().map(|column| match column.name.as_str() {
                "cow_ksm" => FigureScalar::Unsigned(second as u64 * 4),
                _ => FigureScalar::Unknown,
            });
            HistorySnapshot {
                time: BEGIN + second * 1000,
                host: host.collect(),
                guests: Some(guests),
                ..HistorySnapshot::default()
            }
        };
        let moments: Vec<HistorySnapshot> = (0..=60).map(|step| moment(step * 10)).collect();
        store.write(&moments).unwrap();
        let (told, assumptions) = story(&file, None).unwrap();
        let SimulationStory::Planned { plans, duration, host_bytes, .. } = told else { panic!() };
        assert_eq!((plans.len(), duration.as_secs(), host_bytes), (2, 600, 4 << 30));
        let pages = |mib: u64| mib * 256;
        assert_eq!(plans.iter().map(GuestPlan::pages).collect::<Vec<_>>(), [pages(200), pages(80)]);
        assert!(assumptions.iter().any(|text| text.contains("4.0 merged pages a second")), "{assumptions:?}");
        // What can be saved: nothing while the first is alone, 40 MiB with both.
        let mut machine = ksmith_core::sim::SimMachine::new(ksmith_core::sim::SimConfig::default());
        plans.into_iter().for_each(|plan| machine.start(plan));
        machine.advance(Duration::from_secs(299));
        assert_eq!(machine.attainable_pages(), 0);
        machine.advance(Duration::from_secs(2));
        assert_eq!(machine.attainable_pages(), pages(40));
    }

    #[test]
    fn a_history_without_records_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("history.db");
        let _store = HistoryStore::open(&file, "boot", BEGIN, HistoryBounds::default()).unwrap().store;
        assert!(story(&file, None).unwrap_err().to_string().contains("no records"));
    }
}
