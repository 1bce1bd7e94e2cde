//! One guest's line in the ledger, as its actuator keeps it.

use std::io;

use ksmith_core::guest::Kind;
use ksmith_core::sample::ProcessId;

use super::ledger::{CgroupWas, Entry, Ledger};
use super::{ActuatorError, LedgerError};

/// What an actuator knows of its guest's memory, always as the ledger has it.
#[derive(Debug)]
pub(super) struct Account {
    ledger: Ledger,
    entry: Entry,
}

impl Account {
    /// The account of a guest: as the ledger has it, or with everything given.
    pub(super) fn open(
        ledger: &Ledger,
        key: &str,
        name: &str,
        kind: Kind,
        process: ProcessId,
        whole_bytes: u64,
    ) -> Self {
        let fresh = Entry {
            key: key.to_owned(),
            name: name.to_owned(),
            kind,
            process,
            whole_bytes,
            given_bytes: whole_bytes,
            cgroup: None,
        };
        let entry =
            ledger.entry(key, process).filter(|entry| entry.given_bytes <= entry.whole_bytes).unwrap_or(fresh);
        Self { ledger: ledger.clone(), entry }
    }

    /// What the guest was started with.
    pub(super) fn whole(&self) -> u64 {
        self.entry.whole_bytes
    }

    /// What the guest has at least.
    pub(super) fn given(&self) -> u64 {
        self.entry.given_bytes
    }

    /// The cgroup as it was.
    pub(super) fn cgroup(&self) -> Option<&CgroupWas> {
        self.entry.cgroup.as_ref()
    }

    /// Notes what the guest has: before a take, after a give.
    pub(super) fn note(&mut self, given_bytes: u64) -> Result<(), ActuatorError> {
        self.entry.given_bytes = given_bytes.min(self.entry.whole_bytes);
        self.ledger.note(self.entry.clone()).map_err(unusable)
    }

    /// Notes how the cgroup was, once, and what it is allowed now; `None` settles the account.
    pub(super) fn note_cgroup(&mut self, was: Option<CgroupWas>, given_bytes: u64) -> Result<(), ActuatorError> {
        self.entry.cgroup = was;
        self.note(given_bytes)
    }
}

fn unusable(error: LedgerError) -> ActuatorError {
    ActuatorError::Io { what: "nothing was taken".to_owned(), source: io::Error::other(error) }
}
