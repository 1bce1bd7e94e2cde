//! Names that no label of a guest may have: figures, metrics, tables and JSON use them already.

use super::{GUEST, find};

/// The names of all labels of ksmith's own metrics.
pub const METRIC_LABELS: [&str; 13] = [
    "class", "domain", "guest", "key", "kind", "label", "pid", "policy", "source", "state", "uuid", "value",
    "version",
];

/// Labels that Prometheus adds to each series, to histograms or to alerts, and the label of a fleet's hosts.
const OF_PROMETHEUS: [&str; 6] = ["alertname", "host", "instance", "job", "le", "quantile"];

/// Headings of tables and keys of the JSON of guests and of their history that are no figures.
const OF_TABLES: [&str; 13] = [
    "across",
    "across_bytes",
    "errors",
    "first",
    "groups",
    "guests",
    "id",
    "last",
    "pids",
    "row",
    "sharing",
    "switched_off",
    "time",
];

/// Returns the meaning that a name has already; `None` if a label may have it.
pub fn reserved_meaning(name: &str) -> Option<&'static str> {
    match name {
        _ if find(GUEST, name).is_some() || name == "guest" => Some("a figure of each guest"),
        _ if METRIC_LABELS.contains(&name) => Some("a label of ksmith's own metrics"),
        _ if OF_PROMETHEUS.contains(&name) => Some("a label that Prometheus sets itself"),
        _ if OF_TABLES.contains(&name) => Some("a column of tables, or a key of JSON"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_meaning_is_told_from_one_without() {
        for (name, meaning) in [
            ("kind", Some("a figure of each guest")),
            ("guest", Some("a figure of each guest")),
            ("rss", Some("a figure of each guest")),
            ("saved_bytes", Some("a figure of each guest")),
            ("labels", Some("a figure of each guest")),
            ("pid", Some("a label of ksmith's own metrics")),
            ("value", Some("a label of ksmith's own metrics")),
            ("job", Some("a label that Prometheus sets itself")),
            ("le", Some("a label that Prometheus sets itself")),
            ("guests", Some("a column of tables, or a key of JSON")),
            ("switched_off", Some("a column of tables, or a key of JSON")),
            ("role", None),
            ("tier", None),
            ("owner", None),
        ] {
            assert_eq!(reserved_meaning(name), meaning, "{name}");
        }
    }
}
