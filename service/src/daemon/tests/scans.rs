use std::time::Duration;

use ksmith_core::balance::KsmStep;
use ksmith_core::knobs::Knob;
use ksmith_core::sim::GuestPlan;

use crossbeam_channel::{Receiver, bounded};

use super::HELD;
use crate::control::{ControlReply, ControlRequest, NOTHING_TO_SCAN, PeerGuard};
use crate::daemon::DaemonMessage;
use crate::testing::{DaemonScene, FreedZeros, SimulatedWorld};
use crate::user_socket::{Done, RefusalKind, ScanQueue, UserScan};

fn with_two_clones(config: &str) -> DaemonScene {
    let scene = DaemonScene::new(config);
    for name in ["one", "two"] {
        scene.world().machine.start(GuestPlan::new(name).equal(1, 4096));
    }
    scene
}

fn scan(passes: u64, max_cpu: Option<f64>) -> ControlRequest {
    ControlRequest::Scan { passes, max_cpu }
}

/// Sends a request of a user for a scan.
fn ask_as(scene: &mut DaemonScene, seconds: u64, user: u32, passes: u64) -> (Receiver<Done>, PeerGuard) {
    let (reply, answers) = bounded(1);
    let (waiting, peer) = crate::control::watch_peer();
    let queue = ScanQueue::default();
    assert!(queue.add(UserScan { passes, user, reply, peer }));
    scene.send_at(seconds, DaemonMessage::UserScans(queue));
    (answers, waiting)
}

fn refusal(answer: ControlReply) -> String {
    let ControlReply::Error { message } = answer else { panic!("another answer: {answer:?}") };
    message
}

#[test]
fn a_scan_on_demand_merges_and_the_policy_goes_on_as_before() {
    let mut scene = with_two_clones(HELD);
    let (answers, _waiting) = scene.ask_at(5, scan(2, None));
    scene.at(120, |world| {
        assert_eq!((world.knob(Knob::PagesToScan), world.knob(Knob::Run)), (321, 0));
        assert_eq!(world.knob(Knob::SmartScan), 1, "as before the scan");
    });
    let outcome = scene.run().unwrap();
    let ControlReply::Scan(scan) = answers.recv().unwrap() else { panic!("another answer") };
    assert_eq!(scan.before.saved_bytes, 0);
    assert_eq!(scan.after.saved_bytes, 4096 * 4096);
    assert!(outcome.log.contains("scanning on demand: 2 passes with at most"), "{}", outcome.log);
    assert!(!outcome.log.contains("another program"), "{}", outcome.log);
}

#[test]
fn a_scan_goes_by_page_tables_that_are_read_before_and_after_it() {
    const MIB: u64 = 1 << 20;
    let mut scene = with_two_clones(&format!("{HELD}{SLOW}"));
    // Each was freed since page tables were last read.
    scene.world().freed =
        Some(FreedZeros { bytes: 8 * MIB, takes: Duration::from_secs(3), ..FreedZeros::default() });
    let (answers, _waiting) = scene.ask_at(5, scan(2, None));
    let (others, _others_wait) = scene.ask_at(6, scan(1, None));
    scene.at(7, |world| assert_eq!(world.knob(Knob::Run), 0, "page tables are being read"));
    scene.at(10, |world| {
        assert_eq!(world.knob(Knob::Run), 1);
        world.freed.as_mut().unwrap().bytes = 24 * MIB;
    });
    scene.at(120, |_| ());
    scene.run().unwrap();
    let ControlReply::Scan(scan) = answers.recv().unwrap() else { panic!("another answer") };
    assert_eq!((scan.before.saved_bytes, scan.after.saved_bytes), (8 * MIB, (16 + 24) * MIB));
    assert!(scan.after.ksmd_cpu_seconds > scan.before.ksmd_cpu_seconds);
    assert_eq!(refusal(others.recv().unwrap()), "a scan is in progress already");
}

