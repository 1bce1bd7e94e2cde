use std::time::Duration;

use ksmith_core::knobs::Knob;
use ksmith_host::observe::ProcessEvent;

use super::HELD;
use crate::control::{ControlReply, ControlRequest, HoldRequest};
use crate::daemon::DaemonMessage;
use crate::testing::DaemonScene;

#[test]
fn a_process_event_that_matters_brings_the_turn_forward() {
    let mut scene = DaemonScene::new(HELD);
    scene.send_at(12, DaemonMessage::Processes(vec![ProcessEvent::Started(9)]));
    scene.at(13, |world| world.is_urgent = true);
    scene.send_at(13, DaemonMessage::Processes(vec![ProcessEvent::Exec(9), ProcessEvent::Exited(10)]));
    scene.at(14, |_| {});
    scene.run().unwrap();
    let world = scene.world();
    assert_eq!(world.noticed, [ProcessEvent::Started(9), ProcessEvent::Exec(9), ProcessEvent::Exited(10)]);
    let after = |second| world.turns.contains(&Duration::from_secs(second));
    assert!(!after(12) && after(13), "{:?}", world.turns);
}

#[test]
fn endless_questions_do_not_keep_the_policy_from_its_turn() {
    let mut scene = DaemonScene::new(HELD);
    let mut waiting = Vec::new();
    for second in 1..40 {
        for _ in 0..50 {
            waiting.push(scene.ask_at(second, ControlRequest::Status));
        }
    }
    scene.at(20, |world| world.machine.write(Knob::PagesToScan, 77).unwrap());
    scene.at(39, |world| assert_eq!(world.knob(Knob::PagesToScan), 321));
    scene.run().unwrap();
    assert!(waiting.iter().all(|(answers, _)| matches!(answers.recv(), Ok(ControlReply::Status(_)))));
    let turns = &scene.world().turns;
    assert!(turns.windows(2).all(|pair| pair[1] - pair[0] <= Duration::from_secs(10)), "{turns:?}");
}

#[test]
fn the_arithmetic_behind_a_reason_is_logged_for_those_who_ask() {
    let mut scene = DaemonScene::new(HELD);
    scene.at(3, |_| {});
    let log = scene.run().unwrap().log;
    let has = |level: &str, part: &str| log.lines().any(|line| line.contains(level) && line.contains(part));
    assert!(has(" INFO ", "as configured") && !has(" INFO ", "now pages_to_scan="), "{log}");
    assert!(has("DEBUG ", "now pages_to_scan="), "{log}");
}

#[test]
fn the_status_names_the_policy_and_its_reason() {
    let mut scene = DaemonScene::new(HELD);
    let (answers, _waiting) = scene.ask_at(3, ControlRequest::Status);
    scene.run().unwrap();
    let ControlReply::Status(status) = answers.recv().unwrap() else { panic!("another answer") };
    let daemon = status.daemon.unwrap();
    assert_eq!((daemon.policy.as_str(), daemon.pid), ("fixed", std::process::id()));
    assert_eq!(daemon.uptime_seconds, 3.0);
    assert_eq!(status.sample.ksm.pages_to_scan.get(), Some(321));
}

#[test]
fn guests_are_answered_by_the_registry() {
    let mut scene = DaemonScene::new(HELD);
    scene.world().machine.start(ksmith_core::sim::GuestPlan::new("one").equal(1, 16));
    let (answers, _waiting) = scene.ask_at(3, ControlRequest::Guests);
    let (noted, _noted_waits) = scene.ask_at(3, ControlRequest::Switched { pid: 1, on: true });
    scene.run().unwrap();
    let ControlReply::Guests(report) = answers.recv().unwrap() else { panic!("another answer") };
    assert_eq!(report.guests.len(), 1);
    assert_eq!(noted.recv().unwrap(), ControlReply::Noted);
}

