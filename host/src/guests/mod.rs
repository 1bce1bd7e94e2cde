//! Guests on the live host: their names and the replies of their hypervisors.
//!
//! [`GuestTracker`] names the processes of a [`Sample`] and groups them. It reads a few small files of each new process once.
//! Worker threads query the hypervisors. Replies are collected when they have arrived, so naming never waits.

mod identities;
mod journal;
mod mapped;
mod memory;
mod prober;
mod requests;
mod snapshot;
mod twins;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use ksmith_core::guest::{FindGuestError, Guest, GuestId, GuestKind, find};
use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessId, ProcessSample, Sample};

pub use self::journal::{OffList, SwitchedOff};
pub use self::memory::{merged_now, read_memory};
use self::prober::GuestProber;
pub use self::requests::GuestRequests;
pub use self::snapshot::GuestSnapshot;
use self::snapshot::ProcessCatalog;
pub use crate::hypervisor::{
    BadUri, GuestTarget, LibvirtError, LibvirtUri, Mconsole, MconsoleError, MonitorError, QmpMonitor, SwitchError,
    SwitchedBackend, total_memory,
};
use crate::hypervisor::{CgroupPath, HypervisorReply, ManagerRecord, RecognisedProcess};
pub use crate::process::{has_ended, is_alive};
use crate::root::Root;
use crate::users::UserNames;

/// Upper bound of the threads: those that query hypervisors, and the one that queries the name service.
pub const MOST_THREADS: usize = prober::LIMITS.threads + 1;

/// Bounds of the back-off after which a hypervisor that failed is queried again.
const FIRST_RETRY: Duration = Duration::from_secs(10);
const LAST_RETRY: Duration = Duration::from_secs(600);

/// First delay of the back-off for a record that was missing when its guest started.
const FIRST_RECORD: Duration = Duration::from_secs(1);

/// Interval between queries to a hypervisor that answers: others may switch its guest.
const ROUND: Duration = Duration::from_secs(30);

/// The registry of processes and guests, updated with each sample.
#[derive(Debug)]
pub struct GuestTracker {
    root: Root,
    users: UserNames,
    names: ProcessCatalog,
    prober: Option<GuestProber>,
}

/// A process with the identity read from its files. Its name in the sample changes when it executes another program.
#[derive(Debug, Clone)]
struct TrackedProcess {
    name: Arc<str>,
    found: Option<RecognisedProcess>,
    /// The record of its manager, and the back-off of the search for one.
    managed: Option<ManagerRecord>,
    record: RetryBackoff,
    answer: HypervisorReply,
    /// Time of the next query to its hypervisor, and the delay after that.
    due: Duration,
    pause: Duration,
    question: QueryState,
}

/// An exponential back-off: the time of the next try, and the delay after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RetryBackoff {
    due: Duration,
    pause: Duration,
}

impl RetryBackoff {
    fn after_a_failure(self, now: Duration) -> Self {
        Self { due: now + self.pause, pause: (self.pause * 2).min(LAST_RETRY) }
    }
}

/// The state of the query to a guest's hypervisor. There is one at a time: an older reply might arrive last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueryState {
    None,
    UnderWay,
    /// Pending since before its switch was thrown: the reply is ignored.
    Outdated,
}

/// All guests of one sample.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestList {
    /// The guests, in the order of their first processes.
    pub guests: Vec<Guest>,
    /// Savings of processes with unreadable figures: with the guests' savings they sum up to the host's `saved_bytes`.
    pub unattributed_bytes: u64,
}

impl GuestTracker {
    /// Creates an empty registry.
    pub fn new(root: Root, libvirt: LibvirtUri) -> Self {
        let names = ProcessCatalog { libvirt, known: BTreeMap::new() };
        Self { users: UserNames::new(&root), root, names, prober: None }
    }

    /// Returns the guests of a sample, with the last replies of their hypervisors. Queries that are due start in the
    /// background. Processes that are not in the sample are dropped.
    pub fn list(&mut self, sample: &Sample) -> GuestList {
        while let Some((id, answer)) = self.prober.as_mut().and_then(GuestProber::take_outcome) {
            self.record_reply(id, answer);
        }
        self.update_processes(sample);
        self.ask_due(sample.at);
        self.names.name(sample)
    }

    /// Returns the same as a snapshot, which also names later samples.
    pub fn snapshot(&mut self, sample: &Sample) -> GuestSnapshot {
        let list = self.list(sample);
        GuestSnapshot { at: sample.at, list, names: self.names.clone() }
    }

