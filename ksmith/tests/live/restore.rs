//! `ksmith restore` names the guests that lack memory still, and ends with 1.

use std::process::{Child, Command};

use crate::support::program::ksmith;
use crate::support::{KernelLock, process_id};
use ksmith_core::sample::ProcessId;
use ksmith_host::act::StateDir;
use ksmith_host::guests::GuestKind;
use ksmith_host::root::Root;
use ksmith_service::balance::{LedgerEntry, MemoryLedger};
use serde_json::Value;

/// A process that is no guest, and so can't be given anything. Ended on drop.
struct SleepingProcess(Child);

impl SleepingProcess {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn id(&self) -> ProcessId {
        process_id(self.0.id())
    }
}

impl Drop for SleepingProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ledger() -> MemoryLedger {
    MemoryLedger::open(&StateDir::from_root(&Root::host())).unwrap()
}

#[test]
fn a_guest_that_still_lacks_memory_is_named_with_what_to_do() {
    let Some(lock) = KernelLock::acquire() else { return };
    assert_eq!(ksmith(&["restore"]).0, 0);
    let mute = SleepingProcess::start();
    let entry = LedgerEntry {
        key: "mute".to_owned(),
        name: "mute".to_owned(),
        kind: GuestKind::new("uml"),
        process: mute.id(),
        whole_bytes: 128 << 20,
        given_bytes: 64 << 20,
        libvirt: None,
        device: None,
        cgroup: None,
    };
    ledger().record_entry(entry.clone()).unwrap();

    assert_eq!(ksmith(&["restore", "--dry-run"]).0, 1, "it is known beforehand that it can't be done");
    let (code, out, err) = ksmith(&["restore"]);
    assert_eq!(code, 1, "{out}{err}");
    let lacking = format!("mute (pid {}) has 64 of its 128 MiB", mute.id().pid);
    assert!(err.contains("not everything was restored") && err.contains(&lacking), "{err}");
    assert!(err.contains("run `ksmith restore` again"), "{err}");
    let (code, out, _) = ksmith(&["restore", "--json"]);
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 1, "{out}");
    assert_eq!(
        (&said["lacking"][0]["name"], &said["lacking"][0]["given_bytes"]),
        (&"mute".into(), &entry.given_bytes.into())
    );
    assert_eq!(ledger().entries(), [entry], "it stays noted");

    // An ended guest lacks nothing.
    drop(mute);
    let (code, out, err) = ksmith(&["restore"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(ledger().entries().is_empty());
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}
