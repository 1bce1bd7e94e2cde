//! Tests of writing, reading, rolling up and deleting.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use ksmith_core::figures::FigureScalar;
use tempfile::TempDir;

use super::file::MODE;
use super::*;
use crate::columns;
use crate::moment::{DecisionMade, EventKind, HistoryEvent};
use crate::moment::{GuestFigures, GuestIdentity};
use crate::query::{ReportQuery, ReportResolution};
use crate::reader::{HistoryReader, HistoryReport};
use crate::schema::VERSION;

mod damage;
mod labels;
mod locks;
mod sums;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
/// A full hour in 2026.
const BEGIN: i64 = 1_795_467_600_000;

struct StoreRig {
    directory: TempDir,
    store: HistoryStore,
}

fn rig_within(bounds: HistoryBounds) -> StoreRig {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let store = HistoryStore::open(&path, "boot", BEGIN, bounds).unwrap().store;
    StoreRig { directory, store }
}

fn rig() -> StoreRig {
    rig_within(HistoryBounds::default())
}

impl StoreRig {
    fn write(&mut self, moments: &[HistorySnapshot]) -> Result<(), StoreError> {
        self.store.write(moments)?;
        self.store.tidy(moments.last().map_or(0, |moment| moment.time))
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("history.db")
    }

    fn read_report(&self, query: &ReportQuery) -> HistoryReport {
        HistoryReader::open(&self.path()).unwrap().read_report(query).unwrap()
    }
}

fn at_host(name: &str) -> usize {
    columns::host().iter().position(|column| column.name == name).unwrap()
}

fn at_guest(name: &str) -> usize {
    columns::guest().iter().position(|column| column.name == name).unwrap()
}

fn host(time: i64, saved: u64, scans: u64) -> HistorySnapshot {
    let mut host = vec![FigureScalar::Unknown; columns::host().len()];
    host[at_host("saved_bytes")] = FigureScalar::Unsigned(saved);
    host[at_host("full_scans")] = FigureScalar::Unsigned(scans);
    HistorySnapshot { time, host, ..HistorySnapshot::default() }
}

fn guest(name: &str, merged: u64) -> GuestFigures {
    let mut values = vec![FigureScalar::Unknown; columns::guest().len()];
    values[at_guest("merged_bytes")] = FigureScalar::Unsigned(merged);
    let life = GuestIdentity {
        key: format!("{name}:1"),
        name: name.to_owned(),
        uuid: None,
        kind: "qemu".to_owned(),
        program: "qemu-system-x86_64".to_owned(),
        user: None,
        cgroup: None,
        domain: None,
        labels: None,
    };
    GuestFigures { life, values }
}

fn guests(time: i64, guests: Vec<GuestFigures>) -> HistorySnapshot {
    HistorySnapshot { time, guests: Some(guests), ..HistorySnapshot::default() }
}

fn query(since: i64, until: i64, columns: &[&str]) -> ReportQuery {
    let columns = columns.iter().map(|name| (*name).to_owned()).collect();
    ReportQuery { since, until, guest: None, columns, resolution: ReportResolution::Rows(1000) }
}

fn numbers(report: &HistoryReport, column: usize) -> Vec<Option<f64>> {
    report.rows.iter().map(|row| row[column].as_f64()).collect()
}

/// A decision of the policy at the beginning.
fn decision(reason_detail: Option<&str>) -> DecisionMade {
    DecisionMade {
        time: BEGIN + 1500,
        policy: "profit".to_owned(),
        state: "burst".to_owned(),
        reason: "new memory".to_owned(),
        reason_detail: reason_detail.map(str::to_owned),
        settings: "run 0 -> 1".to_owned(),
    }
}

