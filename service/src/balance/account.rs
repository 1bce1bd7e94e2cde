//! One guest's entry in the ledger, as its actuator keeps it.

use std::io;

use ksmith_core::guest::GuestKind;
use ksmith_core::sample::ProcessId;

use super::ActuatorError;
use super::ledger::{LedgerDevice, LedgerEntry, MemoryLedger, OriginalCgroup};
use ksmith_host::guests::GuestTarget;
use ksmith_host::undo::UndoError;

/// The memory of an actuator's guest, in step with its ledger entry.
#[derive(Debug)]
pub(super) struct LedgerAccount {
    ledger: MemoryLedger,
    entry: LedgerEntry,
}

impl LedgerAccount {
    /// Opens the account of a guest: the ledger's entry, or one with all memory given.
    pub(super) fn open(
        ledger: &MemoryLedger,
        key: &str,
        name: &str,
        kind: GuestKind,
        process: ProcessId,
        whole_bytes: u64,
    ) -> Self {
        let fresh = LedgerEntry {
            key: key.to_owned(),
            name: name.to_owned(),
            kind,
            process,
            whole_bytes,
            given_bytes: whole_bytes,
            libvirt: None,
            device: None,
            cgroup: None,
        };
        let entry =
            ledger.entry(key, process).filter(|entry| entry.given_bytes <= entry.whole_bytes).unwrap_or(fresh);
        Self { ledger: ledger.clone(), entry }
    }

    /// Opens the account of a hypervisor's guest, with the libvirt that may manage it.
    pub(super) fn of_guest(ledger: &MemoryLedger, key: &str, target: &GuestTarget, whole_bytes: u64) -> Self {
        let process = target.id.process();
        let mut account = Self::open(ledger, key, &target.name, target.identity.kind, process, whole_bytes);
        account.entry.libvirt = Some(target.libvirt().clone());
        account
    }

    /// Sets the device that the next entry names.
    pub(super) fn set_device(&mut self, device: LedgerDevice) {
        self.entry.device = Some(device);
    }

    /// Returns the memory that the guest was started with.
    pub(super) fn whole(&self) -> u64 {
        self.entry.whole_bytes
    }

    /// Returns a lower bound of the guest's memory.
    pub(super) fn given(&self) -> u64 {
        self.entry.given_bytes
    }

    /// Returns the cgroup's state before the first take.
    pub(super) fn cgroup(&self) -> Option<&OriginalCgroup> {
        self.entry.cgroup.as_ref()
    }

    /// Records the guest's memory: before a take, and after a give.
    pub(super) fn record_given(&mut self, given_bytes: u64) -> Result<(), ActuatorError> {
        self.entry.given_bytes = given_bytes.min(self.entry.whole_bytes);
        self.ledger.record_entry(self.entry.clone()).map_err(unusable)
    }

    /// Records the cgroup's state before the first take, and its memory. `None` settles the account.
    pub(super) fn record_cgroup(
        &mut self,
        was: Option<OriginalCgroup>,
        given_bytes: u64,
    ) -> Result<(), ActuatorError> {
        self.entry.cgroup = was;
        self.record_given(given_bytes)
    }
}

fn unusable(error: UndoError) -> ActuatorError {
    ActuatorError::Io { what: "nothing was taken".to_owned(), source: io::Error::other(error) }
}
