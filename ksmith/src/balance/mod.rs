//! Balance on the live host: the guests' memory is looked at and resized through actuators, within a pool.
//!
//! Each guest has a thread of its own, so that one that hangs costs its own patience and nobody else's.
//!
//! What was taken is on disk before it is taken (the ledger, `balance.json` in the state directory), by the actuator
//! itself, step by step: a killed ksmith can be carried on from, and `ksmith restore` gives everything back.
//
// Between the two halves of this room (the service is built on these names):
//   ledger.rs     Ledger: Clone + Send; Ledger::open(&StateDir) -> Result<Self, LedgerError>; entries() -> Vec<Entry>;
//                 restore(&self, root, uri, dry_run) -> Vec<String>, sentences, as guests::OffList::restore
//                 Entry { key: String, name: String, kind: Kind, process: ProcessId, whole_bytes: u64, given_bytes: u64 }
//   actuators.rs  actuator(root: &Root, target: &guests::Target, key: &str, ledger: &Ledger)
//                     -> Result<Box<dyn Actuator>, ActuatorError>
//                 cgroup_actuator(root: &Root, path: &str, key: &str, ledger: &Ledger) -> the same

mod actuator;

pub use actuator::{Abilities, Actuator, ActuatorError, Look};