    /// Returns the guests of a sample from their files alone, without a query to a hypervisor.
    pub fn list_unasked(&mut self, sample: &Sample) -> GuestList {
        self.update_processes(sample);
        self.names.name(sample)
    }

    /// Returns the same as [`list`](Self::list), but waits until all hypervisors have replied, or for `patience`.
    pub fn list_within(&mut self, sample: &Sample, patience: Duration) -> GuestList {
        self.list(sample);
        let deadline = Instant::now() + patience;
        loop {
            match self.prober.as_mut().and_then(|prober| prober.await_outcome(deadline)) {
                Some((id, answer)) => self.record_reply(id, answer),
                None => return self.names.name(sample),
            }
        }
    }

    /// Returns the target to switch a guest, if its process is known.
    pub fn target(&self, guest: &Guest) -> Option<GuestTarget> {
        self.names.target(guest)
    }

    /// Returns the target to switch a guest that may be in no sample; `None` if it has ended, or can't be read.
    pub fn target_by_id(&self, id: GuestId) -> Option<GuestTarget> {
        let id = id.process();
        self.names.target_of(id, &self.read(id, &Arc::from(""), Duration::ZERO))
    }

    /// Discards the last reply of a guest's monitor after its switch was thrown.
    pub fn ask_again(&mut self, id: GuestId) {
        if let Some(known) = self.known_mut(id.process()) {
            known.answer.told = None;
            known.ask_anew();
        }
    }

    /// Applies a switch to the last reply of a guest, by the PID of its first process. Its hypervisor is queried again
    /// all the same. Returns the guest's identity, if the process is known.
    pub fn was_switched(&mut self, pid: u32, on: bool) -> Option<GuestId> {
        let id = *self.names.known.keys().find(|id| id.pid == pid)?;
        let known = self.known_mut(id)?;
        for backend in known.answer.told.iter_mut().flat_map(|told| &mut told.backends) {
            backend.merge = on;
        }
        known.ask_anew();
        Some(GuestId::new(id))
    }

    fn update_processes(&mut self, sample: &Sample) {
        for (uid, name) in self.users.late() {
            let number = uid.to_string();
            for known in self.names.known.values_mut() {
                let user =
                    |known: &TrackedProcess| known.found.as_ref().and_then(|found| found.identity.user.clone());
                if user(known).as_ref() == Some(&number)
                    && let Some(found) = Arc::make_mut(known).found.as_mut()
                {
                    found.identity.user = Some(name.clone());
                }
            }
        }
        let mut known = std::mem::take(&mut self.names.known);
        for process in &sample.processes {
            let is_same = |known: &Arc<TrackedProcess>| {
                known.is_of(process)
                    && known.has_its_user(&self.root, process.id)
                    && !known.was_moved(&self.root, process.id)
            };
            let old = known.remove(&process.id).filter(is_same);
            let mut entry = old.unwrap_or_else(|| Arc::new(self.read(process.id, &process.name, sample.at)));
            if entry.lacks_its_record() && entry.record.due <= sample.at {
                self.look_up(process.id, Arc::make_mut(&mut entry), sample.at);
            }
            self.names.known.insert(process.id, entry);
        }
    }

    /// Looks up the manager's record of a process, which verifies its name.
    fn look_up(&self, id: ProcessId, known: &mut TrackedProcess, now: Duration) {
        let Some(found) = &mut known.found else { return };
        known.managed = found.hypervisor.record(&self.root, &self.names.libvirt, &found.identity.name, id.pid);
        match &known.managed {
            Some(managed) => {
                found.identity.is_verified = true;
                found.identity.uuid.clone_from(&managed.uuid);
            }
            None => known.record = known.record.after_a_failure(now),
        }
    }

    fn known_mut(&mut self, id: ProcessId) -> Option<&mut TrackedProcess> {
        self.names.known.get_mut(&id).map(Arc::make_mut)
    }

    fn read(&self, id: ProcessId, name: &Arc<str>, now: Duration) -> TrackedProcess {
        let mut known = TrackedProcess {
            name: Arc::clone(name),
            found: identities::read(&self.root, id, &self.users),
            managed: None,
            record: RetryBackoff { due: now, pause: FIRST_RECORD },
            answer: HypervisorReply::default(),
            due: now,
            pause: FIRST_RETRY,
            question: QueryState::None,
        };
        if known.lacks_its_record() {
            self.look_up(id, &mut known, now);
        }
        known
    }