#[test]
fn page_tables_that_are_not_read_in_time_hold_up_no_scan() {
    let mut scene = with_two_clones(HELD);
    scene.world().freed = Some(FreedZeros { takes: Duration::from_secs(1 << 20), ..FreedZeros::default() });
    let (answers, _waiting) = scene.ask_at(5, scan(2, None));
    scene.at(300, |_| ());
    let outcome = scene.run().unwrap();
    let ControlReply::Scan(scan) = answers.recv().unwrap() else { panic!("another answer") };
    assert_eq!(scan.after.saved_bytes, 4096 * 4096);
    assert_eq!(outcome.count("the scan goes by page tables as far as they were read"), 2, "{}", outcome.log);
}

#[test]
fn a_pause_gives_up_a_scan_that_waits_for_page_tables() {
    let mut scene = with_two_clones(HELD);
    scene.world().freed = Some(FreedZeros { takes: Duration::from_secs(9), ..FreedZeros::default() });
    let (answers, _waiting) = scene.ask_at(5, scan(2, None));
    let (_paused, _pause_waits) = scene.ask_at(7, ControlRequest::Pause { seconds: None });
    scene.at(60, |world| assert_eq!(world.knob(Knob::Run), 0));
    scene.run().unwrap();
    assert!(refusal(answers.recv().unwrap()).starts_with("the scan was given up: "));
}

/// A pass takes seconds.
const SLOW: &str = "[limits]\nmax_pages_to_scan = 50\nmin_sleep_milliseconds = 30\n";

#[test]
fn a_scan_waits_for_ksmd_to_end_its_batch() {
    let mut scene = with_two_clones(&format!("{HELD}{SLOW}"));
    let (answers, _waiting) = scene.ask_at(5, scan(2, None));
    scene.at(8, |world| world.delays = Some(Knob::Run));
    scene.at(40, |world| {
        assert_eq!(world.knob(Knob::Run), 1);
        world.delays = None;
    });
    scene.at(120, |world| assert_eq!((world.knob(Knob::Run), world.knob(Knob::SmartScan)), (0, 1)));
    let outcome = scene.run().unwrap();
    assert_eq!(outcome.count("run is not written yet; so for 3"), 1, "{}", outcome.log);
    let answer = answers.recv().unwrap();
    let ControlReply::Scan(scan) = answer else { panic!("{answer:?}: {}", outcome.log) };
    assert_eq!(scan.after.saved_bytes, 4096 * 4096);
    assert!(!outcome.log.contains("ERROR"), "{}", outcome.log);
}

#[test]
fn a_scan_is_given_up_where_a_setting_waits_for_ksmd_too_long() {
    let mut scene = with_two_clones(&format!("{HELD}{SLOW}"));
    let (answers, _waiting) = scene.ask_at(5, scan(1000, None));
    scene.at(7, |world| {
        world.machine.write(Knob::SleepMillisecs, 100_000_000).unwrap();
        world.delays = Some(Knob::SleepMillisecs);
    });
    scene.at(60, |world| {
        assert_eq!(world.knob(Knob::SmartScan), 0, "it can't be put back yet");
        world.delays = None;
    });
    scene.at(120, |world| assert_eq!((world.knob(Knob::Run), world.knob(Knob::SmartScan)), (0, 1)));
    scene.run().unwrap();
    assert_eq!(refusal(answers.recv().unwrap()), "the scan was given up: sleep_millisecs is not written yet");
}

#[test]
fn a_scan_that_ksmd_does_not_let_end_is_answered_and_put_back_later() {
    // The policy names neither `run` nor what the scan changes besides.
    let config = "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 40 }\n";
    let mut scene = with_two_clones(&format!("{config}{SLOW}"));
    let (answers, waiting) = scene.ask_at(5, scan(1000, None));
    let (done, _done_waits) = scene.ask_at(60, scan(1, None));
    scene.at(8, move |world| {
        assert_eq!((world.knob(Knob::Run), world.knob(Knob::SmartScan)), (1, 0), "the scan is under way");
        world.delays = Some(Knob::Run);
        drop(waiting);
    });
    scene.at(30, |world| assert_eq!(world.knob(Knob::Run), 1));
    scene.at(40, |world| world.delays = None);
    let is_as_before = |world: &mut SimulatedWorld| {
        let knobs = [Knob::Run, Knob::SmartScan, Knob::SleepMillisecs, Knob::PagesToScan];
        assert_eq!(knobs.map(|knob| world.knob(knob)), [0, 1, 20, 40]);
    };
    scene.at(55, is_as_before);
    scene.at(62, |world| world.delays = Some(Knob::Run));
    scene.at(2000, |world| world.delays = None);
    scene.at(2060, is_as_before);
    scene.run().unwrap();
    assert!(refusal(answers.recv().unwrap()).contains("waits for the scan"));
    let answer = done.recv().unwrap();
    assert!(matches!(answer, ControlReply::Scan(_)), "all passes were made: {answer:?}");
}

