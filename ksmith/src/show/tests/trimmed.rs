//! Replies at the read-only socket hold what `--json` shows, and hide the rest.

use ksmith_core::figures::{GUEST, find};
use ksmith_service::control::{ControlReply, trimmed};

use super::models;
use crate::show::guests::GuestOrder;
use crate::show::{balance, guests, status};

#[test]
fn the_read_only_sockets_answers_show_all_that_json_shows_and_hide_the_rest() {
    let order = || GuestOrder::new(None, find(GUEST, "saved_bytes").unwrap());
    let mut host = models::status();
    host.sample.processes[0].cpu_ticks = 271_828;
    let mut report = models::guests();
    report.guests[0].metadata = Some("<secret/>".to_owned());
    let ControlReply::Status(seen) = trimmed(ControlReply::Status(Box::new(host.clone()))) else {
        panic!("another answer")
    };
    assert_eq!(status::json(&seen), status::json(&host));
    assert!(!serde_json::to_string(&seen).unwrap().contains("271828"));
    let ControlReply::Guests(seen) = trimmed(ControlReply::Guests(Box::new(report.clone()))) else {
        panic!("another answer")
    };
    assert_eq!(guests::json(&seen, &order()), guests::json(&report, &order()));
    assert!(!serde_json::to_string(&seen).unwrap().contains("secret"));
    let plan = models::balance();
    let ControlReply::Balance(seen) = trimmed(ControlReply::Balance(Box::new(plan.clone()))) else {
        panic!("another answer")
    };
    assert_eq!(balance::json(&seen), balance::json(&plan));
}
