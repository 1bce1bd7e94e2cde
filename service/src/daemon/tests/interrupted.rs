//! A clock that is set, and files of KSM that can't be written for a time, in the middle of each action: it ends as
//! without.

use ksmith_core::balance::KsmStep;
use ksmith_core::knobs::Knob;
use ksmith_core::sim::GuestPlan;

use crossbeam_channel::bounded;

use crate::control::{ControlRequest, PeerGuard, watch_peer};
use crate::daemon::DaemonMessage;
use crate::testing::{DaemonScene, SimulatedWorld};
use crate::user_socket::{ScanQueue, UserScan};

/// A policy that leaves all but `pages_to_scan` alone. A pass of a scan takes seconds.
const LEAVES_MOST: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 40 }\n\
                           [limits]\nmax_pages_to_scan = 50\nmin_sleep_milliseconds = 30\n";

/// Begins an action at 5 s. The peer waits as long as what this returns is held.
type BeginAction = fn(&mut DaemonScene) -> PeerGuard;

const ACTIONS: [(&str, BeginAction); 5] = [
    ("a scan", |scene| scene.ask_at(5, ControlRequest::Scan { passes: 2, max_cpu: None }).1),
    ("a scan for a user", |scene| {
        // Nobody takes the answer.
        let (reply, _) = bounded(1);
        let (waiting, peer) = watch_peer();
        let queue = ScanQueue::default();
        assert!(queue.add(UserScan { passes: 2, user: 7, reply, peer }));
        scene.send_at(5, DaemonMessage::UserScans(queue));
        waiting
    }),
    ("a burst", |scene| {
        scene.send_at(5, DaemonMessage::Merging(KsmStep::BurstMerge));
        watch_peer().0
    }),
    ("a pause", |scene| {
        scene.at(2, |world| world.machine.write(Knob::Run, 1).unwrap());
        scene.ask_at(5, ControlRequest::Pause { seconds: Some(20.0) }).1
    }),
    ("the end of a pause", |scene| {
        scene.at(2, |world| world.machine.write(Knob::Run, 1).unwrap());
        drop(scene.ask_at(3, ControlRequest::Pause { seconds: None }));
        scene.ask_at(8, ControlRequest::Resume).1
    }),
];

/// A disturbance: its effect at its beginning and at its end.
type Disturb = fn(&mut SimulatedWorld);

const YEAR: i64 = 31_536_000_000;

const DISTURBANCES: [(&str, Disturb, Disturb); 3] = [
    ("the clock is set forward and back", |world| world.clock_set_by = YEAR, |world| world.clock_set_by = -YEAR),
    ("the clock is set back", |world| world.clock_set_by = -YEAR, |_| ()),
    ("no setting can be written", |world| world.is_read_only = true, |world| world.is_read_only = false),
];

/// The settings at the end, and how often the log has an error.
#[derive(Debug, PartialEq)]
struct ActionEnd {
    knobs: [u64; 5],
    errors: usize,
}

/// Runs an action that is disturbed from one second to another.
fn run(begin: BeginAction, disturbance: Option<((Disturb, Disturb), u64, u64)>) -> ActionEnd {
    let mut scene = DaemonScene::new(LEAVES_MOST);
    for name in ["one", "two"] {
        scene.world().machine.start(GuestPlan::new(name).equal(1, 4096));
    }
    let _waiting = begin(&mut scene);
    if let Some(((first, last), from, until)) = disturbance {
        scene.at(from, first);
        scene.at(until, last);
    }
    scene.at(150, |_| {});
    let (sender, ends) = bounded(1);
    scene.at(151, move |world| {
        let knobs = [Knob::Run, Knob::SmartScan, Knob::SleepMillisecs, Knob::PagesToScan, Knob::UseZeroPages];
        sender.send(knobs.map(|knob| world.knob(knob))).unwrap();
    });
    let outcome = scene.run().unwrap();
    ActionEnd { knobs: ends.recv().unwrap(), errors: outcome.count("ERROR") }
}

#[test]
fn each_action_ends_as_without_a_clock_that_is_set_or_files_that_are_read_only_in_its_middle() {
    for (action, begin) in ACTIONS {
        let usual = run(begin, None);
        assert_eq!(usual.errors, 0, "{action}");
        for (name, first, last) in DISTURBANCES {
            for (from, until) in [(1, 12), (6, 30), (7, 90), (9, 15)] {
                let found = run(begin, Some(((first, last), from, until)));
                assert_eq!(found.knobs, usual.knobs, "{action}, and {name} from {from} s to {until} s");
                assert!(found.errors <= 8, "{action}, and {name}: {} errors are logged", found.errors);
            }
        }
    }
}
