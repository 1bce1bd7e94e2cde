use std::time::Duration;

use ksmith_core::kernel::PidStat;
use ksmith_core::knobs::Knob;
use ksmith_core::other_controllers::row;
use ksmith_core::sample::{GivenUp, GivenUpList, ProcessId};
use ksmith_core::sim::GuestPlan;
use ksmith_host::guests::OffList;
use ksmith_host::other_controllers::ControllerProcess;
use ksmith_host::root::Root;
use ksmith_host::undo::{EntryKind, StateDir, UndoStore};

use super::HELD;
use crate::balance::{HoldList, MemoryLedger};
use crate::daemon::stretch_wait;
use crate::testing::DaemonScene;

#[test]
fn another_programs_write_is_set_back_and_its_writer_named_once_a_minute() {
    let mut scene = DaemonScene::new(HELD);
    let id = ProcessId { pid: 812, start_ticks: 1 };
    scene.world().holders.push(ControllerProcess { controller: row("ksmtuned").unwrap(), id, profile: None });
    for second in [15, 25, 95] {
        scene.at(second, |world| {
            assert_eq!(world.knob(Knob::PagesToScan), 321, "it was set back");
            world.machine.write(Knob::PagesToScan, 77).unwrap();
        });
    }
    scene.at(120, |world| assert_eq!(world.knob(Knob::PagesToScan), 321));
    let outcome = scene.run().unwrap();
    let warning = "another program changed a setting: pages_to_scan 321 -> 77; setting it back; \
                   it may be ksmtuned (pid 812): systemctl disable --now ksmtuned";
    assert_eq!(outcome.count(warning), 2, "{}", outcome.log);
    assert_eq!(outcome.restored, ["restored pages_to_scan 321 -> 100"]);
}

#[test]
fn an_unknown_writer_is_warned_of_too() {
    let mut scene = DaemonScene::new(HELD);
    scene.at(15, |world| world.machine.write(Knob::PagesToScan, 77).unwrap());
    scene.at(30, |_| {});
    let log = scene.run().unwrap().log;
    assert!(log.contains("no program that is known to control KSM runs here"), "{log}");
}

#[test]
fn the_service_manager_is_told() {
    let mut scene = DaemonScene::new(HELD);
    scene.watchdog(Duration::from_millis(900));
    scene.at(0, |world| {
        assert_eq!(world.told.iter().filter(|line| *line == "READY=1").count(), 1);
        assert_eq!(world.knob(Knob::PagesToScan), 321, "ready when in charge");
    });
    scene.at(9, |world| {
        let signs = world.told.iter().filter(|line| *line == "WATCHDOG=1").count();
        assert!((27..=32).contains(&signs), "{signs} signs of life in nine seconds");
        world.told.clear();
    });
    scene.reload_at(10, HELD);
    scene.run().unwrap();
    let world = scene.world();
    let states: Vec<&String> =
        world.told.iter().filter(|line| *line != "WATCHDOG=1" && !line.starts_with("STATUS=")).collect();
    assert_eq!(states, ["RELOADING=1", "READY=1", "STOPPING=1"]);
}

#[test]
fn the_newest_reason_is_the_units_status() {
    let mut scene = DaemonScene::new(HELD);
    scene.at(60, |_| {});
    scene.run().unwrap();
    let world = scene.world();
    let mut states: Vec<&String> = world.told.iter().filter(|line| line.starts_with("STATUS=")).collect();
    assert!(states.len() >= 2, "{states:?}");
    states.dedup();
    let count = world.told.iter().filter(|line| line.starts_with("STATUS=")).count();
    assert_eq!(states.len(), count, "the same sentence is not repeated");
}

#[test]
fn a_clock_that_is_set_forward_and_back_changes_no_turn_and_no_scan() {
    const YEAR: i64 = 31_536_000_000;
    let run = |clock: [i64; 3]| {
        let mut scene = DaemonScene::new("");
        let guest = |name: &str| GuestPlan::new(name).equal(1, 4096).zero(512);
        scene.world().machine.start(guest("first"));
        for (second, set_by) in [1, 45, 75].into_iter().zip(clock) {
            scene.at(second, move |world| world.clock_set_by = set_by);
        }
        scene.at(60, move |world| {
            world.machine.start(guest("clone"));
            world.is_urgent = true;
        });
        scene.send_at(61, super::super::DaemonMessage::Processes(Vec::new()));
        scene.at(120, |_| {});
        let outcome = scene.run().unwrap();
        let world = scene.world();
        (world.turns.clone(), world.machine.sample(), outcome.restored)
    };
    let undisturbed = run([0; 3]);
    assert!(undisturbed.0.len() > 5 && undisturbed.1.ksm.saved_pages() >= 4096, "{:?}", undisturbed.1.ksm);
    assert_eq!(run([YEAR, -YEAR, 0]), undisturbed);
    assert_eq!(run([-YEAR, YEAR, -YEAR]), undisturbed);
}

