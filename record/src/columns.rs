//! The recorded figures: all numbers of the host, of the daemon and of guests in the table of figures.

use ksmith_core::field::{FigureDescription, FigureKind, FigureType};
use ksmith_core::figures::{self, CONTROLLER, FigureRow, FigureScalar, GUEST};
use ksmith_core::guest::Guest;
use ksmith_core::model::{DaemonStatus, StatusReport};

/// A column of the tables of samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryColumn {
    /// Name of the column: the figure's key with underscores for dots.
    pub name: String,
    /// The figure in the column.
    pub field: FigureDescription,
}

impl HistoryColumn {
    fn new(prefix: &str, field: FigureDescription) -> Self {
        Self { name: format!("{prefix}{}", field.name.replace('.', "_")), field }
    }

    /// Returns true if the column has this name: its own, the figure's key, or its heading in tables.
    pub fn has_name(&self, name: &str) -> bool {
        name.replace('.', "_") == self.name || name == format_heading(&self.name)
    }

    /// Returns the column's SQL type.
    pub(crate) fn sql_type(&self) -> &'static str {
        match self.field.holds {
            FigureType::Real => "REAL",
            FigureType::Unsigned | FigureType::Signed | FigureType::Flag | FigureType::Text => "INTEGER",
        }
    }

    /// Returns true if coarser tiers hold the mean; they hold the last value of other columns.
    pub(crate) fn is_averaged(&self) -> bool {
        self.field.kind == FigureKind::Gauge
    }
}

/// Returns the heading of a column in tables: `saved` for `saved_bytes`, `ksmd CPU %` for `ksmd_cpu_percent`.
pub fn format_heading(name: &str) -> String {
    let words: Vec<&str> = name.split('_').map(|word| if word == "cpu" { "CPU" } else { word }).collect();
    match words.split_last() {
        Some((&"bytes", rest @ [_, ..])) => rest.join(" "),
        Some((&"percent", rest @ [_, ..])) => format!("{} %", rest.join(" ")),
        Some((&"seconds", rest @ [_, ..])) => format!("{} s", rest.join(" ")),
        _ => words.join(" "),
    }
}

fn is_number(field: &FigureDescription) -> bool {
    field.holds != FigureType::Text
}

/// Prefix of the keys of the daemon's own figures.
const OF_DAEMON: &str = "daemon_";

/// Returns the recorded figures of the daemon: those that change.
fn of_daemon() -> impl Iterator<Item = &'static figures::ModelFigure<DaemonStatus>> {
    CONTROLLER.iter().filter(|figure| is_number(&figure.field) && figure.field.kind != FigureKind::State)
}

/// Returns the columns of the host's tables.
pub fn host() -> Vec<HistoryColumn> {
    let host = figures::host_rows().map(|FigureRow { field, .. }| field).filter(is_number);
    let daemon = of_daemon().map(|figure| HistoryColumn::new(OF_DAEMON, figure.field));
    host.map(|field| HistoryColumn::new("", field)).chain(daemon).collect()
}

/// Returns the values of [`host`], in the same order.
pub fn host_values(status: &StatusReport) -> Vec<FigureScalar> {
    let host = figures::host(status).filter(|(field, _)| is_number(field)).map(|(_, value)| value);
    let daemon = of_daemon().map(|figure| status.daemon.as_ref().map_or(FigureScalar::Unknown, figure.read));
    host.chain(daemon).collect()
}

/// Returns the recorded figures of a guest: its gauges.
fn of_guest() -> impl Iterator<Item = &'static figures::ModelFigure<Guest>> {
    GUEST.iter().filter(|figure| is_number(&figure.field) && figure.field.kind == FigureKind::Gauge)
}

/// Returns the columns of the guests' tables.
pub fn guest() -> Vec<HistoryColumn> {
    of_guest().map(|figure| HistoryColumn::new("", figure.field)).collect()
}

/// Returns the values of [`guest`], in the same order.
pub fn guest_values(guest: &Guest) -> Vec<FigureScalar> {
    of_guest().map(|figure| (figure.read)(guest)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_column_is_named_as_in_tables_and_in_json() {
        let all = [host(), guest()].concat();
        for (column, names) in [
            ("saved_bytes", ["saved", "saved_bytes"]),
            ("ksmd_cpu_percent", ["ksmd CPU %", "ksmd_cpu_percent"]),
            ("daemon_cpu_seconds", ["daemon CPU s", "daemon.cpu_seconds"]),
            ("full_scans", ["full scans", "full_scans"]),
        ] {
            for name in names {
                let found = all.iter().find(|column| column.has_name(name)).map(|found| found.name.as_str());
                assert_eq!(found, Some(column), "{name}");
            }
        }
        // A heading of the table of guests is one of the history too.
        for (figure, heading) in GUEST.iter().filter_map(|figure| Some((figure, figure.heading?))) {
            assert_eq!(format_heading(figure.field.name), heading);
        }
    }

    #[test]
    fn each_column_has_its_value_and_a_name_of_its_own() {
        let status = StatusReport::default();
        assert_eq!(host().len(), host_values(&status).len());
        for columns in [host(), guest()] {
            let names: BTreeSet<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            assert_eq!(names.len(), columns.len());
            assert!(names.contains("saved_bytes"), "{names:?}");
            // Names stand unquoted in SQL.
            assert!(
                names
                    .iter()
                    .all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'))
            );
        }
    }
}
