use std::time::Duration;

use ksmith_core::figures::HOST;
use ksmith_core::huge_worth::SplitMemory;
use ksmith_core::kernel::{FIELDS, Meminfo};
use ksmith_core::model::{BalanceReport, StatusReport};
use ksmith_core::printable::TextTone;
use ksmith_core::reading::Reading;
use ksmith_core::sample::MergeReading;
use serde_json::json;

use super::models;
use crate::show::status::{detailed_text, json, text};

#[test]
fn the_status_crosses_the_control_socket_whole() {
    let line = serde_json::to_string(&models::status()).unwrap();
    assert_eq!(serde_json::from_str::<StatusReport>(&line).unwrap(), models::status());
}

#[test]
fn the_report_of_balance_crosses_the_control_socket_whole() {
    let text = serde_json::to_string(&models::balance()).unwrap();
    assert_eq!(serde_json::from_str::<BalanceReport>(&text).unwrap(), models::balance());
    assert_eq!(models::balance().status().taken_bytes, 3 * 56 * models::MIB);
}

#[test]
fn every_figure_of_the_host_is_in_the_json() {
    let json = json(&models::status());
    for name in FIELDS.iter().map(|field| field.name).chain(HOST.iter().map(|figure| figure.field.name)) {
        assert!(json.get(name).is_some(), "{name}");
    }
    assert_eq!((&json["pages_sharing"], &json["general_profit"]), (&json!(512), &json!(-4096)));
    assert_eq!((&json["smart_scan"], &json["full_scans"]), (&json!(null), &json!(null)));
    assert_eq!(json["daemon"]["state"], "quiet");
    assert_eq!(json["verdict"]["level"], "act", "exposure is over headroom");
    assert_eq!(json["domains"]["mode"], "one");
    assert_eq!(json["processes"][0]["saved_bytes"], 512 * 4096);
    let errors = json["errors"].to_string();
    assert!(errors.contains("smart_scan: permission denied") && errors.contains("full_scans: line 1"), "{errors}");
}

