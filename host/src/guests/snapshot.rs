//! What is known of the guests at one moment. A snapshot never changes, and any thread may read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ksmith_core::guest::{Guest, GuestId, Identity, group};
use ksmith_core::sample::{Process, ProcessId, Sample};

use super::{Known, List, Target, Uri};
use crate::root::Root;

/// A record that is looked for again so soon is waited for.
const AWAITED: Duration = Duration::from_secs(10);

/// What is known of the processes of a sample.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    pub(super) libvirt: Uri,
    pub(super) known: BTreeMap<ProcessId, Arc<Known>>,
}

/// The guests at one moment, with all that their hypervisors have answered by then.
#[derive(Debug, Clone, Default)]
pub struct GuestSnapshot {
    /// The time of the sample.
    pub at: Duration,
    /// The guests of the sample.
    pub list: List,
    pub(super) names: Names,
}

impl GuestSnapshot {
    /// The guests of another sample, by what is known here. A process that has started or executed another program since
    /// is a plain process of which nothing is known.
    pub fn name(&self, sample: &Sample) -> List {
        self.names.name(sample)
    }

    /// Whether this very process, with this program, is known here.
    pub fn knows(&self, process: &Process) -> bool {
        self.names.known.get(&process.id).is_some_and(|known| known.is_of(process))
    }

    /// Whether a process still runs as the user that it had when it became known. The guard of the domains asks for each
    /// guest that may merge: that costs some microseconds.
    pub fn has_its_user(&self, root: &Root, id: ProcessId) -> bool {
        self.names.known.get(&id).is_none_or(|known| known.has_its_user(root, id))
    }

    /// Whether a guest lacks the record of its manager and may get it any moment: then another look is due soon.
    pub fn awaits_a_record(&self) -> bool {
        let soon = self.at + AWAITED;
        self.names.known.values().any(|known| known.lacks_its_record() && known.record.due <= soon)
    }

    /// What is needed to switch or resize a guest.
    pub fn target(&self, guest: &Guest) -> Option<Target> {
        self.names.target(guest)
    }
}

impl Names {
    pub(super) fn identity(&self, id: &ProcessId) -> Option<&Identity> {
        Some(&self.known.get(id)?.found.as_ref()?.identity)
    }

    pub(super) fn name(&self, sample: &Sample) -> List {
        let is_other = |process: &&Process| self.known.get(&process.id).is_some_and(|known| !known.is_of(process));
        let others: BTreeSet<ProcessId> = sample.processes.iter().filter(is_other).map(|it| it.id).collect();
        let (mut guests, unattributed_bytes) =
            group(sample, |id| self.identity(id).filter(|_| !others.contains(id)));
        for guest in &mut guests {
            let id = guest.id().process();
            let Some(known) = self.known.get(&id).filter(|_| !others.contains(&id)) else { continue };
            known.add_to(guest);
        }
        List { guests, unattributed_bytes }
    }

    pub(super) fn target(&self, guest: &Guest) -> Option<Target> {
        let id = guest.id().process();
        Some(self.target_of(id, self.known.get(&id)?)?.named(&guest.name))
    }

    pub(super) fn target_of(&self, id: ProcessId, known: &Known) -> Option<Target> {
        Some(Target::new(GuestId::of(id), known.found.as_ref()?, known.managed.as_ref(), &self.libvirt))
    }
}
