//! A golden table: what `ksmith guests` finds on the hosts of [`platform_hosts`](super::platform_hosts).

use serde_json::Value;

use super::platform_hosts::{HOSTS, filled};
use super::{err, json, ksmith};

/// Returns the golden line of a guest.
fn golden(guest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let memory = guest["memory_bytes"].as_u64().map_or_else(|| "-".to_owned(), |bytes| (bytes >> 20).to_string());
    let labels: Vec<String> = guest["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name}={}", text(value)))
        .collect();
    let labels = if labels.is_empty() { "-".to_owned() } else { labels.join(",") };
    let [name, kind, manager, obstacle, domain] =
        ["name", "kind", "manager", "obstacle", "domain"].map(|key| text(&guest[key]));
    format!("{name} {kind} {manager} {memory} {obstacle} {domain} {labels} {}", guest["is_verified"])
}

#[test]
fn guests_of_each_platform_have_their_names_domains_labels_and_obstacles() {
    let mut faults = Vec::new();
    for host in HOSTS {
        let copy = tempfile::tempdir().unwrap();
        let root = copy.path();
        host.write(root);
        let arguments = ["--root", root.to_str().unwrap(), "guests", "--json", "--sort", "name"];
        let output = ksmith(&arguments);
        assert_eq!(err(&output), "", "{}", host.name);
        let list = json(&output);
        let mut found: Vec<String> = list["guests"].as_array().unwrap().iter().map(golden).collect();
        let mut expected: Vec<String> = host.guests.iter().map(|guest| filled(guest.golden)).collect();
        found.sort();
        expected.sort();
        if found != expected {
            faults.push(format!(
                "{}:\n  {}\ninstead of\n  {}",
                host.name,
                found.join("\n  "),
                expected.join("\n  ")
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
