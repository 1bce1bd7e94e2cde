//! Faults of the host, under each policy, while ksmd scans and while it is parked: the daemon takes its turns
//! afterwards, and what is equal merges as without the fault.

use std::fmt::Write;
use std::time::Duration;

use ksmith_core::decide::POLICIES;
use ksmith_core::knobs::Knob;
use ksmith_core::sim::GuestPlan;
use ksmith_host::observe::ProcessEvent;

use crate::daemon::DaemonMessage;
use crate::testing::{DaemonScene, SimulatedWorld};

/// It has the table of all faults.
const DOCUMENT: &str = include_str!("../../../../docs/internals/reliability.md");

/// The effect of a fault in each second, by the number of the second since it began.
type Each = fn(&mut SimulatedWorld, u64);

/// A fault, how many seconds it lasts, what happens in each, and at its end.
struct HostFault {
    name: &'static str,
    seconds: u64,
    each: Each,
    end: fn(&mut SimulatedWorld),
}

const FAULTS: [HostFault; 8] = [
    HostFault { name: "the daemon is stopped for 10 s", seconds: 1, each: stop, end: |_| () },
    HostFault { name: "the host is suspended for 8 h", seconds: 1, each: suspend, end: |_| () },
    HostFault { name: "a program writes every setting each second", seconds: 21, each: meddle, end: |_| () },
    HostFault {
        name: "a program stops ksmd each second",
        seconds: 30,
        each: |world, _| write(world, Knob::Run, 0),
        end: |_| (),
    },
    HostFault {
        name: "a program unmerges each second",
        seconds: 5,
        each: |world, _| write(world, Knob::Run, 2),
        end: |_| (),
    },
    HostFault {
        name: "no setting can be written",
        seconds: 30,
        each: |world, _| world.is_read_only = true,
        end: writable,
    },
    HostFault { name: "10,000 processes in half a minute", seconds: 30, each: churn, end: |_| () },
    HostFault { name: "1,000 mergeable processes in 2 s", seconds: 2, each: bomb, end: |_| () },
];

/// The seconds at which a fault begins: in the first scan, and under the policy that parks ksmd soon, while it is
/// parked.
fn moments(policy: &str) -> &'static [u64] {
    if policy == "profit" { &[2, 40] } else { &[2] }
}

/// By then the last fault is over.
const CLONE_AT: u64 = 75;

const END: u64 = 115;

const PAGES: u32 = 1024;

fn stop(world: &mut SimulatedWorld, _second: u64) {
    world.stand_still(Duration::from_secs(10));
}

fn suspend(world: &mut SimulatedWorld, _second: u64) {
    world.suspended += Duration::from_secs(8 * 3600);
}

/// The kernel refuses some of it, as it may.
fn write(world: &mut SimulatedWorld, knob: Knob, value: u64) {
    let _ = world.machine.write(knob, value);
}

fn meddle(world: &mut SimulatedWorld, second: u64) {
    for (knob, values) in [
        (Knob::AdvisorMode, [0, 1, 0]),
        (Knob::PagesToScan, [0, 1, 100_000]),
        (Knob::SleepMillisecs, [0, 86_400_000, 1]),
        (Knob::SmartScan, [1, 0, 1]),
        (Knob::Run, [1, 0, 1]),
    ] {
        write(world, knob, values[second as usize % 3]);
    }
}

fn writable(world: &mut SimulatedWorld) {
    world.is_read_only = false;
}

fn churn(world: &mut SimulatedWorld, second: u64) {
    for number in 0..334 {
        let stops = world.machine.now() + Duration::from_secs(1);
        world.machine.start(GuestPlan::new(format!("short-{second}-{number}")).equal(2, 4).stopping_at(stops));
    }
}

fn bomb(world: &mut SimulatedWorld, second: u64) {
    for number in 0..500 {
        let stops = world.machine.now() + Duration::from_secs(20);
        world.machine.start(GuestPlan::new(format!("bomb-{second}-{number}")).equal(3, 16).stopping_at(stops));
    }
}

/// The outcome of a run.
#[derive(Debug, PartialEq)]
struct FaultRun {
    /// Pages saved before the end, of those that stay.
    saved: u64,
    /// The longest time between two turns behind the fault.
    longest: Duration,
}

/// Runs a daemon with this policy. A clone of its guests starts behind the fault.
fn run(policy: &str, fault: Option<(&'static HostFault, u64)>) -> FaultRun {
    let mut scene = DaemonScene::new(&format!("[policy]\nkind = \"{policy}\"\n{}", settings(policy)));
    let guest = |name: &str| GuestPlan::new(name).equal(1, PAGES).unique(256);
    for name in ["a", "b"] {
        scene.world().machine.start(guest(name));
    }
    if let Some((fault, moment)) = fault {
        for second in 0..fault.seconds {
            scene.at(moment + second, move |world| (fault.each)(world, second));
            // As the kernel tells of each: at once.
            let events = (1..200).flat_map(|pid| [ProcessEvent::Exec(pid), ProcessEvent::Exited(pid)]).collect();
            scene.send_at(moment + second, DaemonMessage::Processes(events));
        }
        scene.at(moment + fault.seconds, fault.end);
    }
    scene.at(CLONE_AT, move |world| {
        world.turns.clear();
        world.machine.start(guest("clone"));
    });
    let (sender, receiver) = crossbeam_channel::bounded(1);
    scene.at(END, move |world| sender.send(world.machine.truly_saved_pages()).unwrap());
    scene.run().unwrap();
    let world = scene.world();
    FaultRun {
        saved: receiver.recv().unwrap(),
        longest: world.turns.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or(Duration::MAX),
    }
}

/// Returns the settings that a policy needs to merge here at all.
fn settings(policy: &str) -> &'static str {
    match policy {
        "fixed" => "[policy.fixed]\nsettings = { pages_to_scan = 500, run = 1 }\n",
        _ => "",
    }
}

#[test]
fn every_fault_of_the_host_is_survived_under_each_policy() {
    let usual: Vec<FaultRun> = POLICIES.iter().map(|policy| run(policy.name, None)).collect();
    let mut table = String::from("| fault | times | lost |\n|---|---|---|");
    let mut lost = Vec::new();
    for fault in &FAULTS {
        let (mut times, before) = (0, lost.len());
        for (policy, usual) in POLICIES.iter().zip(&usual) {
            for &moment in moments(policy.name) {
                let found = run(policy.name, Some((fault, moment)));
                if found.saved * 100 < usual.saved * 99 || found.longest > usual.longest * 2 {
                    let when = format!("{} at {moment} s under {}", fault.name, policy.name);
                    lost.push(format!("{when}: {found:?}, usually {usual:?}"));
                }
                times += 1;
            }
        }
        write!(table, "\n| {} | {times} | {} |", fault.name, lost.len() - before).unwrap();
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
    assert!(DOCUMENT.contains(&table), "docs/internals/reliability.md is to have this table:\n{table}");
}
