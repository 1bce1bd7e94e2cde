//! Labels of guests: written, found by SQL, and summed by their values.

use super::*;
use crate::reader::LabelSeries;

#[test]
fn a_guests_labels_are_found_by_sql_also_in_a_history_that_was_begun_without_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let mut store = HistoryStore::open(&path, "boot", BEGIN, HistoryBounds::default()).unwrap().store;
    store.write(&[guests(BEGIN, vec![guest("old", 3)])]).unwrap();
    drop(store);
    Connection::open(&path).unwrap().execute_batch("ALTER TABLE guest DROP COLUMN labels").unwrap();
    let reader = HistoryReader::open(&path).unwrap();
    let old = reader.read_report(&query(BEGIN, BEGIN + HOUR, &[])).unwrap().guests;
    assert!(old[0].labels.is_empty() && reader.read_by_label(&query(BEGIN, BEGIN + HOUR, &[]), "role").is_err());
    drop(reader);
    let mut store = HistoryStore::open(&path, "boot", BEGIN, HistoryBounds::default()).unwrap().store;
    let mut labelled = guest("db-1", 1);
    labelled.life.labels = Some("{\"role\":\"store\"}".to_owned());
    store.write(&[guests(BEGIN + 1000, vec![labelled, guest("web", 2)])]).unwrap();
    let roles = Connection::open(&path).unwrap();
    let mut statement = roles.prepare("SELECT labels ->> 'role' FROM guest ORDER BY name").unwrap();
    let roles: Vec<Option<String>> =
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(roles, [Some("store".to_owned()), None, None]);
}

#[test]
fn what_guests_with_one_value_of_a_label_save_is_summed_over_their_lives() {
    let labelled = |name: &str, role: &str, saved: u64| {
        let mut guest = guest(name, 1);
        guest.life.labels = Some(format!("{{\"role\":\"{role}\",\"tier\":\"gold\"}}"));
        guest.values[at_guest("saved_bytes")] = FigureScalar::Unsigned(saved);
        guest
    };
    let mut rig = rig();
    let all = || vec![labelled("web-1", "web", 100), labelled("web-2", "web", 30), labelled("db", "db", 7)];
    let second = vec![labelled("web-1", "web", 200), labelled("db", "db", 7), guest("other", 5)];
    rig.write(&[guests(BEGIN + MINUTE, all()), guests(BEGIN + 30 * MINUTE, second)]).unwrap();
    let reader = HistoryReader::open(&rig.path()).unwrap();
    let series = reader.saved_by_label(&query(BEGIN, BEGIN + HOUR, &[])).unwrap();
    let at = |series: &LabelSeries, minute: i64| {
        let time = (BEGIN + minute * MINUTE) as f64 / 1000.0;
        series.points.iter().rfind(|(moment, _)| *moment <= time).unwrap().1
    };
    let found: Vec<_> = series
        .iter()
        .map(|one| (one.label.as_str(), one.value.as_str(), [0, 20, 50].map(|minute| at(one, minute))))
        .collect();
    assert_eq!(
        found,
        [
            ("role", "db", [0.0, 7.0, 7.0]),
            ("role", "web", [0.0, 130.0, 200.0]),
            ("tier", "gold", [0.0, 137.0, 207.0])
        ]
    );
    let query_of_four = ReportQuery { resolution: ReportResolution::Rows(4), ..query(BEGIN, BEGIN + HOUR, &[]) };
    let report = reader.read_by_label(&query_of_four, "role").unwrap();
    assert_eq!((report.label.as_deref(), report.columns.join(" ")), (Some("role"), "time db web".to_owned()));
    let column = |at| numbers(&report, at).into_iter().flatten().collect::<Vec<f64>>();
    assert_eq!(column(1), [0.0, 7.0, 7.0, 7.0]);
    assert_eq!(column(2), [0.0, 130.0, 200.0, 200.0]);
    assert_eq!(report.rows[3][0], (BEGIN + HOUR) as f64 / 1000.0);
    assert!(report.guests.iter().all(|life| life.labels["tier"] == "gold") && report.guests.len() == 3);
    let wrong = reader.read_by_label(&query_of_four, "rôle").unwrap_err().to_string();
    assert_eq!(wrong, "no guest had a label rôle in that time; labels then: role, tier");
    let empty = reader.saved_by_label(&query(BEGIN - 2 * HOUR, BEGIN - HOUR, &[])).unwrap();
    assert!(empty.is_empty());
}