#[test]
fn the_arithmetic_behind_a_reason_finds_room_in_a_history_that_was_begun_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let mut store = HistoryStore::open(&path, "boot", BEGIN, HistoryBounds::default()).unwrap().store;
    let made = |detail| HistorySnapshot { decisions: vec![decision(detail)], ..HistorySnapshot::default() };
    store.write(&[made(None)]).unwrap();
    drop(store);
    Connection::open(&path).unwrap().execute_batch("ALTER TABLE decision DROP COLUMN reason_detail").unwrap();
    let details = || -> Vec<Option<String>> {
        let report = HistoryReader::open(&path).unwrap().read_report(&query(BEGIN, BEGIN + HOUR, &[])).unwrap();
        report.decisions.into_iter().map(|made| made.reason_detail).collect()
    };
    assert_eq!(details(), [None]);
    let mut store = HistoryStore::open(&path, "boot", BEGIN, HistoryBounds::default()).unwrap().store;
    store.write(&[made(Some("every page"))]).unwrap();
    drop(store);
    assert_eq!(details(), [None, Some("every page".to_owned())]);
}

#[test]
fn what_was_written_is_read_again() {
    let mut rig = rig();
    let mut moment = host(BEGIN + 1500, 4096, 7);
    moment.decisions.push(decision(Some("every page")));
    moment.events.push(HistoryEvent {
        time: BEGIN,
        kind: EventKind::DaemonStarted,
        text: "the daemon started".to_owned(),
    });
    rig.write(&[moment]).unwrap();
    let report = rig.read_report(&query(BEGIN, BEGIN + 5000, &["saved_bytes", "full_scans", "profit_bytes"]));
    assert_eq!(report.columns, ["time", "saved_bytes", "full_scans", "profit_bytes"]);
    assert_eq!(
        report.rows,
        [[json_number((BEGIN + 1500) as f64 / 1000.0), 4096.into(), 7.into(), serde_json::Value::Null]]
    );
    assert_eq!(
        (report.decisions[0].state.as_str(), report.decisions[0].settings.as_str()),
        ("burst", "run 0 -> 1")
    );
    assert_eq!(report.decisions[0].reason_detail.as_deref(), Some("every page"));
    assert_eq!(report.events[0].kind, "daemon_started");
}

fn json_number(number: f64) -> serde_json::Value {
    serde_json::json!(number)
}

#[test]
fn minutes_and_hours_have_the_mean_of_gauges_and_the_last_of_counters() {
    let mut rig = rig();
    // Two samples a minute for two hours: saved is 0 and 100, scans count up.
    let moments: Vec<HistorySnapshot> =
        (0..240).map(|n| host(BEGIN + n * 30_000, if n % 2 == 0 { 0 } else { 100 }, n as u64)).collect();
    for moment in &moments {
        rig.write(std::slice::from_ref(moment)).unwrap();
    }
    rig.write(&[host(BEGIN + 2 * HOUR, 0, 240)]).unwrap();
    let of = |tier| {
        let query = ReportQuery {
            resolution: ReportResolution::Tier(tier),
            ..query(BEGIN, BEGIN + 3 * HOUR, &["saved_bytes", "full_scans"])
        };
        rig.read_report(&query)
    };
    let minutes = of(HistoryTier::Minute);
    assert_eq!(minutes.rows.len(), 120);
    // The first sample stands for no time.
    assert!(numbers(&minutes, 1)[1..].iter().all(|saved| *saved == Some(50.0)), "{:?}", minutes.rows);
    assert_eq!(numbers(&minutes, 2)[..3], [Some(1.0), Some(3.0), Some(5.0)]);
    let hours = of(HistoryTier::Hour);
    assert_eq!(numbers(&hours, 1), [Some(50.0), Some(50.0)]);
    assert_eq!(numbers(&hours, 2), [Some(119.0), Some(239.0)]);
    assert_eq!(of(HistoryTier::Sample).rows.len(), 241);
}

