use super::*;

pub(in super::super) fn directory() -> (tempfile::TempDir, StateDir) {
    let tree = tempfile::tempdir().unwrap();
    let directory = StateDir::at(tree.path().join("state"));
    (tree, directory)
}

pub(in super::super) fn entry(key: &str, given_bytes: u64) -> LedgerEntry {
    // No two are one guest.
    let process = ProcessId { pid: 7_000_000 + u32::from(key.as_bytes()[0]), start_ticks: 70 };
    LedgerEntry {
        key: key.into(),
        name: key.into(),
        kind: GuestKind::new("uml"),
        process,
        whole_bytes: 100,
        given_bytes,
        libvirt: None,
        device: None,
        cgroup: None,
    }
}

#[test]
fn what_was_taken_is_there_for_the_next_ksmith_until_it_was_given_back() {
    let (_tree, directory) = directory();
    let ledger = MemoryLedger::open(&directory).unwrap();
    ledger.record_entry(entry("a", 60)).unwrap();
    ledger.clone().record_entry(entry("a", 40)).unwrap();
    ledger.record_entry(entry("b", 90)).unwrap();
    let next = MemoryLedger::open(&directory).unwrap();
    assert_eq!(next.entries(), [entry("a", 40), entry("b", 90)]);
    let of_a = entry("a", 0).process;
    assert_eq!(next.entry("a", ProcessId { start_ticks: 71, ..of_a }), None, "another guest under that name");
    assert_eq!(next.entry("now-it-has-a-name", of_a).unwrap().given_bytes, 40, "the same under another name");
    next.record_entry(LedgerEntry { key: "now-it-has-a-name".into(), ..entry("a", 100) }).unwrap();
    assert_eq!(next.entries(), [entry("b", 90)]);
    next.strike_ended(&Root::host()).unwrap();
    assert!(!directory.undo().exists());
}

#[test]
fn a_reader_does_not_write_over_what_another_ksmith_notes() {
    let (_tree, directory) = directory();
    MemoryLedger::open(&directory).unwrap().record_entry(entry("a", 60)).unwrap();
    let looking = MemoryLedger::open_to_read(&directory).unwrap();
    MemoryLedger::open(&directory).unwrap().record_entry(entry("b", 50)).unwrap();
    // It sees that a has ended, which is no reason to forget b.
    looking.strike_ended(&Root::host()).unwrap();
    assert!(looking.entries().is_empty());
    assert_eq!(MemoryLedger::open(&directory).unwrap().entries(), [entry("a", 60), entry("b", 50)]);
}

#[test]
fn what_can_not_be_noted_is_an_error_and_changes_nothing() {
    let (tree, directory) = directory();
    let ledger = MemoryLedger::open(&directory).unwrap();
    fs::write(tree.path().join("state"), "a file where the directory should be").unwrap();
    assert!(ledger.record_entry(entry("a", 1)).is_err());
    assert!(ledger.entries().is_empty());
}

#[test]
fn a_file_that_is_no_ledger_is_an_error_that_says_what_to_do() {
    let (_tree, directory) = directory();
    directory.make().unwrap();
    fs::write(directory.undo(), "{").unwrap();
    let error = MemoryLedger::open(&directory).unwrap_err().to_string();
    assert!(error.contains("damaged") && error.contains("virsh setmem"), "{error}");
}
