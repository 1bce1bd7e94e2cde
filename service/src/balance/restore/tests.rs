use std::fs;

use ksmith_core::sample::ProcessId;

use super::super::ledger::OriginalCgroup;
use super::super::ledger::tests::{directory, entry};
use super::super::{ActuatorAbilities, ActuatorFigures};
use super::*;

#[test]
fn a_cgroup_that_is_gone_is_owed_nothing() {
    let (tree, directory) = directory();
    let root = Root::at(tree.path());
    let path = tree.path().join("sys/fs/cgroup/db");
    fs::create_dir_all(&path).unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
    let was = OriginalCgroup { path: "db".into(), inode, high: "max".into() };
    let no_process = ProcessId { pid: 0, start_ticks: 0 };
    let ledger = MemoryLedger::open(&directory).unwrap();
    ledger.record_entry(LedgerEntry { process: no_process, cgroup: Some(was), ..entry("c", 10) }).unwrap();
    ledger.strike_ended(&root).unwrap();
    assert_eq!(ledger.entries().len(), 1);
    fs::remove_dir(&path).unwrap();
    assert_eq!(ledger.restore(&root, false), GivenBack::default());
    assert!(ledger.entries().is_empty() && !directory.undo().exists());
}

const LONG: Duration = Duration::from_secs(600);

/// Ends in one of the ways in which a guest can.
#[derive(Debug)]
struct ScriptedActuator(Result<u64, fn() -> ActuatorError>);

impl MemoryActuator for ScriptedActuator {
    fn read_figures(&mut self) -> Result<ActuatorFigures, ActuatorError> {
        unreachable!("it is not polled")
    }
    fn resize(&mut self, _to_bytes: u64) -> Result<u64, ActuatorError> {
        self.0.map_err(|error| error())
    }
    fn abilities(&self) -> ActuatorAbilities {
        unreachable!("they are not asked for")
    }
}

#[test]
fn restoring_settles_the_guests_that_answer_and_keeps_the_rest() {
    let (_tree, directory) = directory();
    let ledger = MemoryLedger::open(&directory).unwrap();
    for key in ["well", "gone", "half", "mute"] {
        ledger.record_entry(entry(key, 10)).unwrap();
    }
    let act = |entry: &LedgerEntry| -> Result<Box<dyn MemoryActuator>, ActuatorError> {
        Ok(Box::new(ScriptedActuator(match entry.key.as_str() {
            "well" => Ok(100),
            "half" => Ok(50),
            "gone" => return Err(ActuatorError::Gone),
            _ => Err(|| ActuatorError::Nonsense("moo".into())),
        })))
    };
    let all = ledger.restore_with(true, LONG, act);
    assert_eq!((all.notes.len(), all.notes[0].as_str()), (3, "well would get its 0 MiB again"));
    assert_eq!((all.lacking.len(), ledger.entries().len()), (0, 4), "a dry run keeps all");
    let all = ledger.restore_with(false, LONG, act);
    assert_eq!(all.notes, ["well has its 0 MiB again"]);
    let lacking: Vec<_> = all.lacking.iter().map(|it| (it.name.as_str(), it.given_bytes)).collect();
    assert_eq!(lacking, [("half", 50), ("mute", 10)]);
    let said = all.lacking[1].to_string();
    assert!(said.contains("(pid 7000109) has 0 of its 0 MiB: its answer makes no sense: moo; "), "{said}");
    assert_eq!(all.sentences().len(), 3);
    let left: Vec<String> =
        MemoryLedger::open(&directory).unwrap().entries().into_iter().map(|entry| entry.key).collect();
    assert_eq!(left, ["half", "mute"]);
}

#[test]
fn a_guest_that_hangs_stays_in_the_ledger_and_holds_up_no_other() {
    let (_tree, directory) = directory();
    let ledger = MemoryLedger::open(&directory).unwrap();
    for key in ["a", "hangs", "z"] {
        ledger.record_entry(entry(key, 10)).unwrap();
    }
    let (never, hang) = crossbeam_channel::bounded::<()>(0);
    let all = ledger.restore_with(false, Duration::from_secs(3), move |entry| {
        if entry.key == "hangs" {
            let _ = hang.recv();
        }
        Ok(Box::new(ScriptedActuator(Ok(100))))
    });
    drop(never);
    assert_eq!((all.notes.len(), all.lacking.len()), (2, 1), "{all:?}");
    assert!(all.lacking[0].to_string().contains("hangs (pid 7000104)"), "{all:?}");
    assert!(all.lacking[0].why.contains("did not answer within"), "{all:?}");
    assert_eq!(MemoryLedger::open(&directory).unwrap().entries(), [entry("hangs", 10)]);
}
