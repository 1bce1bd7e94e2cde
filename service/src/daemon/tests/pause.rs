use ksmith_core::balance::KsmStep;
use ksmith_core::knobs::Knob;
use ksmith_core::sim::GuestPlan;

use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use ksmith_record::times;

use super::HELD;
use crate::control::{ControlReply, ControlRequest, PeerGuard};
use crate::daemon::DaemonMessage;
use crate::testing::{BEGIN, DaemonScene, SimulatedWorld};
use crate::user_socket::{Done, RefusalKind, ScanQueue, UserScan};

/// A policy that has ksmd scan without end. A pass takes seconds.
const SCANNING: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\n\
                        settings = { pages_to_scan = 50, sleep_millisecs = 30, run = 1 }\n";

/// A policy that leaves `run` alone.
const LEAVES_RUN: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 40 }\n";

fn with_two_clones(config: &str) -> DaemonScene {
    let scene = DaemonScene::new(config);
    for name in ["one", "two"] {
        scene.world().machine.start(GuestPlan::new(name).equal(1, 4096));
    }
    scene
}

fn pause(seconds: Option<f64>) -> ControlRequest {
    ControlRequest::Pause { seconds }
}

/// Schedules the check that ksmd runs, or stands.
fn check_run(scene: &mut DaemonScene, second: u64, run: u64) {
    scene.at(second, move |world| assert_eq!(world.knob(Knob::Run), run, "at {second} s"));
}

fn done(answers: &Receiver<ControlReply>) -> String {
    match answers.recv().unwrap() {
        ControlReply::Done { message } => message,
        other => panic!("another answer: {other:?}"),
    }
}

fn refused(answers: &Receiver<ControlReply>) -> String {
    match answers.recv().unwrap() {
        ControlReply::Error { message } => message,
        other => panic!("another answer: {other:?}"),
    }
}

/// Schedules a request of a user for a scan.
fn ask_as_user(scene: &mut DaemonScene, second: u64) -> (Receiver<Done>, PeerGuard) {
    let (reply, answers) = bounded(1);
    let (waiting, peer) = crate::control::watch_peer();
    let queue = ScanQueue::default();
    assert!(queue.add(UserScan { passes: 1, user: 7, reply, peer }));
    scene.send_at(second, DaemonMessage::UserScans(queue));
    (answers, waiting)
}

#[test]
fn a_pause_parks_ksmd_within_a_turn_and_ends_by_itself() {
    let mut scene = with_two_clones(SCANNING);
    check_run(&mut scene, 4, 1);
    let (answers, _waits) = scene.ask_at(5, pause(Some(90.0)));
    let (status, _status_waits) = scene.ask_at(50, ControlRequest::Status);
    check_run(&mut scene, 6, 0);
    check_run(&mut scene, 94, 0);
    check_run(&mut scene, 96, 1);
    let outcome = scene.run().unwrap();
    let end = times::local(BEGIN + 95_000);
    let sentence = format!("until {end}, or until `ksmith resume`");
    assert_eq!(done(&answers), format!("merging is paused {sentence}"));
    let ControlReply::Status(status) = status.recv().unwrap() else { panic!("another answer") };
    let daemon = status.daemon.unwrap();
    assert_eq!((&*daemon.policy, &*daemon.state, &*daemon.reason), ("fixed", "paused", &*sentence));
    let world = scene.world();
    assert!(world.turns.contains(&Duration::from_secs(5)), "{:?}", world.turns);
    assert!(world.told.contains(&format!("STATUS=paused: {sentence}")), "{:?}", world.told);
    assert_eq!(outcome.count("the pause has ended; policy fixed decides again"), 1, "{}", outcome.log);
    assert_eq!(outcome.count("another program"), 0, "{}", outcome.log);
}

