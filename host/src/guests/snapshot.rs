//! An immutable snapshot of the guests, which any thread may read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ksmith_core::guest::{Guest, GuestId, ProcessIdentity, group};
use ksmith_core::sample::{ProcessId, ProcessSample, Sample};

use super::{GuestList, GuestTarget, LibvirtUri, TrackedProcess};
use crate::root::Root;

/// Longest wait until the next search for a record that still counts as imminent.
const AWAITED: Duration = Duration::from_secs(10);

/// The known processes of a sample, by identity.
#[derive(Debug, Clone, Default)]
pub(super) struct ProcessCatalog {
    pub(super) libvirt: LibvirtUri,
    pub(super) known: BTreeMap<ProcessId, Arc<TrackedProcess>>,
}

/// The guests at one moment, with the replies of their hypervisors up to then.
#[derive(Debug, Clone, Default)]
pub struct GuestSnapshot {
    /// The time of the sample.
    pub at: Duration,
    /// The guests of the sample.
    pub list: GuestList,
    pub(super) names: ProcessCatalog,
}

impl GuestSnapshot {
    /// Returns the guests of another sample, named from this snapshot. A process that has started or executed another
    /// program since counts as a plain, unknown process.
    pub fn name(&self, sample: &Sample) -> GuestList {
        self.names.name(sample)
    }

    /// Returns true if this process, with this program, is known here.
    pub fn knows(&self, process: &ProcessSample) -> bool {
        self.names.known.get(&process.id).is_some_and(|known| known.is_of(process))
    }

    /// Returns true if a process still runs as the user that it had when it became known. The guard of the domains
    /// calls this for each guest that may merge: a call costs some microseconds.
    pub fn has_its_user(&self, root: &Root, id: ProcessId) -> bool {
        self.names.known.get(&id).is_none_or(|known| known.has_its_user(root, id))
    }

    /// Returns true if a process was moved to another cgroup since it became known. A call costs some microseconds.
    pub fn was_moved(&self, root: &Root, id: ProcessId) -> bool {
        self.names.known.get(&id).is_some_and(|known| known.was_moved(root, id))
    }

    /// Returns true if a guest lacks its manager's record and the next search is imminent: then another sample is due
    /// soon.
    pub fn awaits_a_record(&self) -> bool {
        let soon = self.at + AWAITED;
        self.names.known.values().any(|known| known.lacks_its_record() && known.record.due <= soon)
    }

    /// Returns the target to switch or resize a guest, if its process is known.
    pub fn target(&self, guest: &Guest) -> Option<GuestTarget> {
        self.names.target(guest)
    }
}

impl ProcessCatalog {
    pub(super) fn identity(&self, id: &ProcessId) -> Option<&ProcessIdentity> {
        Some(&self.known.get(id)?.found.as_ref()?.identity)
    }

    pub(super) fn name(&self, sample: &Sample) -> GuestList {
        let is_other =
            |process: &&ProcessSample| self.known.get(&process.id).is_some_and(|known| !known.is_of(process));
        let others: BTreeSet<ProcessId> = sample.processes.iter().filter(is_other).map(|it| it.id).collect();
        let (mut guests, unattributed_bytes) =
            group(sample, |id| self.identity(id).filter(|_| !others.contains(id)));
        for guest in &mut guests {
            let id = guest.id().process();
            let Some(known) = self.known.get(&id).filter(|_| !others.contains(&id)) else { continue };
            known.add_to(guest);
        }
        GuestList { guests, unattributed_bytes }
    }

    pub(super) fn target(&self, guest: &Guest) -> Option<GuestTarget> {
        let id = guest.id().process();
        Some(self.target_of(id, self.known.get(&id)?)?.named(&guest.name))
    }

    pub(super) fn target_of(&self, id: ProcessId, known: &TrackedProcess) -> Option<GuestTarget> {
        Some(GuestTarget::new(GuestId::new(id), known.found.as_ref()?, known.managed.as_ref(), &self.libvirt))
    }
}
