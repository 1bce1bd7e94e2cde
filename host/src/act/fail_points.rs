//! Fault injection: every operation on the undo store and on KSM's settings fails once, at each point of ksmith's life.
//! Whatever was done by then, a fresh restore leaves everything as it was.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ksmith_core::knobs::{Knob, KnobSettings};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::writer::tests::fill;
use super::{
    ControlError, KnobWriter, KsmControl, KsmJournal, PausedProcess, StateDir, UnmergeOptions, restore,
    safe_sequence, unmerge,
};
use crate::root::Root;
use crate::undo::disk::DiskOperation;
use crate::undo::disk::fault::{self, DiskFault};
use crate::undo::{EntryKind, KeptEntries, UndoEntry};

/// A guest that was switched off. It is on if the tree has no file of its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SwitchedOffGuest {
    name: String,
}

impl UndoEntry for SwitchedOffGuest {
    const KIND: EntryKind = EntryKind::SwitchedOff;
}

/// A host of plain files, and ksmith's state directory on it.
struct FaultHost(TempDir);

impl FaultHost {
    fn new() -> Self {
        let tree =
            if Path::new("/dev/shm").is_dir() { tempfile::tempdir_in("/dev/shm") } else { tempfile::tempdir() };
        let host = Self(tree.unwrap());
        fill(host.0.path());
        // So that what needs everything unmerged has something to unmerge.
        host.write("pages_sharing", "5");
        host
    }

    fn root(&self) -> Root {
        Root::at(self.0.path())
    }

    fn state(&self) -> StateDir {
        StateDir::from_root(&self.root())
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join("sys/kernel/mm/ksm").join(name), format!("{text}\n")).unwrap();
    }

    fn settings(&self) -> KnobSettings {
        let writer = KnobWriter::new(&self.root(), true);
        Knob::ALL.into_iter().filter_map(|knob| Some((knob, writer.get(knob).unwrap()?))).collect()
    }

    fn guest(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn switch_off(&self, name: &str) {
        let Ok(off) = KeptEntries::open(&self.state()) else { return };
        if off.change(|all| all.push(SwitchedOffGuest { name: name.to_owned() })).is_ok() {
            fs::write(self.guest(name), "off").unwrap();
        }
    }

    fn switch_on(&self) {
        let (off, faults) = KeptEntries::<SwitchedOffGuest>::open_to_restore(&self.state());
        assert_eq!(faults, [""; 0]);
        for guest in off.entries() {
            let _ = fs::remove_file(self.guest(&guest.name));
            let _ = off.change(|all| all.retain(|known| *known != guest));
        }
    }

    /// Acts as a later `ksmith restore`. Returns its messages.
    fn restore(&self) -> Vec<String> {
        self.write("pages_sharing", "0");
        let mut journal = KsmJournal::open_to_restore(&self.state());
        assert!(journal.take_faults().is_empty(), "a damaged store");
        let mut writer = KnobWriter::new(&self.root(), false).with_journal(journal);
        let notes =
            restore(&mut writer, false).map(|restored| restored.notes).unwrap_or_else(|why| vec![why.to_string()]);
        self.switch_on();
        notes
    }

    /// Returns the differences from the state before.
    fn lost(&self, before: &KnobSettings) -> Vec<String> {
        let now = self.settings();
        let settings = before.iter().filter(|(knob, value)| now.get(*knob) != Some(*value));
        let mut lost: Vec<String> =
            settings.map(|(knob, value)| format!("{knob}: {value}, now {:?}", now.get(knob))).collect();
        lost.extend(["a", "b"].into_iter().filter(|name| self.guest(name).exists()).map(str::to_owned));
        lost.extend(self.state().undo().exists().then(|| "the store is still there".to_owned()));
        lost
    }
}

/// One run of ksmith, start to end.
type Life = fn(&FaultHost);

fn acquire_control(host: &FaultHost) -> Option<KsmControl> {
    loop {
        match KsmControl::acquire(&host.root(), &host.state(), false, false) {
            // A process that another test starts right now has a copy of the lock.
            Err(ControlError::Lock(super::LockError::Held { .. })) => std::thread::yield_now(),
            taken => return taken.ok(),
        }
    }
}