#[test]
fn a_clock_that_is_set_changes_the_shown_end_of_a_pause_and_not_the_pause() {
    const HOUR: i64 = 3_600_000;
    let mut scene = with_two_clones(SCANNING);
    let (_answers, _waits) = scene.ask_at(5, pause(Some(90.0)));
    let (before, _before_waits) = scene.ask_at(20, ControlRequest::Status);
    scene.at(30, |world| world.clock_set_by = HOUR);
    let (after, _after_waits) = scene.ask_at(31, ControlRequest::Status);
    check_run(&mut scene, 94, 0);
    check_run(&mut scene, 96, 1);
    let (ended, _ended_waits) = scene.ask_at(120, ControlRequest::Status);
    scene.run().unwrap();
    let shown = |answers: &Receiver<ControlReply>| {
        let ControlReply::Status(status) = answers.recv().unwrap() else { panic!("another answer") };
        let daemon = status.daemon.unwrap();
        (daemon.paused_until, daemon.reason)
    };
    let (end, set_end) = (BEGIN + 95_000, BEGIN + 95_000 + HOUR);
    let sentence = |end| format!("until {}, or until `ksmith resume`", times::local(end));
    assert_eq!(shown(&before), (Some(end as f64 / 1e3), sentence(end)));
    assert_eq!(shown(&after), (Some(set_end as f64 / 1e3), sentence(set_end)));
    assert_eq!(shown(&ended).0, None);
    let world = scene.world();
    let told = |end| world.told.contains(&format!("STATUS=paused: {}", sentence(end)));
    assert!(told(end) && told(set_end), "{:?}", world.told);
}

#[test]
fn samples_that_take_long_do_not_move_the_shown_end_of_a_pause() {
    let takes = |seconds: u64| move |world: &mut SimulatedWorld| world.sample_takes = Duration::from_secs(seconds);
    for (first, later) in [(5, 0), (0, 5)] {
        let mut scene = with_two_clones(SCANNING);
        scene.at(1, takes(first));
        let (answers, _waits) = scene.ask_at(40, pause(Some(290.0)));
        let (before, _before_waits) = scene.ask_at(70, ControlRequest::Status);
        scene.at(100, takes(later));
        let (after, _after_waits) = scene.ask_at(200, ControlRequest::Status);
        scene.run().unwrap();
        let [before, after] = [before, after].map(|answers| {
            let ControlReply::Status(status) = answers.recv().unwrap() else { panic!("another answer") };
            let daemon = status.daemon.unwrap();
            (daemon.paused_until.unwrap(), daemon.reason)
        });
        assert_eq!(after, before);
        assert_eq!(done(&answers), format!("merging is paused {}", before.1));
        let world = scene.world();
        let told: Vec<&String> = world.told.iter().filter(|line| line.starts_with("STATUS=paused")).collect();
        assert_eq!(told, [&format!("STATUS=paused: {}", before.1)]);
    }
}

#[test]
fn a_pause_lasts_until_it_is_resumed() {
    let mut scene = with_two_clones(SCANNING);
    let (answers, _waits) = scene.ask_at(5, pause(None));
    check_run(&mut scene, 6, 0);
    check_run(&mut scene, 10_000, 0);
    let (resumed, _resume_waits) = scene.ask_at(10_001, ControlRequest::Resume);
    let (again, _again_waits) = scene.ask_at(10_003, ControlRequest::Resume);
    check_run(&mut scene, 10_002, 1);
    check_run(&mut scene, 10_004, 1);
    scene.run().unwrap();
    assert_eq!(done(&answers), "merging is paused until `ksmith resume`");
    assert_eq!([done(&resumed), done(&again)], ["merging continues", "merging is not paused"]);
}

#[test]
fn a_pause_without_time_is_refused() {
    let mut scene = with_two_clones(SCANNING);
    let asked = [0.0, -1.0, 1e300].map(|seconds| scene.ask_at(5, pause(Some(seconds))));
    check_run(&mut scene, 10, 1);
    scene.run().unwrap();
    for (answers, _waits) in &asked {
        assert!(refused(answers).contains("must be over 0"));
    }
}

#[test]
fn a_second_pause_has_its_own_end_and_ksmd_runs_again_where_the_policy_leaves_it_alone() {
    for (is_running, run) in [(true, 1), (false, 0)] {
        let mut scene = with_two_clones(LEAVES_RUN);
        scene.at(2, move |world| world.machine.write(Knob::Run, u64::from(is_running)).unwrap());
        let _first = scene.ask_at(5, pause(None));
        let _second = scene.ask_at(10, pause(Some(20.0)));
        check_run(&mut scene, 6, 0);
        check_run(&mut scene, 29, 0);
        check_run(&mut scene, 31, run);
        // What an operator decides later stays.
        scene.at(40, |world| world.machine.write(Knob::Run, 0).unwrap());
        check_run(&mut scene, 80, 0);
        scene.run().unwrap();
    }
}