#[test]
fn a_late_clone_is_merged_without_a_request() {
    let mut scene = DaemonScene::new("");
    let guest = |name: &str| GuestPlan::new(name).equal(1, 4096).zero(512);
    scene.world().machine.start(guest("first"));
    scene.at(60, move |world| {
        assert_eq!(world.knob(Knob::Run), 0, "parked");
        world.machine.start(guest("clone"));
        world.is_urgent = true;
    });
    scene.send_at(61, super::super::DaemonMessage::Processes(Vec::new()));
    scene.at(120, |world| {
        assert!(world.machine.truly_saved_pages() >= 4096, "{}", world.machine.truly_saved_pages());
        assert_eq!(world.knob(Knob::Run), 0, "parked again");
    });
    let outcome = scene.run().unwrap();
    // What matters to an operator is in the log without being asked for, with its reason.
    for change in ["run 0 -> 1 (burst: ", "smart_scan 1 -> 0 (burst: ", "run 1 -> 0 (parked: "] {
        let change = &format!("INFO ksmith_service::daemon::log: {change}");
        assert!(outcome.log.contains(change), "{change}: {}", outcome.log);
    }
    assert_eq!(scene.world().machine.sample().ksm.run.get(), Some(0));
}

#[test]
fn what_moves_with_the_load_is_logged_at_a_lower_level() {
    let mut scene = DaemonScene::new(HELD);
    scene.at(1, |_| {});
    let log = scene.run().unwrap().log;
    let line = log.lines().find(|line| line.contains("pages_to_scan 100 -> 321")).unwrap();
    assert!(line.contains("DEBUG"), "{line}");
}

#[test]
fn an_error_that_persists_is_logged_once() {
    let mut scene = DaemonScene::new(HELD);
    scene.world().refuses = Some(Knob::PagesToScan);
    scene.at(60, |_| {});
    let outcome = scene.run().unwrap();
    assert_eq!(outcome.count("pages_to_scan is refused"), 1, "{}", outcome.log);
    assert!(scene.world().turns.len() > 3);
}

#[test]
fn a_process_that_is_given_up_is_named_once() {
    let mut scene = DaemonScene::new(HELD);
    let silent = |pid: u32| GivenUp::new(pid, "evil".into(), "ksm_stat does not answer");
    scene.at(1, move |world| world.given_up.add(true, || silent(7)));
    scene.at(30, move |world| world.given_up.add(true, || silent(8)));
    scene.at(60, |world| world.given_up = GivenUpList::default());
    scene.at(90, move |world| world.given_up.add(true, || silent(7)));
    scene.at(120, |_| {});
    let outcome = scene.run().unwrap();
    let count = |pid: u32| outcome.count(&format!("evil (pid {pid}) is given up: ksm_stat does not answer"));
    assert_eq!((count(7), count(8)), (2, 1), "{}", outcome.log);
}

#[test]
fn however_many_are_given_up_the_log_stays_short() {
    let mut scene = DaemonScene::new(HELD);
    for second in 1..300 {
        scene.at(second, move |world| {
            world.given_up = GivenUpList::default();
            for pid in 0..500 {
                let why = "ksm_stat does not answer".to_owned();
                world.given_up.add(true, || GivenUp::new(pid + second as u32 * 500, "evil".into(), why));
            }
        });
    }
    let outcome = scene.run().unwrap();
    assert!(outcome.count("is given up") <= 31 * GivenUpList::NAMED, "{}", outcome.count("is given up"));
    assert!(outcome.count("484 more processes are given up") > 3);
}

#[test]
fn ksmd_is_prepared_before_the_first_turn() {
    let mut scene = DaemonScene::new(HELD);
    let text =
        scene.complete(HELD).replace("[daemon]\n", "[daemon]\nksmd_cpus = \"0-1\"\nmerge_across_nodes = false\n");
    std::fs::write(scene.config_file(), text).unwrap();
    scene.at(1, |_| {});
    let outcome = scene.run().unwrap();
    assert_eq!(scene.world().ksmd_cpus.as_deref(), Some("0-1"));
    assert!(outcome.log.contains("merge_across_nodes 1 -> 0 (configured)"), "{}", outcome.log);
    assert!(outcome.restored.contains(&"restored merge_across_nodes 0 -> 1".to_owned()), "{:?}", outcome.restored);
}