#[test]
fn a_scan_without_mergeable_memory_is_refused() {
    let mut scene = DaemonScene::new(HELD);
    let (answers, _waiting) = scene.ask_at(5, scan(2, None));
    scene.at(30, |_| {});
    scene.run().unwrap();
    assert_eq!(refusal(answers.recv().unwrap()), NOTHING_TO_SCAN);
}

#[test]
fn where_the_kernel_does_not_show_mergeable_memory_ksmds_progress_decides() {
    for clones in [true, false] {
        let mut scene = if clones { with_two_clones(HELD) } else { DaemonScene::new(HELD) };
        scene.world().shows_mergeable = false;
        let (answers, _waiting) = scene.ask_at(5, scan(2, None));
        scene.at(60, |_| {});
        scene.run().unwrap();
        match answers.recv().unwrap() {
            ControlReply::Scan(scan) if clones => assert_eq!(scan.after.saved_bytes, 4096 * 4096),
            refused => assert_eq!(refusal(refused), NOTHING_TO_SCAN, "clones: {clones}"),
        }
    }
}

#[test]
fn a_scan_keeps_the_operators_limits_and_ends_when_the_peer_hangs_up() {
    // The policy leaves `run` alone: it is the scan's to put back.
    let mut scene = with_two_clones(
        "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 40 }\n\
         [limits]\nmax_pages_to_scan = 50\nmin_sleep_milliseconds = 30\n",
    );
    let (answers, waiting) = scene.ask_at(5, scan(1000, Some(0.25)));
    let (second, _second_waits) = scene.ask_at(6, scan(1, None));
    scene.at(8, move |world| {
        assert_eq!(world.knob(Knob::Run), 1);
        assert!(world.knob(Knob::PagesToScan) <= 50 && world.knob(Knob::SleepMillisecs) >= 30);
        drop(waiting);
    });
    scene.at(60, |world| {
        assert_eq!((world.knob(Knob::Run), world.knob(Knob::PagesToScan)), (0, 40));
        assert_eq!((world.knob(Knob::SmartScan), world.knob(Knob::SleepMillisecs)), (1, 20));
    });
    let outcome = scene.run().unwrap();
    assert!(outcome.log.contains("scanning on demand: 1000 passes with at most 25 % of a CPU"), "{}", outcome.log);
    assert!(refusal(second.recv().unwrap()).contains("in progress already"));
    assert!(refusal(answers.recv().unwrap()).contains("waits for the scan"));
}

#[test]
fn a_scan_that_the_daemons_end_cuts_short_gets_no_answer_and_leaves_nothing() {
    let mut scene = with_two_clones(HELD);
    let (answers, _waiting) = scene.ask_at(5, scan(1000, None));
    scene.at(6, |world| assert_eq!(world.knob(Knob::Run), 1));
    let outcome = scene.run().unwrap();
    assert!(answers.recv().is_err());
    assert_eq!(scene.world().knob(Knob::Run), 0, "{:?}", outcome.restored);
    assert_eq!(scene.world().knob(Knob::PagesToScan), 100, "{:?}", outcome.restored);
}

#[test]
fn a_share_that_is_none_is_refused() {
    let mut scene = with_two_clones(HELD);
    let (answers, _waiting) = scene.ask_at(5, scan(1, Some(1.5)));
    scene.run().unwrap();
    assert!(refusal(answers.recv().unwrap()).contains("max_cpu must be"));
}

