//! Guests on the live host: who they are, what their hypervisors say, and the switches that they have.
//!
//! [`Guests`] names the processes of a [`Sample`] and groups them. It reads a few small files of each new process
//! once and asks nobody anything, so it never waits.

mod identities;
mod libvirt;
mod monitor;
mod patient;
mod qmp;
mod users;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use ksmith_core::guest::{Guest, Kind, NotOne, find};
use ksmith_core::guest::{Identity, group};
use ksmith_core::sample::{ProcessId, Sample};

pub use self::libvirt::{LibvirtError, Uri};
pub use self::monitor::{Backend, MonitorError, Told};
use self::users::Users;
use crate::root::Root;

/// Who the processes of samples are.
#[derive(Debug)]
pub struct Guests {
    root: Root,
    users: Users,
    known: BTreeMap<ProcessId, Known>,
}

/// A process whose files were read. Its name in the sample changes when it executes another program.
#[derive(Debug)]
struct Known {
    name: Arc<str>,
    identity: Option<Identity>,
}

/// All guests of one sample.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct List {
    /// In the order of their first processes.
    pub guests: Vec<Guest>,
    /// Saved in processes that hide their figures: with the guests' it is exactly the host's `saved_bytes`.
    pub unattributed_bytes: u64,
}

impl Guests {
    /// Knows nobody yet.
    pub fn new(root: Root) -> Self {
        Self { users: Users::new(&root), root, known: BTreeMap::new() }
    }

    /// The guests of a sample. Who is not in it any more is forgotten.
    pub fn list(&mut self, sample: &Sample) -> List {
        self.meet(sample);
        let (guests, unattributed_bytes) = group(sample, |id| self.identity(id));
        List { guests, unattributed_bytes }
    }

    /// What is known of a process.
    pub fn identity(&self, id: &ProcessId) -> Option<&Identity> {
        self.known.get(id)?.identity.as_ref()
    }

    fn meet(&mut self, sample: &Sample) {
        let mut known = std::mem::take(&mut self.known);
        for process in &sample.processes {
            let old = known.remove(&process.id).filter(|known| known.name == process.name);
            let entry = old.unwrap_or_else(|| Known {
                name: Arc::clone(&process.name),
                identity: identities::read(&self.root, process.id, &mut self.users),
            });
            self.known.insert(process.id, entry);
        }
    }
}

#[cfg(test)]
mod tests;