#[test]
fn people_see_the_daemon_the_totals_and_the_processes() {
    let text = text(&models::status(), None).to_string();
    for part in [
        "KSM is running; ksmd uses 2.5 % of a CPU\npolicy    profit: quiet, no guest is new\nsaved     66.0 MiB",
        "; 2.00 MiB of it without a look at page tables of late: khugepaged may have undone some, and freed zeros are not in it\nfolded    64.0 MiB",
        "(headroom 1.00 MiB)  WARNING: more than the host has",
        "domains   one domain alone may merge\nbalance   no-swap: short",
        "process  pid       rss    merged     saved    profit\nweb       42  8.00 MiB  2.04 MiB  2.00 MiB  1.97 MiB",
        "note      1 process does not show",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn the_arithmetic_behind_the_reason_is_shown_where_it_is_asked_for() {
    let (short, long) = (text(&models::status(), None), detailed_text(&models::status(), None));
    assert!(!short.to_string().contains("were looked at"));
    let lines = "policy    profit: quiet, no guest is new\n          2 processes were looked at\nsaved ";
    assert!(long.to_string().contains(lines), "{long}");
    assert_eq!(json(&models::status())["daemon"]["reason_detail"], "2 processes were looked at");
}

#[test]
fn the_text_begins_with_the_verdict_and_in_detail_with_its_other_findings() {
    let status = models::status();
    let verdict = format!("Act: {}\n", status.verdict().sentence);
    let (short, long) = (text(&status, None).to_string(), detailed_text(&status, None).to_string());
    assert!(short.starts_with(&format!("{verdict}KSM is running")), "{short}");
    let exposed = status.balance.as_ref().and_then(|balance| balance.exposed.clone()).unwrap();
    assert!(long.starts_with(&verdict) && long.contains(&format!("\n  Look: {exposed}\n")), "{long}");
    assert_eq!(long.matches("smart_scan: permission denied").count(), 1, "errors stand at the end: {long}");

    let mut fine = StatusReport::default();
    fine.sample.ksm.run = Reading::Value(1);
    assert!(text(&fine, None).to_string().starts_with("Fine: "), "{}", text(&fine, None));
}

#[test]
fn what_merging_has_split_of_huge_pages_stands_beside_them_with_its_cost() {
    let line = |split: Option<SplitMemory>| {
        let mut status = models::status();
        let process = &mut status.sample.processes[0];
        process.merge_reading = Some(MergeReading { huge_bytes: 6 * models::MIB, ..MergeReading::default() });
        process.split = split;
        let text = text(&status, None).to_string();
        text.lines().find_map(|line| line.strip_prefix("huge      ").map(str::to_owned)).unwrap()
    };
    let whole = "6.00 MiB  (in huge pages, of what may merge)";
    assert_eq!([None, Some(SplitMemory::default())].map(line), [whole; 2]);
    let split = SplitMemory { bytes: 2 * models::MIB, cost: Duration::from_millis(120) };
    let costs = "; 2.00 MiB were split by merging, which costs up to 0.12 CPU)";
    assert_eq!(line(Some(split)), whole.replace(')', costs));
}

#[test]
fn the_age_of_readings_and_the_bound_of_what_came_before_them_are_shown_where_they_are_asked_for() {
    let mut status = models::status();
    let process = &mut status.sample.processes[0];
    let read_at = status.sample.at;
    process.merge_reading = Some(MergeReading { read_at, ..MergeReading::default() });
    status.sample.at += Duration::from_secs(40);
    assert!(!text(&status, None).to_string().contains("page tables that were read"));
    let line = |status: &StatusReport| {
        let text = detailed_text(status, None).to_string();
        text.lines().find(|line| line.contains("page tables that were read")).unwrap().trim().to_owned()
    };
    let age = "by page tables that were read within 40 s; ";
    assert_eq!(
        line(&status),
        format!("{age}what splits freed before the first look has no bound: not all could be read")
    );
    assert_eq!(json(&status)["oldest_reading_seconds"], 40);
    status.sample.processes[0].earlier_zero_bytes = Some(3 * models::MIB);
    status.sample.hidden_processes = 0;
    assert_eq!(line(&status), format!("{age}splits freed at most 3.00 MiB more before the first look"));
    assert_eq!(json(&status)["earlier_zero_bytes"], 3 * models::MIB);
}

#[test]
fn without_a_daemon_nothing_is_verified_on_a_host_with_huge_pages() {
    let mut status = models::status();
    status.daemon = None;
    let has_note = |status: &StatusReport| text(status, None).to_string().contains("without a look at page tables");
    assert!(!has_note(&status));
    let memory = Meminfo { anonymous_huge: Some(2 * models::MIB), ..Meminfo::default() };
    status.sample.host.memory = Reading::Value(memory);
    assert!(has_note(&status));
}

#[test]
fn what_endangers_the_host_has_a_tone() {
    let page = text(&models::status(), None);
    let toned: Vec<_> = page.pieces().flatten().filter_map(|(tone, text)| Some((tone?, text.to_owned()))).collect();
    assert_eq!(toned[0], (TextTone::Problem, "Act".to_owned()));
    assert_eq!(toned[1], (TextTone::Good, "KSM is running; ksmd uses 2.5 % of a CPU".to_owned()));
    assert!(toned.contains(&(TextTone::Problem, "WARNING: more than the host has".to_owned())), "{toned:?}");
    assert!(toned.contains(&(TextTone::Warning, "note".to_owned())), "{toned:?}");
}

#[test]
fn processes_fit_the_terminal() {
    let page = text(&models::status(), Some(40)).to_string();
    assert!(page.contains("process  pid     saved    profit\nweb       42  2.00 MiB  1.97 MiB\n"), "{page}");
    assert!(page.contains("(no room for rss, merged)"), "{page}");
}