#[test]
fn the_time_of_a_pause_passes_while_the_host_is_suspended() {
    let mut scene = with_two_clones(SCANNING);
    let _asked = scene.ask_at(5, pause(Some(3600.0)));
    scene.at(20, |world| world.suspended += Duration::from_secs(8 * 3600));
    check_run(&mut scene, 19, 0);
    check_run(&mut scene, 35, 1);
    scene.run().unwrap();
}

#[test]
fn nothing_is_scanned_during_a_pause() {
    let mut scene = with_two_clones(HELD);
    let scan = || ControlRequest::Scan { passes: 1000, max_cpu: Some(0.01) };
    let (before, _before_waits) = scene.ask_at(3, scan());
    check_run(&mut scene, 4, 1);
    let _asked = scene.ask_at(5, pause(None));
    let (during, _during_waits) = scene.ask_at(10, scan());
    let (user, _user_waits) = ask_as_user(&mut scene, 15);
    scene.send_at(20, DaemonMessage::Merging(KsmStep::BurstMerge));
    for second in [6, 12, 17, 25, 60] {
        check_run(&mut scene, second, 0);
    }
    let outcome = scene.run().unwrap();
    assert!(refused(&before).starts_with("the scan was given up: merging is paused"));
    assert!(refused(&during).starts_with("merging is paused"));
    let (refusal, why) = user.recv().unwrap().unwrap_err();
    assert!(refusal == RefusalKind::Refused && why.starts_with("merging is paused"), "{why}");
    assert_eq!(outcome.count("the pool is short"), 0, "{}", outcome.log);
}

#[test]
fn a_policy_that_a_reload_brings_decides_after_the_pause() {
    let mut scene = with_two_clones(SCANNING);
    let _asked = scene.ask_at(5, pause(None));
    scene.reload_at(10, HELD);
    scene.reload_at(12, &SCANNING.replace("fixed", "score").replace("settings", "#"));
    let (status, _status_waits) = scene.ask_at(15, ControlRequest::Status);
    scene.reload_at(20, HELD);
    scene.at(25, |world| assert_eq!((world.knob(Knob::Run), world.knob(Knob::PagesToScan)), (0, 50)));
    let _resumed = scene.ask_at(30, ControlRequest::Resume);
    scene.at(35, |world| assert_eq!((world.knob(Knob::Run), world.knob(Knob::PagesToScan)), (0, 321)));
    scene.run().unwrap();
    let ControlReply::Status(status) = status.recv().unwrap() else { panic!("another answer") };
    let daemon = status.daemon.unwrap();
    assert_eq!((&*daemon.policy, &*daemon.state), ("score", "paused"));
}

#[test]
fn memory_and_domains_are_guarded_during_a_pause() {
    let config = format!("{SCANNING}[domains]\nmode = \"one\"\nadmit = \"a\"\n");
    for config in [SCANNING, &config] {
        let is_enforced = config != SCANNING;
        let mut scene = with_two_clones(config);
        let _asked = scene.ask_at(100, pause(None));
        scene.at(110, |world| {
            world.headroom = Some(0);
            world.hidden_processes = 1;
        });
        let (status, _status_waits) = scene.ask_at(190, ControlRequest::Status);
        check_run(&mut scene, 200, 0);
        let outcome = scene.run().unwrap();
        let ControlReply::Status(status) = status.recv().unwrap() else { panic!("another answer") };
        assert_eq!(status.daemon.unwrap().state, "paused");
        let guarded = outcome.count("ksmd is kept parked: 1 process hides whether it may merge");
        match is_enforced {
            true => assert!(guarded > 0, "{}", outcome.log),
            false => assert_eq!(outcome.count("alarm exposure begins"), 1, "{}", outcome.log),
        }
    }
}

#[test]
fn a_restart_ends_a_pause() {
    let mut scene = with_two_clones(SCANNING);
    let _asked = scene.ask_at(5, pause(None));
    check_run(&mut scene, 6, 0);
    scene.run().unwrap();
    let later = scene.world().machine.now().as_secs() + 5;
    check_run(&mut scene, later, 1);
    scene.run().unwrap();
}
