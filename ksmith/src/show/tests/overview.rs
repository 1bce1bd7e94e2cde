use ksmith_core::guest::Guest;
use ksmith_core::model::{GuestsReport, StatusReport};
use ksmith_core::other_controllers::{FoundController, row};
use ksmith_core::reading::Reading;

use super::models;
use crate::show::overview::{HostOverview, KsmState, OverviewInputs, text};

fn host(run: Reading<u64>) -> StatusReport {
    let mut status = StatusReport::default();
    status.sample.page_size = 4096;
    status.sample.ksm.run = run;
    status
}

fn guests(change: impl FnOnce(&mut Vec<Guest>)) -> GuestsReport {
    let mut report = models::guests();
    change(&mut report.guests);
    report
}

/// Returns the overview of a user that is not root.
fn overview(status: &StatusReport, guests: &GuestsReport, others: &[FoundController]) -> HostOverview {
    HostOverview::new(OverviewInputs { status, guests, others, is_service_active: false, is_root: false })
}

fn controller(name: &str) -> FoundController {
    FoundController {
        controller: row(name).unwrap(),
        pids: vec![812],
        profile: None,
        states: Vec::new(),
        files: Vec::new(),
        is_on: true,
    }
}

#[test]
fn the_next_command_is_the_one_that_this_host_needs() {
    let (off, none, some) = (host(Reading::Value(0)), guests(Vec::clear), models::guests());
    let next = |status: &StatusReport, guests: &GuestsReport, others: &[FoundController]| {
        overview(status, guests, others).next
    };
    assert_eq!(next(&off, &some, &[]), "sudo ksmith estimate");
    assert_eq!(next(&off, &none, &[]), "sudo ksmith demo");
    assert_eq!(next(&host(Reading::Absent), &some, &[]), "ksmith doctor");
    assert_eq!(next(&host(Reading::Denied), &some, &[]), "ksmith doctor");
    assert_eq!(next(&off, &some, &[controller("ksmtuned")]), "ksmith doctor");
    assert_eq!(next(&off, &some, &[controller("the kernel's advisor")]), "sudo ksmith estimate");
    let switched_off = guests(|guests| guests.iter_mut().for_each(|guest| guest.mergeable = Some(false)));
    assert_eq!(next(&off, &switched_off, &[]), "ksmith doctor");
    let mut hidden = host(Reading::Value(1));
    hidden.sample.hidden_processes = 7;
    assert_eq!(next(&hidden, &none, &[]), "sudo ksmith");
    assert_eq!(next(&models::status(), &some, &[controller("ksmtuned")]), "ksmith top");
    let seen = OverviewInputs { status: &off, guests: &some, others: &[], is_service_active: false, is_root: true };
    assert_eq!(HostOverview::new(seen).next, "ksmith estimate", "root needs no sudo");
    let service = HostOverview::new(OverviewInputs { is_service_active: true, is_root: false, ..seen });
    assert_eq!((service.next.as_str(), service.controlled_by.len()), ("sudo ksmith top", 1));
}

#[test]
fn figures_are_sums_and_no_guest_counts_twice() {
    let some = guests(|guests| {
        guests[0].mergeable = Some(false);
        guests[2].memory_bytes = None;
        guests.push(guests[1].clone());
    });
    let found = overview(&host(Reading::Value(1)), &some, &[controller("ksmtuned"), controller("virt-handler")]);
    assert_eq!((found.state, found.guests, found.not_mergeable_guests), (KsmState::On, 3, 1));
    assert_eq!((found.mergeable_bytes, found.upper_bound_bytes), (3 << 20, 3 << 20));
    assert_eq!((found.alike.len(), found.alike[0].guests, found.alike[0].memory_bytes), (1, 2, 1 << 30));
    assert_eq!(found.controlled_by, ["ksmtuned (pid 812)"], "what only may control KSM does not count");
    let text = text(&found).text().to_owned();
    for part in [
        "control   ksmtuned (pid 812)",
        "3 with mergeable memory",
        "1 without",
        "2 look equal: qemu (qemu), 1.00 GiB",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn what_can_not_be_read_is_not_none() {
    let mut status = host(Reading::Value(1));
    status.sample.given_up.unknown = 2;
    let told = text(&overview(&status, &guests(Vec::clear), &[])).text().to_owned();
    assert!(told.contains("none that can be read"), "{told}");
    let told = text(&overview(&host(Reading::Absent), &models::guests(), &[])).text().to_owned();
    assert!(!told.contains("mergeable") && told.contains("guests    3"), "{told}");
}