#[test]
fn a_reload_during_a_scan_takes_effect_after_it() {
    let mut scene = with_two_clones(HELD);
    let (answers, _waiting) = scene.ask_at(5, scan(2, None));
    scene.reload_at(5, &HELD.replace("321", "654"));
    scene.at(5, |world| assert_ne!(world.knob(Knob::PagesToScan), 654));
    scene.at(120, |world| assert_eq!(world.knob(Knob::PagesToScan), 654));
    scene.run().unwrap();
    assert!(matches!(answers.recv().unwrap(), ControlReply::Scan(_)));
}

#[test]
fn users_that_ask_together_are_served_by_one_scan() {
    let mut scene = with_two_clones(HELD);
    let mut done = Vec::new();
    for user in [7, 8] {
        done.push(ask_as(&mut scene, 5, user, 2));
    }
    scene.at(200, |world| assert_eq!((world.knob(Knob::Run), world.knob(Knob::PagesToScan)), (0, 321)));
    scene.run().unwrap();
    for (answers, _waiting) in done {
        let (passes, spent_ns) = answers.recv().unwrap().unwrap();
        assert!(passes >= 2 && spent_ns > 0);
    }
    assert!(scene.world().machine.truly_saved_pages() >= 4096);
}

#[test]
fn balance_has_everything_merged_when_memory_is_short() {
    let mut scene = with_two_clones(HELD);
    scene.send_at(5, DaemonMessage::Merging(KsmStep::BurstMerge));
    scene.at(120, |world| assert_eq!((world.knob(Knob::Run), world.knob(Knob::PagesToScan)), (0, 321)));
    let outcome = scene.run().unwrap();
    assert!(outcome.log.contains("merging what can be merged: the pool is short"), "{}", outcome.log);
    assert!(scene.world().machine.truly_saved_pages() >= 4096);
}

#[test]
fn root_and_balance_go_before_users() {
    let slow = || with_two_clones(&format!("{HELD}{SLOW}"));
    let mut scene = slow();
    let (users, _user_waits) = ask_as(&mut scene, 5, 7, 4);
    scene.at(6, |world| assert_eq!(world.knob(Knob::Run), 1));
    let (answers, _waiting) = scene.ask_at(6, scan(2, None));
    let (second, _second_waits) = scene.ask_at(6, scan(2, None));
    scene.at(600, |world| assert_eq!((world.knob(Knob::Run), world.knob(Knob::PagesToScan)), (0, 50)));
    let outcome = scene.run().unwrap();
    assert!(matches!(answers.recv().unwrap(), ControlReply::Scan(_)), "root waits for no user");
    assert!(refusal(second.recv().unwrap()).contains("in progress already"), "root waits for root");
    assert_eq!(users.recv().unwrap().unwrap().0, 4, "the user's scan is made afterwards: {}", outcome.log);
    assert_eq!(outcome.count("the scan for users makes way for another"), 1);

    let mut scene = slow();
    let (users, _user_waits) = ask_as(&mut scene, 5, 7, 4);
    scene.send_at(6, DaemonMessage::Merging(KsmStep::BurstMerge));
    scene.at(600, |_| {});
    let outcome = scene.run().unwrap();
    assert_eq!(outcome.count("merging what can be merged: the pool is short"), 1);
    assert!(users.recv().unwrap().is_ok());
}

#[test]
fn a_user_has_no_more_passes_in_an_hour_than_the_limit() {
    let mut scene = with_two_clones(HELD);
    scene.configure_optin("passes_per_hour = 3\n");
    let asked: Vec<_> = [(5, 7), (300, 7), (600, 8), (900, 0)]
        .map(|(second, user)| ask_as(&mut scene, second, user, 2))
        .into_iter()
        .collect();
    scene.at(1500, |_| {});
    scene.run().unwrap();
    let answers: Vec<Done> = asked.iter().map(|(answers, _)| answers.recv().unwrap()).collect();
    assert!(answers[0].is_ok() && answers[2].is_ok() && answers[3].is_ok(), "{answers:?}");
    let (refusal, why) = answers[1].clone().unwrap_err();
    assert!(refusal == RefusalKind::Budget && why.contains("passes_per_hour"), "{why}");
}
