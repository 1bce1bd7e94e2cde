use ksmith_core::decide::domains::{CrossDomainSharing, FrameMapping};
use ksmith_core::figures::{GUEST, GuestGroupProperty, find};
use ksmith_core::guest::SwitchOffReason;
use ksmith_core::model::GuestsReport;
use serde_json::json;

use super::models;
use crate::show::guests::{self, GuestOrder, json};

fn text(report: &GuestsReport, order: GuestOrder) -> String {
    guests::text(report, &order, None).to_string()
}

fn order(by: &str, sort: &str) -> GuestOrder {
    GuestOrder::new(find(GUEST, by), find(GUEST, sort).expect(sort))
}

fn names(by: &str, sort: &str) -> Vec<String> {
    let json = json(&models::guests(), &order(by, sort));
    let rows = json.get("guests").or_else(|| json.get("groups")).unwrap().as_array().unwrap().clone();
    rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn rows_come_in_the_order_of_any_figure() {
    assert_eq!(names("guest", "saved"), ["a", "c", "b"]);
    assert_eq!(names("guest", "saved_bytes"), ["a", "c", "b"]);
    assert_eq!(names("guest", "profit"), ["c", "b", "a"]);
    assert_eq!(names("guest", "name"), ["a", "b", "c"]);
    assert_eq!(names("guest", "pss_bytes"), ["a", "b", "c"], "where it is unknown, by name");
    assert_eq!(names("user", "saved"), ["x", "y"]);
    assert_eq!(names("user", "profit"), ["y", "x"]);
    assert_eq!(names("cgroup", "saved"), ["-"]);
    assert_eq!(names("kind", "name"), ["qemu"]);
}

#[test]
fn groups_are_sums() {
    let json = json(&models::guests(), &order("user", "name"));
    assert_eq!(json["groups"][0]["guests"], 2);
    assert_eq!(json["groups"][0]["saved_bytes"], 4 << 20);
    assert_eq!(json["groups"][0]["profit_bytes"], -(1 << 20));
    assert_eq!(json["groups"][0]["pss_bytes"], json!(null), "a sum with an unknown part is unknown");
}

#[test]
fn the_json_of_a_guest_has_every_figure() {
    let json = json(&models::guests(), &order("guest", "saved"));
    let guest = json["guests"][0].as_object().unwrap();
    for key in GUEST.iter().map(|figure| figure.field.name).chain(["pids", "errors"]) {
        assert!(guest.contains_key(key), "{key}");
    }
    assert_eq!(guest["kind"], "qemu");
}

#[test]
fn people_see_a_table_and_what_is_wrong() {
    let shown = text(&models::guests(), order("guest", "name"));
    assert!(shown.starts_with("guest  kind  pid       rss  private  shared  merged  zero     saved"), "{shown}");
    assert!(shown.contains("a (pid 2): it hangs") && shown.contains("sharing per shared"), "{shown}");
    let groups = text(&models::guests(), order("user", "saved"));
    assert!(groups.starts_with("user  guests         rss  private"), "{groups}");
}

#[test]
fn notes_concern_the_guests_that_are_shown() {
    let mut report = models::guests();
    report.guests[0].folded_bytes = Some(models::MIB);
    report.guests[0].switched_off = Some(SwitchOffReason::Splits);
    let by_name = order("guest", "name");
    let notes = |order: GuestOrder| {
        let shown = text(&report, order);
        ["a (pid 2): it hangs", " are folded", "for little"].map(|note| shown.contains(note))
    };
    assert_eq!(notes(by_name.clone()), [true, true, true]);
    assert_eq!(notes(GuestOrder { limit: Some(1), ..by_name.clone() }), [true, false, false]);
    let last = GuestOrder { limit: Some(1), reverse: true, ..by_name };
    assert!(!notes(last)[0]);
}

#[test]
fn what_a_guest_has_folded_is_told_apart() {
    let mut report = models::guests();
    assert!(!text(&report, order("guest", "saved")).contains("folded"));
    report.guests[0].folded_bytes = Some(0);
    assert!(!text(&report, order("guest", "saved")).contains("folded"));
    report.guests[0].folded_bytes = Some(64 * models::MIB);
    let said = format!("64.0 MiB of zeros in {} are folded, a part of what is saved", report.guests[0].title());
    assert!(text(&report, order("guest", "saved")).contains(&said));
}

#[test]
fn guests_with_firmware_that_stays_mergeable_are_named() {
    let mut report = models::guests();
    assert!(!text(&report, order("guest", "name")).contains("firmware"));
    report.guests[1].has_remaining_mergeable = true;
    let shown = text(&report, order("domain", "name"));
    assert!(shown.contains("note  the RAM of a (pid 2) is not offered"), "{shown}");
    let json = json(&report, &order("guest", "name"));
    assert_eq!(json["guests"][0]["has_remaining_mergeable"], json!(true));
}

#[test]
fn guests_that_are_off_for_their_splits_are_named() {
    let mut report = models::guests();
    assert_eq!(json(&report, &order("guest", "name"))["guests"][0]["switched_off"], json!(null));
    let of_domain = Some(SwitchOffReason::Domain);
    (report.guests[0].switched_off, report.guests[1].switched_off) = (of_domain, Some(SwitchOffReason::Splits));
    let shown = text(&report, order("guest", "name"));
    assert!(shown.contains("note  merging of a (pid 2) is off: it splits"), "{shown}");
    assert_eq!(json(&report, &order("guest", "name"))["guests"][0]["switched_off"], json!("splits"));
}

#[test]
fn domains_are_shown_with_what_they_share() {
    let mut report = models::guests();
    for (guest, domain) in report.guests.iter_mut().zip([Some("one"), Some("two"), None]) {
        guest.domain = domain.map(str::to_owned);
    }
    let by_domain = order("domain", "name");
    assert!(json(&report, &by_domain)["sharing"].is_null() && !text(&report, by_domain.clone()).contains("across"));
    let held = |guest| FrameMapping { frame: 1, guest, pages: 256 };
    report.sharing =
        Some(CrossDomainSharing::from_mappings(&[Some("one"), Some("two"), None], vec![held(0), held(1)], 4096));
    let whole = json(&report, &by_domain);
    let across: Vec<_> = whole["groups"].as_array().unwrap().iter().map(|group| &group["across_bytes"]).collect();
    assert_eq!(across, [0, 1 << 20, 1 << 20]);
    assert_eq!(whole["sharing"]["pairs"][0]["domains"], json!(["one", "two"]));
    let shown = text(&report, by_domain.clone());
    assert!(shown.contains("across domains 4.00 KiB are shared now: one and two share 4.00 KiB"), "{shown}");
    assert!(!text(&report, order("guest", "name")).contains("across"));
    report.sharing = Some(CrossDomainSharing::default());
    assert!(text(&report, by_domain.clone()).contains("no merged page is shared across"));
}

#[test]
fn a_report_comes_back_from_the_wire() {
    let text = serde_json::to_string(&models::guests()).unwrap();
    assert_eq!(serde_json::from_str::<GuestsReport>(&text).unwrap(), models::guests());
}

#[test]
fn rows_are_reversed_and_limited_and_the_totals_stay_the_hosts() {
    let few = GuestOrder { reverse: true, limit: Some(2), ..order("guest", "saved") };
    let whole = json(&models::guests(), &few);
    let names: Vec<_> = whole["guests"].as_array().unwrap().iter().map(|guest| guest["name"].clone()).collect();
    assert_eq!(names, ["b", "c"]);
    assert_eq!(whole["saved_bytes"], json(&models::guests(), &order("guest", "saved"))["saved_bytes"]);
    let shown = text(&models::guests(), few);
    assert!(shown.contains("\n… and 1 more\n") && shown.contains("saved 0 B on this host"), "{shown}");
    let groups = json(&models::guests(), &GuestOrder { limit: Some(1), ..order("user", "saved") });
    assert_eq!(groups["groups"].as_array().unwrap().len(), 1);
}

#[test]
fn a_filter_says_how_many_it_left() {
    let mut report = models::guests();
    report.guests.retain(|guest| guest.name == "a");
    let filtered = GuestOrder { filtered_from: Some(3), ..order("guest", "saved") };
    assert!(
        text(&report, filtered.clone()).contains("\n1 of 3 guests fit the filter\n"),
        "{}",
        text(&report, filtered.clone())
    );
    report.guests.clear();
    assert!(text(&report, filtered).starts_with("none of the 3 guests fits the filter\n"));
}

#[test]
fn the_column_of_the_order_never_falls_away() {
    let shown = guests::text(&models::guests(), &order("guest", "zero"), Some(30)).to_string();
    assert!(
        shown.starts_with("guest  zero     saved    profit\n") || shown.starts_with("guest  zero     saved\n"),
        "{shown}"
    );
    assert!(shown.contains("(no room for kind, pid, rss,"), "{shown}");
}

#[test]
fn labels_are_a_column_where_there_are_any_and_group_guests() {
    let mut report = models::guests();
    assert!(!text(&report, order("guest", "name")).contains("labels"));
    report.guests[0].labels.insert("role".to_owned(), "store".to_owned());
    let shown = text(&report, order("guest", "name"));
    let headings: Vec<&str> = shown.lines().next().unwrap().split_whitespace().take(4).collect();
    assert_eq!(headings, ["guest", "kind", "pid", "labels"]);
    assert!(shown.contains(" role=store "), "{shown}");
    let whole = json(&report, &order("guest", "name"));
    assert_eq!(
        (&whole["guests"][0]["labels"], &whole["guests"][1]["labels"]),
        (&json!({}), &json!({"role": "store"}))
    );
    let by_role = GuestOrder { by: Some(GuestGroupProperty::Label("role".to_owned())), ..order("guest", "name") };
    let whole = json(&report, &by_role);
    let groups: Vec<_> =
        whole["groups"].as_array().unwrap().iter().map(|row| (&row["name"], &row["guests"])).collect();
    assert_eq!(groups, [(&json!("-"), &json!(2)), (&json!("store"), &json!(1))]);
    assert!(text(&report, by_role).starts_with("role   guests "));
}

#[test]
fn memory_in_pages_of_hugetlbfs_is_a_column_where_there_is_some_and_said_to_be_never_merged() {
    let mut report = models::guests();
    for by in ["guest", "kind"] {
        assert!(!text(&report, order(by, "name")).contains("hugetlb"), "{by}");
    }
    report.guests[0].figures.memory.hugetlb_bytes = Some(3 << 30);
    report.guests[1].figures.memory.hugetlb_bytes = Some(0);
    report.guests[2].figures.memory.hugetlb_bytes = Some(0);
    for by in ["guest", "kind"] {
        let shown = text(&report, order(by, "name"));
        let heads: Vec<&str> = shown.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(heads.iter().filter(|head| **head == "hugetlb").count(), 1, "{by}: {shown}");
        assert!(shown.contains(" 3.00 GiB "), "{by}: {shown}");
        assert!(shown.contains("\n3.00 GiB in pages of hugetlbfs are never merged\n"), "{by}: {shown}");
    }
}