/// Acts as a daemon: changes settings again and again, pauses a program, switches guests off and on, and restores at
/// the end.
fn daemon(host: &FaultHost) {
    let Some(mut control) = acquire_control(host) else { return };
    let none = KnobSettings::none;
    let burst = none().with(Knob::SmartScan, 0).with(Knob::PagesToScan, 4000).with(Knob::SleepMillisecs, 5);
    control.writer().apply(&burst.with(Knob::Run, 1));
    host.switch_off("a");
    control.writer().apply(&none().with(Knob::PagesToScan, 50).with(Knob::Run, 0));
    control.writer().apply(&none().with(Knob::AdvisorMode, 1).with(Knob::Run, 1));
    let paused = PausedProcess { pid: 0, start_ticks: 1, what: "ksmtuned".to_owned() };
    if let Some(journal) = control.writer().journal_mut() {
        let _ = journal.note_paused(paused);
    }
    host.switch_off("b");
    control.writer().apply(&none().with(Knob::AdvisorMode, 0).with(Knob::PagesToScan, 70));
    let _ = control.restore();
    host.switch_on();
}

/// Acts as a command that unmerges and changes what needs everything unmerged. It ends with an error, and so by
/// dropping.
fn unmerging(host: &FaultHost) {
    host.write("run", "1");
    let Some(mut control) = acquire_control(host) else { return };
    let how = UnmergeOptions { force: true, ..UnmergeOptions::default() };
    let go_on = |_| ControlFlow::Continue(());
    let _ = safe_sequence(control.writer(), Knob::MaxPageSharing, 16, how, go_on);
    let _ = unmerge(control.writer(), how, go_on);
    let _ = control.writer().set(Knob::MergeAcrossNodes, 0);
    host.write("pages_sharing", "0");
}

/// Acts as a daemon that finds the entries of one that was killed.
fn after_a_killed_daemon(host: &FaultHost) {
    host.state().make().unwrap();
    let store = r#"{ "version": 1, "owner": { "pid": 0, "start_ticks": 1 }, "boot_id": null, "entries": [
        { "entry": "setting", "knob": "run", "original": "0" },
        { "entry": "setting", "knob": "sleep_millisecs", "original": "20" },
        { "entry": "switched_off", "name": "b" }] }"#;
    fs::write(host.state().undo(), store).unwrap();
    fs::write(host.guest("b"), "off").unwrap();
    host.write("run", "1");
    host.write("sleep_millisecs", "3");
    let Some(mut control) = acquire_control(host) else { return };
    control.writer().apply(&KnobSettings::none().with(Knob::SleepMillisecs, 9));
    host.switch_off("a");
}

const LIVES: [Life; 3] = [daemon, unmerging, after_a_killed_daemon];

fn before(life: Life) -> KnobSettings {
    let host = FaultHost::new();
    if std::ptr::fn_addr_eq(life, unmerging as Life) {
        host.write("run", "1");
    }
    host.settings()
}

const FAULTS: [(&str, &[DiskFault]); 7] = [
    ("SIGKILL", &[DiskFault::Kill]),
    ("ENOSPC once", &[DiskFault::Once(libc::ENOSPC)]),
    ("EROFS once", &[DiskFault::Once(libc::EROFS)]),
    ("EIO once", &[DiskFault::Once(libc::EIO)]),
    ("disk full from then on", &[DiskFault::Full]),
    ("read-only from then on", &[DiskFault::ReadOnly]),
    (
        "SIGKILL soon after the disk is full",
        &[DiskFault::KillWhenFull(1), DiskFault::KillWhenFull(2), DiskFault::KillWhenFull(4)],
    ),
];

const OPERATIONS: [(&str, DiskOperation); 8] = [
    ("create", DiskOperation::Create),
    ("write", DiskOperation::Write),
    ("sync", DiskOperation::Sync),
    ("rename", DiskOperation::Rename),
    ("sync directory", DiskOperation::SyncDirectory),
    ("remove", DiskOperation::Remove),
    ("mark", DiskOperation::Mark),
    ("setting", DiskOperation::Knob),
];

/// Injects a fault at each operation of `work` in turn, and passes the host, the operation and the result to `check`.
fn at_each_point<T>(
    fault: DiskFault,
    work: impl Fn(&FaultHost) -> T,
    mut check: impl FnMut(usize, &FaultHost, DiskOperation, T),
) {
    for at in 0.. {
        let host = FaultHost::new();
        let (result, tried) = fault::with(Some((at, fault)), || work(&host));
        let Some(operation) = tried.get(at) else { return };
        check(at, &host, *operation, result);
    }
}