    /// Starts the queries that are due. A captured tree has no hypervisors to query.
    fn ask_due(&mut self, now: Duration) {
        if !self.root.is_host() {
            return;
        }
        let due: Vec<GuestTarget> = self
            .names
            .known
            .iter()
            .filter(|(_, known)| known.due <= now && known.question == QueryState::None)
            .filter_map(|(id, known)| self.names.target_of(*id, known))
            .filter(GuestTarget::can_be_asked)
            .collect();
        for target in due {
            let id = target.id.process();
            let prober =
                self.prober.get_or_insert_with(|| GuestProber::new(&self.root, "guest-probe", prober::LIMITS));
            if prober.queue(target, prober::query)
                && let Some(known) = self.known_mut(id)
            {
                known.due = now + known.pause;
                known.question = QueryState::UnderWay;
            }
        }
    }

    fn record_reply(&mut self, id: GuestId, answer: HypervisorReply) {
        if let Some(known) = self.known_mut(id.process()) {
            let question = std::mem::replace(&mut known.question, QueryState::None);
            if question == QueryState::Outdated {
                return;
            }
            let answer = answer.within_bounds();
            known.pause = match answer.error {
                None => ROUND,
                Some(_) => (known.pause * 2).min(LAST_RETRY),
            };
            known.answer = answer;
        }
    }
}

impl TrackedProcess {
    fn is_of(&self, process: &ProcessSample) -> bool {
        self.name == process.name
    }

    /// Returns true if the process still runs as the user that it had. Root's program may become another user's without
    /// a new name.
    fn has_its_user(&self, root: &Root, id: ProcessId) -> bool {
        let Some(had) = self.found.as_ref().and_then(|found| found.effective_uid) else { return true };
        !root.is_host()
            || match fs::metadata(root.path(format!("proc/{}", id.pid))) {
                Ok(now) => now.uid() == had,
                // A process that has ended merges nothing. One that may not be examined may be anyone's.
                Err(error) => error.kind() == std::io::ErrorKind::NotFound,
            }
    }

    /// Returns true if the process was moved to another cgroup, in one hierarchy at least: then another may dispute it.
    fn was_moved(&self, root: &Root, id: ProcessId) -> bool {
        let had = self.found.as_ref().and_then(|found| found.cgroup.as_ref());
        let text = root.text(format!("proc/{}/cgroup", id.pid));
        // One that has ended has not moved. One whose path is too long to be read was moved there.
        !matches!(text, Reading::Absent) && had != text.value().and_then(|text| CgroupPath::parse(text)).as_ref()
    }

    /// Returns true if the process looks like a guest with a manager's record, and none was found so far.
    fn lacks_its_record(&self) -> bool {
        self.managed.is_none() && self.found.as_ref().is_some_and(|found| found.hypervisor.has_records())
    }

    fn ask_anew(&mut self) {
        (self.due, self.pause) = (Duration::ZERO, FIRST_RETRY);
        if self.question == QueryState::UnderWay {
            self.question = QueryState::Outdated;
        }
    }

    fn add_to(&self, guest: &mut Guest) {
        let told = self.answer.told.as_ref();
        guest.uuid = guest.uuid.take().or_else(|| told?.uuid.clone());
        guest.memory_bytes = guest.memory_bytes.or(self.answer.memory_bytes);
        guest.metadata = self.managed.as_ref().and_then(|managed| managed.metadata.clone());
        guest.offered = told.map(|told| told.backends.iter().any(|backend| backend.merge && !backend.share));
        // QEMU goes on offering its firmware and video memory, some 100 KiB: that does not count, and is said. Any process
        // may say that its RAM is not offered: of one that is not verified the kernel's word counts.
        let is_off = guest.is_verified && guest.offered == Some(false);
        guest.has_remaining_mergeable = is_off && guest.mergeable == Some(true);
        guest.mergeable = guest.mergeable.map(|mergeable| mergeable && !is_off);
        guest.errors.extend(self.answer.error.clone());
        let has_own_name =
            self.found.as_ref().is_some_and(|RecognisedProcess { identity, .. }| identity.name != identity.program);
        if let Some(name) = self.answer.name.as_ref().filter(|_| !has_own_name) {
            guest.name.clone_from(name);
        }
    }
}

#[cfg(test)]
mod tests;
