use super::super::{Abilities, Look};
use super::*;

fn directory() -> (tempfile::TempDir, StateDir) {
    let tree = tempfile::tempdir().unwrap();
    let directory = StateDir::at(tree.path().join("state"));
    (tree, directory)
}

fn entry(key: &str, given_bytes: u64) -> Entry {
    // No two are one guest.
    let process = ProcessId { pid: 7_000_000 + u32::from(key.as_bytes()[0]), start_ticks: 70 };
    Entry {
        key: key.into(),
        name: key.into(),
        kind: Kind::Uml,
        process,
        whole_bytes: 100,
        given_bytes,
        cgroup: None,
    }
}

#[test]
fn what_was_taken_is_there_for_the_next_ksmith_until_it_was_given_back() {
    let (_tree, directory) = directory();
    let ledger = Ledger::open(&directory).unwrap();
    ledger.note(entry("a", 60)).unwrap();
    ledger.clone().note(entry("a", 40)).unwrap();
    ledger.note(entry("b", 90)).unwrap();
    let next = Ledger::open(&directory).unwrap();
    assert_eq!(next.entries(), [entry("a", 40), entry("b", 90)]);
    let of_a = entry("a", 0).process;
    assert_eq!(next.entry("a", ProcessId { start_ticks: 71, ..of_a }), None, "another guest under that name");
    assert_eq!(next.entry("now-it-has-a-name", of_a).unwrap().given_bytes, 40, "the same under another name");
    next.note(Entry { key: "now-it-has-a-name".into(), ..entry("a", 100) }).unwrap();
    assert_eq!(next.entries(), [entry("b", 90)]);
    next.strike_ended(&Root::host()).unwrap();
    assert!(!directory.balance().exists());
}

#[test]
fn who_only_looks_does_not_write_over_what_another_notes() {
    let (_tree, directory) = directory();
    Ledger::open(&directory).unwrap().note(entry("a", 60)).unwrap();
    let looking = Ledger::open_to_read(&directory).unwrap();
    Ledger::open(&directory).unwrap().note(entry("b", 50)).unwrap();
    // It sees that a has ended, which is no reason to forget b.
    looking.strike_ended(&Root::host()).unwrap();
    assert!(looking.entries().is_empty());
    assert_eq!(Ledger::open(&directory).unwrap().entries(), [entry("a", 60), entry("b", 50)]);
}

#[test]
fn a_cgroup_that_is_gone_is_owed_nothing() {
    let (tree, directory) = directory();
    let root = Root::at(tree.path());
    let path = tree.path().join("sys/fs/cgroup/db");
    fs::create_dir_all(&path).unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
    let was = CgroupWas { path: "db".into(), inode, high: "max".into() };
    let nobody = ProcessId { pid: 0, start_ticks: 0 };
    let ledger = Ledger::open(&directory).unwrap();
    ledger.note(Entry { process: nobody, cgroup: Some(was), ..entry("c", 10) }).unwrap();
    ledger.strike_ended(&root).unwrap();
    assert_eq!(ledger.entries().len(), 1);
    fs::remove_dir(&path).unwrap();
    assert_eq!(ledger.restore(&root, &Uri::default(), false), GivenBack::default());
    assert!(ledger.entries().is_empty() && !directory.balance().exists());
}

#[test]
fn what_can_not_be_noted_is_an_error_and_changes_nothing() {
    let (tree, directory) = directory();
    let ledger = Ledger::open(&directory).unwrap();
    fs::write(tree.path().join("state"), "a file where the directory should be").unwrap();
    assert!(ledger.note(entry("a", 1)).is_err());
    assert!(ledger.entries().is_empty());
}

#[test]
fn a_file_that_is_no_ledger_is_an_error_that_says_what_to_do() {
    let (_tree, directory) = directory();
    directory.make().unwrap();
    fs::write(directory.balance(), "[{").unwrap();
    let error = Ledger::open(&directory).unwrap_err().to_string();
    assert!(error.contains("damaged") && error.contains("virsh setmem"), "{error}");
}

/// Ends in one of the ways in which a guest can.
#[derive(Debug)]
struct Guest(Result<u64, fn() -> ActuatorError>);

impl Actuator for Guest {
    fn look(&mut self) -> Result<Look, ActuatorError> {
        unreachable!("nobody looks")
    }
    fn resize(&mut self, _to_bytes: u64) -> Result<u64, ActuatorError> {
        self.0.map_err(|error| error())
    }
    fn abilities(&self) -> Abilities {
        unreachable!("nobody asks")
    }
}

#[test]
fn restoring_settles_whom_it_can_and_keeps_the_rest() {
    let (_tree, directory) = directory();
    let ledger = Ledger::open(&directory).unwrap();
    for key in ["well", "gone", "half", "mute"] {
        ledger.note(entry(key, 10)).unwrap();
    }
    let act = |entry: &Entry| -> Result<Box<dyn Actuator>, ActuatorError> {
        Ok(Box::new(Guest(match entry.key.as_str() {
            "well" => Ok(100),
            "half" => Ok(50),
            "gone" => return Err(ActuatorError::Gone),
            _ => Err(|| ActuatorError::Nonsense("moo".into())),
        })))
    };
    let all = ledger.restore_with(true, act);
    assert_eq!((all.notes.len(), all.notes[0].as_str()), (3, "well would get its 0 MiB again"));
    assert_eq!((all.lacking.len(), ledger.entries().len()), (0, 4), "a dry run keeps all");
    let all = ledger.restore_with(false, act);
    assert_eq!(all.notes, ["well has its 0 MiB again"]);
    let lacking: Vec<_> = all.lacking.iter().map(|it| (it.name.as_str(), it.given_bytes)).collect();
    assert_eq!(lacking, [("half", 50), ("mute", 10)]);
    let said = all.lacking[1].to_string();
    assert!(said.contains("(pid 7000109) has 0 of its 0 MiB: its answer makes no sense: moo; "), "{said}");
    assert_eq!(all.sentences().len(), 3);
    let left: Vec<String> =
        Ledger::open(&directory).unwrap().entries().into_iter().map(|entry| entry.key).collect();
    assert_eq!(left, ["half", "mute"]);
}