#[test]
fn status_and_guests_that_are_requested_together_are_of_one_sample_until_a_guest_is_switched() {
    let mut scene = DaemonScene::new(HELD);
    let (status, _status_waits) = scene.ask_at(3, ControlRequest::Status);
    let (guests, _guests_wait) = scene.ask_at(3, ControlRequest::Guests);
    scene.at(4, |world| assert_eq!(world.other_samples, 1));
    let (_noted, _noted_waits) = scene.ask_at(5, ControlRequest::Switched { pid: 1, on: false });
    let asked = [5, 5].map(|second| scene.ask_at(second, ControlRequest::Guests));
    scene.at(6, |world| assert_eq!(world.other_samples, 2));
    scene.run().unwrap();
    assert!(matches!(status.recv(), Ok(ControlReply::Status(_))));
    for answers in [guests].iter().chain(asked.iter().map(|(answers, _)| answers)) {
        assert!(matches!(answers.recv(), Ok(ControlReply::Guests(_))));
    }
}

#[test]
fn a_guest_that_is_switched_on_again_is_scanned_at_once() {
    let mut scene = DaemonScene::new("");
    for name in ["one", "two"] {
        scene.world().machine.start(ksmith_core::sim::GuestPlan::new(name).equal(1, 4096));
    }
    scene.at(59, |world| assert_eq!(world.knob(Knob::Run), 0, "parked"));
    let pid = scene.world().machine.sample().processes[0].id.pid;
    let (_noted, _waits) = scene.ask_at(60, ControlRequest::Switched { pid, on: true });
    scene.at(61, |world| {
        let is_burst = |said: &String| said.contains("burst: 16.0 MiB of new memory");
        assert!(world.told.iter().any(is_burst), "{:?}", world.told);
    });
    scene.run().unwrap();
}

#[test]
fn balance_answers_through_the_daemon() {
    let mut scene = DaemonScene::new(HELD);
    let (answers, _waiting) = scene
        .ask_at(3, ControlRequest::Hold(HoldRequest { guest: "none".to_owned(), release: false, dry_run: false }));
    scene.run().unwrap();
    let ControlReply::NoGuest { message } = answers.recv().unwrap() else { panic!("another answer") };
    assert!(message.contains("there is no guest \"none\""), "{message}");
}

/// A host with so many processes that each sample takes 200 ms, where processes start and end all the time.
fn busy_scene() -> DaemonScene {
    let mut scene = DaemonScene::new(HELD);
    scene.world().is_urgent = true;
    scene.world().sample_takes = Duration::from_millis(200);
    for second in 1..60 {
        for _ in 0..16 {
            scene.send_at(second, DaemonMessage::Processes(vec![ProcessEvent::Exited(9)]));
        }
    }
    scene
}

#[test]
fn processes_that_start_and_end_without_end_bring_no_more_turns_than_a_tenth_of_a_cpu() {
    let mut scene = busy_scene();
    scene.run().unwrap();
    let world = scene.world();
    assert!((20..=32).contains(&world.turns.len()), "{:?}", world.turns);
    assert_eq!(world.noticed.len(), 59 * 16);
}

#[test]
fn a_request_waits_for_one_turn_however_many_events_came_before_it() {
    let mut scene = busy_scene();
    let mut waiting = Vec::new();
    for second in 1..60 {
        waiting.extend((0..8).map(|_| (second, scene.ask_at(second, ControlRequest::Status))));
    }
    scene.run().unwrap();
    for (second, (answers, _waits)) in waiting {
        let Ok(ControlReply::Status(status)) = answers.try_recv() else { panic!("no answer") };
        let answered = status.daemon.unwrap().uptime_seconds;
        // A turn that was under way, and a sample for the answer.
        assert!(answered - second as f64 <= 0.5, "asked at {second}, answered at {answered}");
    }
    let samples = scene.world().other_samples;
    assert!(samples <= 2 * 59, "eight requests at a time share a sample: {samples}");
}

#[test]
fn a_peer_that_has_hung_up_costs_no_sample() {
    let mut scene = DaemonScene::new(HELD);
    for request in [ControlRequest::Status, ControlRequest::Guests] {
        drop(scene.ask_at(3, request));
    }
    scene.at(5, |world| assert_eq!(world.other_samples, 0));
    scene.run().unwrap();
}
