//! The outcome of giving guests back what was taken from them.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::ActuatorError;
use super::ledger::LedgerEntry;

/// The outcome for all guests in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GivenBack {
    /// A sentence for each guest that has its whole memory again.
    pub notes: Vec<String>,
    /// The other guests, which stay in the ledger.
    pub lacking: Vec<LackingGuest>,
    /// Failures to change the ledger itself.
    pub faults: Vec<String>,
}

/// A guest that still has less than its whole memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LackingGuest {
    /// The name of the guest.
    pub name: String,
    /// PID of its first process; null for a cgroup.
    pub pid: Option<u32>,
    /// A lower bound of what it has.
    pub given_bytes: u64,
    /// The memory that it was started with.
    pub whole_bytes: u64,
    /// The reason it did not get the rest, and the remedy.
    pub why: String,
}

impl LackingGuest {
    pub(super) fn from_entry(entry: &LedgerEntry, given_bytes: u64, why: String) -> Self {
        Self {
            name: entry.name.clone(),
            pid: Some(entry.process.pid).filter(|pid| *pid != 0),
            given_bytes,
            whole_bytes: entry.whole_bytes,
            why,
        }
    }

    /// Creates the record of a guest with an actuator that failed.
    pub(super) fn for_error(entry: &LedgerEntry, given_bytes: u64, error: &ActuatorError) -> Self {
        let remedy = match error {
            ActuatorError::Silent { .. } => "; see whether it is stopped, or restart it",
            ActuatorError::Unable(_) => "",
            ActuatorError::Refused { .. } | ActuatorError::Nonsense(_) | ActuatorError::Io { .. } => {
                "; if that stays so, restart it"
            }
            ActuatorError::Gone => "",
        };
        Self::from_entry(entry, given_bytes, format!("{error}{remedy}"))
    }
}

impl fmt::Display for LackingGuest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if let Some(pid) = self.pid {
            write!(f, " (pid {pid})")?;
        }
        write!(f, " has {} of its {} MiB: {}", self.given_bytes >> 20, self.whole_bytes >> 20, self.why)
    }
}

impl GivenBack {
    /// Returns the outcome in sentences, for a log.
    pub fn sentences(&self) -> Vec<String> {
        let lacking = self.lacking.iter().map(|it| format!("{it}; later: ksmith restore"));
        self.notes.iter().cloned().chain(lacking).chain(self.faults.iter().cloned()).collect()
    }
}