#[test]
fn a_guest_has_a_row_for_each_change_and_one_in_each_hour() {
    let mut rig = rig();
    for n in 0..130 {
        let changing = guest("busy", n as u64);
        rig.write(&[guests(BEGIN + n * MINUTE, vec![changing, guest("idle", 5)])]).unwrap();
    }
    let of = |name: &str, tier| {
        let mut query = query(BEGIN, BEGIN + 3 * HOUR, &["merged_bytes"]);
        query.guest = Some(name.to_owned());
        query.resolution = ReportResolution::Tier(tier);
        rig.read_report(&query)
    };
    assert_eq!(of("busy", HistoryTier::Sample).rows.len(), 130);
    assert_eq!(numbers(&of("idle", HistoryTier::Sample), 1), [Some(5.0); 3]);
    assert_eq!(of("busy", HistoryTier::Minute).rows.len(), 120);
    assert_eq!(numbers(&of("busy", HistoryTier::Hour), 1), [Some(59.0), Some(119.0)]);
    assert_eq!(numbers(&of("idle", HistoryTier::Hour), 1), [Some(5.0), Some(5.0)]);
    // By name, key and PID; and the whole answer has the minutes with the samples after them.
    let mut whole = query(BEGIN, BEGIN + 3 * HOUR, &["merged_bytes"]);
    whole.guest = Some("busy:1".to_owned());
    assert_eq!(rig.read_report(&whole).rows.len(), 130);
    whole.guest = Some("absent".to_owned());
    assert!(
        HistoryReader::open(&rig.path())
            .unwrap()
            .read_report(&whole)
            .unwrap_err()
            .to_string()
            .contains("there is no guest \"absent\"")
    );
}

#[test]
fn a_guest_lives_from_its_first_record_until_it_is_missed() {
    let mut rig = rig();
    rig.write(&[guests(BEGIN, vec![guest("a", 1), guest("b", 1)])]).unwrap();
    rig.write(&[guests(BEGIN + MINUTE, vec![guest("b", 1)])]).unwrap();
    let lives = |rig: &StoreRig| rig.read_report(&query(BEGIN, BEGIN + HOUR, &[])).guests;
    let ends = |lives: &[crate::reader::GuestLife]| -> Vec<(String, Option<f64>)> {
        let mut ends: Vec<_> = lives.iter().map(|life| (life.name.clone(), life.last)).collect();
        ends.sort_by(|a, b| a.0.cmp(&b.0));
        ends
    };
    let minute = Some((BEGIN + MINUTE) as f64 / 1000.0);
    assert_eq!(ends(&lives(&rig)), [("a".to_owned(), minute), ("b".to_owned(), None)]);
    // A daemon that was killed and a later one: until it finds the guest again, it ended with the last record.
    let StoreRig { directory, store } = rig;
    drop(store);
    let path = directory.path().join("history.db");
    let store = HistoryStore::open(&path, "boot", BEGIN + HOUR, HistoryBounds::default()).unwrap().store;
    let mut rig = StoreRig { directory, store };
    assert_eq!(ends(&lives(&rig))[1], ("b".to_owned(), minute));
    rig.write(&[guests(BEGIN + HOUR, vec![guest("b", 1)])]).unwrap();
    assert_eq!(ends(&lives(&rig)), [("a".to_owned(), minute), ("b".to_owned(), None)]);
}

#[test]
fn rows_that_are_too_many_are_brought_together() {
    let mut rig = rig();
    let moments: Vec<HistorySnapshot> =
        (0..3600).map(|n| host(BEGIN + n * 1000, 10 + (n % 2) as u64 * 10, n as u64)).collect();
    rig.write(&moments).unwrap();
    let mut asked = query(BEGIN, BEGIN + HOUR, &["saved_bytes", "full_scans"]);
    asked.resolution = ReportResolution::Rows(60);
    let report = rig.read_report(&asked);
    assert!(report.rows.len() <= 60, "{}", report.rows.len());
    let mean: f64 = numbers(&report, 1).iter().flatten().sum::<f64>() / report.rows.len() as f64;
    assert!((14.0..=16.0).contains(&mean), "{mean}");
    assert_eq!(numbers(&report, 2).last(), Some(&Some(3599.0)));
}