#[test]
fn every_fail_point_leaves_what_a_fresh_restore_puts_right() {
    let mut table = String::from("| fault |");
    OPERATIONS.iter().for_each(|(name, _)| write!(table, " {name} |").unwrap());
    table.push_str(" lost |\n|---|");
    table.push_str(&"---|".repeat(OPERATIONS.len() + 1));
    for (name, faults) in FAULTS {
        let mut times: BTreeMap<DiskOperation, u32> = BTreeMap::new();
        let mut lost = Vec::new();
        for (life, fault) in LIVES.into_iter().flat_map(|life| faults.iter().map(move |fault| (life, *fault))) {
            let before = before(life);
            at_each_point(fault, life, |at, host, operation, ()| {
                *times.entry(operation).or_default() += 1;
                let notes = host.restore();
                let what = host.lost(&before);
                if !what.is_empty() {
                    lost.push(format!("{name} at operation {at} ({operation:?}): {what:?}; {notes:?}"));
                }
            });
        }
        write!(table, "\n| {name} |").unwrap();
        for (_, operation) in OPERATIONS {
            write!(table, " {} |", times.get(&operation).copied().unwrap_or(0)).unwrap();
        }
        write!(table, " {} |", lost.len()).unwrap();
        assert!(lost.is_empty(), "{}", lost.join("\n"));
    }
    println!("{table}");
    compare(&table);
}

/// Compares the table with docs/internals/reliability.md, or writes it there.
fn compare(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/internals/reliability.md");
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- fail points -->\n", "\n<!-- end of fail points -->");
    let (head, rest) = text.split_once(begin).unwrap();
    let (known, tail) = rest.split_once(end).unwrap();
    if std::env::var_os("KSMITH_WRITE").is_some() {
        fs::write(&path, format!("{head}{begin}{table}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(
        known, table,
        "renew docs/internals/reliability.md: KSMITH_WRITE=1 cargo test -p ksmith-host every_fail_point"
    );
}

#[test]
fn a_restore_that_is_killed_anywhere_is_finished_by_the_next() {
    for life in LIVES {
        let before = before(life);
        // Killed in the middle of its life.
        let points = fault::with(None, || life(&FaultHost::new())).1.len();
        let killed = |host: &FaultHost| fault::with(Some((points * 2 / 3, DiskFault::Kill)), || life(host));
        for at in 0.. {
            let host = FaultHost::new();
            killed(&host);
            let tried = fault::with(Some((at, DiskFault::Kill)), || host.restore()).1;
            host.restore();
            assert_eq!(host.lost(&before), [""; 0], "killed at operation {at} of restoring");
            if tried.len() <= at {
                break;
            }
        }
    }
}

#[test]
fn an_administrators_repair_after_a_kill_anywhere_is_left_alone() {
    for (knob, text, value) in [(Knob::SleepMillisecs, "77", 77), (Knob::PagesToScan, "123", 123)] {
        let before = before(daemon).with(knob, value);
        at_each_point(DiskFault::Kill, daemon, |at, host, _, ()| {
            let journal = KsmJournal::open(&host.state()).unwrap();
            let of_advisor = journal.originals().get(knob).is_some() && journal.written(knob).is_none();
            assert!(!of_advisor || knob == Knob::PagesToScan);
            host.write(knob.name(), text);
            let notes = host.restore();
            // The kernel's advisor may have changed it, so then it is not known which program did.
            if !of_advisor {
                assert_eq!(host.lost(&before), [""; 0], "killed at operation {at}: {notes:?}");
            }
        });
    }
}

#[test]
fn parking_is_possible_on_a_full_and_on_a_read_only_disk() {
    for fault in [DiskFault::Full, DiskFault::ReadOnly] {
        let host = FaultHost::new();
        let mut control = acquire_control(&host).unwrap();
        control.writer().set(Knob::Run, 1).unwrap();
        control.writer().set(Knob::SleepMillisecs, 5).unwrap();
        let (outcomes, _) = fault::with(Some((0, fault)), || {
            let mut set = |knob, value| control.writer().set(knob, value).map(|change| change.is_some());
            (set(Knob::Run, 0), set(Knob::SleepMillisecs, 7), set(Knob::SmartScan, 0))
        });
        assert!(matches!(outcomes.0, Ok(true)), "{outcomes:?}");
        // What is noted may change as long as its restoring is certain. What is not noted may not.
        assert_eq!(outcomes.1.is_ok(), fault == DiskFault::Full, "{outcomes:?}");
        let refused = outcomes.2.unwrap_err().to_string();
        assert!(refused.contains("could not be recorded for restoring"), "{refused}");
        drop(control);
        assert_eq!(host.restore(), [""; 0]);
        assert_eq!(host.lost(&FaultHost::new().settings()), [""; 0]);
    }
}