#[test]
fn a_daemon_whose_state_directory_was_removed_restores_the_settings_and_ends_with_an_error() {
    let mut scene = DaemonScene::new(HELD);
    scene.at(15, |world| world.is_state_lost = true);
    scene.at(60, |_| panic!("it takes no more turns"));
    let outcome = scene.run().unwrap();
    assert!(outcome.lost.is_some());
    assert_eq!(outcome.restored, ["restored pages_to_scan 321 -> 100"]);
    assert_eq!(outcome.count("a second ksmith could start beside this one"), 1, "{}", outcome.log);
}

/// Returns the identity of this process.
fn own_id() -> ProcessId {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    ProcessId { pid: std::process::id(), start_ticks: PidStat::parse(&text).unwrap().start_ticks }
}

/// Writes an undo store with these entries.
fn write_entries(directory: &StateDir, entries: &serde_json::Value) {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let store = serde_json::json!({ "version": 1, "owner": own_id(), "boot_id": boot.trim(), "entries": entries });
    directory.make().unwrap();
    std::fs::write(directory.undo(), store.to_string()).unwrap();
}

#[test]
fn each_kind_of_entry_about_guests_is_written_anew_into_a_directory_that_was_removed() {
    let tree = tempfile::tempdir().unwrap();
    let directory = StateDir::at(tree.path().join("state"));
    let entries = serde_json::json!([
        { "entry": "switched_off", "process": own_id(), "name": "web", "why": "prune", "libvirt": "qemu:///system" },
        { "entry": "guest_memory", "key": "web", "name": "web", "kind": "uml", "process": own_id(),
          "whole_bytes": 100, "given_bytes": 60 },
        { "entry": "held", "guest": "web" },
    ]);
    write_entries(&directory, &entries);
    let off = OffList::open(&directory).unwrap();
    let (ledger, holds) = (MemoryLedger::open(&directory).unwrap(), HoldList::open(&directory).unwrap());
    std::fs::remove_dir_all(directory.path()).unwrap();
    off.write_anew().unwrap();
    ledger.write_anew().unwrap();
    holds.write_anew().unwrap();
    let entries = UndoStore::new(&directory).read().unwrap();
    let count = [EntryKind::SwitchedOff, EntryKind::GuestMemory, EntryKind::Held].map(|kind| entries.count(kind));
    assert_eq!(count, [1, 1, 1]);
}

#[test]
fn a_daemon_whose_state_directory_was_removed_writes_its_entries_about_guests_anew() {
    let mut scene = DaemonScene::new(HELD);
    let directory = StateDir::from_root(&Root::at(scene.root()));
    write_entries(&directory, &serde_json::json!([{ "entry": "held", "guest": "web" }]));
    let removed = directory.clone();
    scene.at(15, move |world| {
        std::fs::remove_file(removed.undo()).unwrap();
        world.is_state_lost = true;
    });
    scene.at(60, |_| panic!("it takes no more turns"));
    let outcome = scene.run().unwrap();
    assert_eq!(UndoStore::new(&directory).read().unwrap().count(EntryKind::Held), 1, "{}", outcome.log);
}

#[test]
fn turns_take_a_tenth_of_a_cpu_at_most_while_ksmd_stands() {
    let ms = Duration::from_millis;
    let longest = Duration::from_secs(10);
    assert_eq!(stretch_wait(ms(100), ms(1), longest), ms(100), "a cheap turn changes nothing");
    assert_eq!(stretch_wait(ms(100), ms(60), longest), ms(540));
    assert_eq!(stretch_wait(ms(100), Duration::from_secs(2), longest), longest, "figures are no older than that");
}

#[test]
fn processes_that_may_merge_at_each_second_look_write_so_many_lines_and_no_more() {
    let mut scene = DaemonScene::new(&format!("{HELD}[domains]\nmode = \"one\"\nadmit = \"a\"\n"));
    for second in 1..2000 {
        scene.at(second, move |world| world.hidden_processes = second % 2);
    }
    let outcome = scene.run().unwrap();
    let count = |sentence: &str| outcome.log.lines().filter(|line| line.contains(sentence)).count();
    let told = |sentence: &str| {
        outcome.log.lines().filter(|line| line.contains(" INFO ") && line.contains(sentence)).count()
    };
    let parked = "process hides whether it may merge";
    assert!(count(&format!("ksmd is kept parked: 1 {parked}")) > 500, "it was so");
    assert!((120..=330).contains(&told("ksmd is kept parked")), "{}", told("ksmd is kept parked"));
    assert!(told("") < 2000, "{} lines", told(""));
    assert!(told("were logged at level DEBUG only") > 0);
}