#[test]
fn what_is_too_old_is_deleted_tier_by_tier() {
    let minutes = |n: u64| Duration::from_secs(n * 60);
    let mut rig = rig_within(HistoryBounds {
        samples: minutes(10),
        minutes: minutes(120),
        hours: minutes(300),
        ..HistoryBounds::default()
    });
    for n in 0..600 {
        rig.write(&[HistorySnapshot {
            guests: Some(vec![guest("a", n)]),
            ..host(BEGIN + n as i64 * MINUTE, n, n)
        }])
        .unwrap();
    }
    let rows = |tier, guest: Option<&str>| {
        let guest = guest.map(str::to_owned);
        let query =
            ReportQuery { guest, resolution: ReportResolution::Tier(tier), ..query(0, i64::MAX, &["saved_bytes"]) };
        rig.read_report(&query).rows.len()
    };
    assert_eq!(
        [rows(HistoryTier::Sample, None), rows(HistoryTier::Minute, None), rows(HistoryTier::Hour, None)],
        [11, 120, 4]
    );
    assert_eq!(rows(HistoryTier::Sample, Some("a")), 11);
    assert!(rows(HistoryTier::Hour, Some("a")) <= 5);
}

#[test]
fn samples_from_before_a_downtime_are_rolled_up_before_they_are_deleted() {
    let mut rig = rig_within(HistoryBounds { samples: Duration::from_secs(2 * 3600), ..HistoryBounds::default() });
    for n in 0..30 {
        rig.write(&[HistorySnapshot {
            guests: Some(vec![guest("a", n)]),
            ..host(BEGIN + n as i64 * MINUTE, n, n)
        }])
        .unwrap();
    }
    rig.write(&[host(BEGIN + 5 * HOUR, 30, 30)]).unwrap();
    let rows = |tier, guest: Option<&str>| {
        let guest = guest.map(str::to_owned);
        let query =
            ReportQuery { guest, resolution: ReportResolution::Tier(tier), ..query(0, i64::MAX, &["saved_bytes"]) };
        rig.read_report(&query).rows.len()
    };
    assert_eq!(
        [rows(HistoryTier::Sample, None), rows(HistoryTier::Minute, None), rows(HistoryTier::Hour, None)],
        [1, 30, 1]
    );
    assert_eq!(
        [HistoryTier::Sample, HistoryTier::Minute, HistoryTier::Hour].map(|tier| rows(tier, Some("a"))),
        [0, 30, 1]
    );
}

#[test]
fn the_file_stays_within_its_bytes() {
    let bytes = 1 << 20;
    let mut rig = rig_within(HistoryBounds { bytes, ..HistoryBounds::default() });
    let mut largest = 0;
    for n in 0..400_i64 {
        let moments: Vec<HistorySnapshot> = (0..60)
            .map(|second| {
                let time = BEGIN + n * MINUTE + second * 1000;
                let figures = (0..5).map(|g| guest(&format!("g{g}"), (time + g) as u64)).collect();
                HistorySnapshot { guests: Some(figures), ..host(time, time as u64, n as u64) }
            })
            .collect();
        rig.write(&moments).unwrap();
        largest = largest.max(fs::metadata(rig.path()).unwrap().len());
    }
    assert!(largest < bytes + bytes / 5, "{largest}");
    let report = rig.read_report(&query(0, BEGIN + 400 * MINUTE, &["saved_bytes"]));
    assert!(report.rows.len() > 50, "{}", report.rows.len());
    // The newest is never what goes.
    assert_eq!(report.rows.last().unwrap()[0], json_number((BEGIN + 400 * MINUTE - 1000) as f64 / 1000.0));
}

#[test]
fn a_locked_file_is_a_passing_fault_and_nothing_is_half_written() {
    let mut rig = rig();
    rig.write(&[host(BEGIN, 1, 1)]).unwrap();
    let other = Connection::open(rig.path()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = rig.write(&[host(BEGIN + 1000, 2, 2), host(BEGIN + 2000, 3, 3)]).unwrap_err();
    assert_eq!(error.fault(), StoreFault::Passing, "{error}");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(rig.read_report(&query(BEGIN, BEGIN + HOUR, &["saved_bytes"])).rows.len(), 1);
    rig.write(&[host(BEGIN + 3000, 4, 4)]).unwrap();
    assert_eq!(rig.read_report(&query(BEGIN, BEGIN + HOUR, &["saved_bytes"])).rows.len(), 2);
}

#[test]
fn a_reader_that_never_ends_keeps_the_log_from_growing_without_bound() {
    let log_bytes = 1 << 20;
    let mut rig = rig_within(HistoryBounds { log_bytes, ..HistoryBounds::default() });
    rig.write(&[host(BEGIN, 1, 1)]).unwrap();
    let reader = Connection::open(rig.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM host_sample").unwrap();
    let mut time = BEGIN;
    let error = loop {
        let moments: Vec<HistorySnapshot> = (0..100).map(|n| host(time + n * 1000, n as u64, 0)).collect();
        time += 100_000;
        if let Err(error) = rig.write(&moments) {
            break error;
        }
    };
    assert!(matches!(error, StoreError::HeldByReader { .. }), "{error}");
    let largest = fs::metadata(beside(&rig.path(), "-wal")).unwrap().len();
    assert!(largest < log_bytes + (1 << 20), "{largest}");
    reader.execute_batch("ROLLBACK").unwrap();
    rig.write(&[host(time, 1, 1)]).unwrap();
    assert!(fs::metadata(beside(&rig.path(), "-wal")).unwrap().len() < log_bytes / 2);
}

#[test]
fn the_group_may_read_the_file_and_others_may_not() {
    let mut rig = rig();
    rig.write(&[host(BEGIN, 1, 1)]).unwrap();
    for suffix in ["", "-wal"] {
        let mode = fs::metadata(beside(&rig.path(), suffix)).unwrap().mode();
        assert_eq!(mode & 0o777, MODE, "{suffix}");
    }
}

/// Makes a directory, in another, whose files get a group of their own. `None` unless root does: only root may give a
/// directory to a group that it is not in.
fn directory_of_group() -> Option<(TempDir, PathBuf)> {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("history");
    fs::create_dir(&inner).unwrap();
    std::os::unix::fs::chown(&inner, None, Some(54321)).ok()?;
    fs::set_permissions(&inner, Permissions::from_mode(0o2750)).unwrap();
    Some((directory, inner))
}

#[test]
fn files_get_the_group_of_their_directory_and_no_owner_is_changed() {
    let Some((_directory, inner)) = directory_of_group() else { return };
    let path = inner.join("history.db");
    let mut store = HistoryStore::open(&path, "boot", BEGIN, HistoryBounds::default()).unwrap().store;
    store.write(&[host(BEGIN, 1, 1)]).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let file = fs::metadata(beside(&path, suffix)).unwrap();
        assert_eq!((file.gid(), file.mode() & 0o777), (54321, MODE), "{suffix}");
    }
}

#[test]
fn a_figure_that_is_new_gets_its_column() {
    let rig = rig();
    let path = rig.path();
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("ALTER TABLE host_sample DROP COLUMN cow_ksm").unwrap();
    drop(connection);
    let asked = query(BEGIN, BEGIN + HOUR, &["cow_ksm"]);
    // A file of an earlier version: the figure is unknown there, and no error.
    assert_eq!(rig.read_report(&asked).rows.len(), 0);
    let mut store = HistoryStore::open(&path, "boot", BEGIN, HistoryBounds::default()).unwrap().store;
    let mut moment = host(BEGIN, 1, 1);
    moment.host[at_host("cow_ksm")] = FigureScalar::Unsigned(9);
    store.write(&[moment]).unwrap();
    assert_eq!(numbers(&rig.read_report(&asked), 1), [Some(9.0)]);
    let error = HistoryReader::open(&path).unwrap().read_report(&query(0, 1, &["speed"])).unwrap_err();
    assert!(error.to_string().contains("no figure speed; it has run, pages_to_scan"), "{error}");
}

#[test]
fn a_clock_that_is_set_back_loses_nothing_that_is_written_afterwards() {
    let mut rig = rig();
    for n in 0..30 {
        rig.write(&[host(BEGIN + n * MINUTE, 10, 1)]).unwrap();
    }
    for n in 0..30 {
        rig.write(&[host(BEGIN - HOUR + n * MINUTE, 20, 2)]).unwrap();
    }
    let of = |tier, since| {
        let query = ReportQuery {
            resolution: ReportResolution::Tier(tier),
            ..query(since, BEGIN + HOUR, &["saved_bytes"])
        };
        rig.read_report(&query).rows.len()
    };
    assert_eq!(of(HistoryTier::Sample, BEGIN - HOUR), 60);
    assert_eq!(of(HistoryTier::Minute, BEGIN), 29);
    assert!(of(HistoryTier::Minute, BEGIN - HOUR) >= 29 + 28);
}

#[test]
fn a_clock_that_is_set_forward_by_mistake_deletes_nothing() {
    let mut rig = rig();
    for n in 0..30 {
        rig.write(&[host(BEGIN + n * MINUTE, 10, 1)]).unwrap();
    }
    let wrong = BEGIN + 3000 * 24 * HOUR;
    for n in 0..30 {
        rig.write(&[host(wrong + n * MINUTE, 20, 2)]).unwrap();
    }
    for n in 60..90 {
        rig.write(&[host(BEGIN + n * MINUTE, 30, 3)]).unwrap();
    }
    let query = ReportQuery {
        resolution: ReportResolution::Tier(HistoryTier::Sample),
        ..query(BEGIN, BEGIN + 3 * HOUR, &["saved_bytes"])
    };
    assert_eq!(rig.read_report(&query).rows.len(), 60);
}

#[test]
fn a_small_file_with_many_guests_goes_on_for_ever() {
    let mut rig = rig_within(HistoryBounds { bytes: 1 << 20, ..HistoryBounds::default() });
    let mut refused = 0;
    for n in 0..200_u64 {
        // All of them are new each time: any user may start processes that count as guests.
        let figures = (0..300).map(|g| guest(&format!("{}-{n}-{g}", "x".repeat(100)), n)).collect();
        let moment = HistorySnapshot { guests: Some(figures), ..host(BEGIN + n as i64 * 10 * MINUTE, n, n) };
        refused += usize::from(rig.write(&[moment]).is_err());
    }
    assert_eq!(refused, 0);
    assert!(fs::metadata(rig.path()).unwrap().len() < 3 << 20);
    let report = rig.read_report(&query(0, BEGIN + 200 * HOUR, &["saved_bytes"]));
    assert_eq!(report.rows.last().unwrap()[1].as_u64(), Some(199));
}

#[test]
fn a_guest_that_changes_nothing_has_its_figures_in_each_stretch_of_time() {
    let mut rig = rig();
    for n in 0..50 {
        rig.write(&[guests(BEGIN + n * MINUTE, vec![guest("idle", 5)])]).unwrap();
    }
    let mut asked = query(BEGIN + 20 * MINUTE, BEGIN + 50 * MINUTE, &["merged_bytes"]);
    asked.guest = Some("idle".to_owned());
    let report = rig.read_report(&asked);
    assert_eq!(report.rows, [[json_number((BEGIN + 20 * MINUTE) as f64 / 1000.0), 5.into()]]);
}

#[test]
fn a_guest_named_like_the_key_uuid_or_pid_of_another_does_not_stand_for_it() {
    let mut rig = rig();
    let mut victim = guest("42", 1);
    victim.life.name = "web".to_owned();
    victim.life.uuid = Some("0f0f".to_owned());
    let spoof = |name: &str, key: &str| {
        let mut spoof = guest(key, 2);
        spoof.life.name = name.to_owned();
        spoof
    };
    let all = vec![victim, spoof("42:1", "50"), spoof("0f0f", "51"), spoof("42", "52"), spoof("4_", "53")];
    rig.write(&[guests(BEGIN, all)]).unwrap();
    for name in ["42:1", "0F0F", "42"] {
        let mut asked = query(BEGIN, BEGIN + HOUR, &["merged_bytes"]);
        asked.guest = Some(name.to_owned());
        assert_eq!(rig.read_report(&asked).guest.unwrap().name, "web", "{name}");
    }
}

#[test]
fn a_guest_that_ends_while_nothing_can_be_written_has_ended() {
    let mut rig = rig();
    rig.write(&[guests(BEGIN, vec![guest("a", 1), guest("b", 1)])]).unwrap();
    let other = Connection::open(rig.path()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    rig.write(&[guests(BEGIN + 1000, vec![guest("b", 1)])]).unwrap_err();
    other.execute_batch("ROLLBACK").unwrap();
    rig.write(&[guests(BEGIN + 2000, vec![guest("b", 1)])]).unwrap();
    let lives = rig.read_report(&query(BEGIN, BEGIN + HOUR, &[])).guests;
    let living: Vec<&str> =
        lives.iter().filter(|life| life.last.is_none()).map(|life| life.name.as_str()).collect();
    assert_eq!(living, ["b"]);
}

#[test]
fn an_answer_from_hours_says_that_its_rows_are_hours_apart() {
    let mut rig = rig_within(HistoryBounds {
        samples: Duration::from_secs(7200),
        minutes: Duration::from_secs(7200),
        ..HistoryBounds::default()
    });
    for n in 0..600 {
        rig.write(&[host(BEGIN + n * MINUTE, 1 << 30, 1)]).unwrap();
    }
    let report = rig.read_report(&query(BEGIN, BEGIN + 5 * HOUR, &[]));
    assert_eq!(report.resolution_seconds, 3600.0);
    let summary = crate::summary(&report).unwrap();
    assert!(summary.recorded_seconds >= 3.0 * 3600.0, "{summary:?}");
}

#[test]
fn samples_that_an_hour_covers_do_not_follow_it() {
    let mut rig = rig();
    for n in 0..=240 {
        rig.write(&[host(BEGIN + n * 30_000, n as u64, 1)]).unwrap();
    }
    // Hours, no minute after the last one yet, and one sample.
    let report = rig.read_report(&query(BEGIN - 8 * 24 * HOUR, BEGIN + 2 * HOUR + MINUTE, &["saved_bytes"]));
    let expected = [BEGIN, BEGIN + HOUR, BEGIN + 2 * HOUR].map(|time| Some(time as f64 / 1000.0));
    assert_eq!(numbers(&report, 0), expected);
}

#[test]
fn the_guests_that_saved_most_come_first_with_their_last_figures() {
    let mut rig = rig();
    let saving = |name: &str, saved: u64| {
        let mut guest = guest(name, 1);
        guest.values[at_guest("saved_bytes")] = FigureScalar::Unsigned(saved);
        guest
    };
    for n in 0..130 {
        let figures = vec![saving("much", 1000 + n), saving("little", 5), saving("falling", 2000 - n * 15)];
        rig.write(&[guests(BEGIN + n as i64 * MINUTE, figures)]).unwrap();
    }
    let savers = HistoryReader::open(&rig.path()).unwrap().savers(&query(BEGIN, BEGIN + 3 * HOUR, &[]), 2).unwrap();
    let found: Vec<_> = savers.iter().map(|saver| (saver.life.name.as_str(), saver.saved_bytes)).collect();
    assert_eq!(found, [("much", Some(1129.0)), ("falling", Some(65.0))]);
}
