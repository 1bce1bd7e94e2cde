//! Guests on the live host: who they are, what their hypervisors say, and the switches that they have.
//!
//! [`Guests`] names the processes of a [`Sample`] and groups them. It reads a few small files of each new process
//! once. Hypervisors are asked in threads of their own, whose answers are taken in when they are there: naming
//! never waits.

mod identities;
mod journal;
mod libvirt;
mod mconsole;
mod memory;
mod monitor;
mod patient;
mod probe;
mod qmp;
mod shared;
mod switch;
mod twins;
mod users;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use ksmith_core::guest::{Guest, Kind, NotOne, find};
use ksmith_core::guest::{Identity, Monitor as Place, group};
use ksmith_core::sample::{ProcessId, Sample};

pub use self::identities::{has_ended, is_alive};
pub use self::journal::{ListError, OffList, SwitchedOff, Why};
pub use self::libvirt::{BadUri, LibvirtError, Uri};
pub use self::mconsole::{Mconsole, MconsoleError};
pub use self::memory::{merged_now, read_memory};
pub(crate) use self::monitor::Monitor;
pub use self::monitor::{Backend, MonitorError, Told};
use self::probe::{Probed, Prober};
pub use self::shared::SharedGuests;
pub use self::switch::{SwitchError, Switched, Target};
use self::users::Users;
use crate::root::Root;

/// How soon a hypervisor that failed is asked again: at first, and at last.
const FIRST_RETRY: Duration = Duration::from_secs(10);
const LAST_RETRY: Duration = Duration::from_secs(600);

/// How often one that answers is asked: somebody may have thrown its switch.
const ROUND: Duration = Duration::from_secs(30);

/// Who the processes of samples are.
#[derive(Debug)]
pub struct Guests {
    root: Root,
    libvirt: Uri,
    users: Users,
    known: BTreeMap<ProcessId, Known>,
    prober: Option<Prober>,
}

/// A process whose files were read. Its name in the sample changes when it executes another program.
#[derive(Debug)]
struct Known {
    name: Arc<str>,
    identity: Option<Identity>,
    libvirt: Option<libvirt::Status>,
    probed: Probed,
    /// When to ask its hypervisor (again), and how long to wait after that.
    due: Duration,
    pause: Duration,
    question: Question,
}

/// Whether its hypervisor is being asked. Never twice at a time: the older answer might come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    None,
    UnderWay,
    /// Under way since before its switch was thrown: the answer is not worth hearing.
    Outdated,
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
    pub fn new(root: Root, libvirt: Uri) -> Self {
        Self { users: Users::new(&root), root, libvirt, known: BTreeMap::new(), prober: None }
    }

    /// The guests of a sample. Who is not in it any more is forgotten. What hypervisors say is as of their last
    /// answer; those that are due are asked in the background.
    pub fn list(&mut self, sample: &Sample) -> List {
        while let Some((id, probed)) = self.prober.as_mut().and_then(Prober::answer) {
            self.learn(id, probed);
        }
        self.meet(sample);
        self.ask_due(sample.at);
        self.named(sample)
    }

    /// The guests of a sample by what their own files tell: no hypervisor is asked.
    pub fn list_unasked(&mut self, sample: &Sample) -> List {
        self.meet(sample);
        self.named(sample)
    }

    /// As [`list`](Self::list), but waits until all hypervisors have answered, or for `patience`.
    pub fn list_within(&mut self, sample: &Sample, patience: Duration) -> List {
        self.list(sample);
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.prober.as_mut().and_then(|prober| prober.answer_within(left)) {
                Some((id, probed)) => self.learn(id, probed),
                None => return self.named(sample),
            }
        }
    }

    /// What is known of a process.
    pub fn identity(&self, id: &ProcessId) -> Option<&Identity> {
        self.known.get(id)?.identity.as_ref()
    }

    /// What is needed to switch a guest.
    pub fn target(&self, guest: &Guest) -> Option<Target> {
        let known = self.known.get(&guest.id())?;
        Some(Target { name: guest.name.clone(), ..self.target_of(guest.id(), known)? })
    }

    /// What is needed to switch the guest whose first process this is, sample or not. `None` if it is gone.
    pub fn target_by_id(&self, id: ProcessId) -> Option<Target> {
        self.target_of(id, &self.read(id, &Arc::from(""), Duration::ZERO))
    }

    /// Forgets what a guest's monitor said: its switch was thrown.
    pub fn ask_again(&mut self, id: ProcessId) {
        if let Some(known) = self.known.get_mut(&id) {
            known.probed.told = None;
            known.ask_anew();
        }
    }

    /// Takes in that the guest whose first process has this PID was switched, so that it counts at once; its hypervisor
    /// is asked again all the same. Returns whose it is, if that is known.
    pub fn was_switched(&mut self, pid: u32, on: bool) -> Option<ProcessId> {
        let (id, known) = self.known.iter_mut().find(|(id, _)| id.pid == pid)?;
        for backend in known.probed.told.iter_mut().flat_map(|told| &mut told.backends) {
            backend.merge = on;
        }
        known.ask_anew();
        Some(*id)
    }

    fn named(&self, sample: &Sample) -> List {
        let (mut guests, unattributed_bytes) = group(sample, |id| self.identity(id));
        for guest in &mut guests {
            let Some(known) = self.known.get(&guest.id()) else { continue };
            known.add_to(guest);
        }
        List { guests, unattributed_bytes }
    }

    fn meet(&mut self, sample: &Sample) {
        let mut known = std::mem::take(&mut self.known);
        for process in &sample.processes {
            let old = known.remove(&process.id).filter(|known| known.name == process.name);
            let entry = old.unwrap_or_else(|| self.read(process.id, &process.name, sample.at));
            self.known.insert(process.id, entry);
        }
    }

    fn read(&self, id: ProcessId, name: &Arc<str>, now: Duration) -> Known {
        let identity = identities::read(&self.root, id, &self.users);
        let managed = identity.as_ref().filter(|identity| identity.monitors.contains(&Place::Inherited));
        let libvirt =
            managed.and_then(|identity| libvirt::status(&self.root, self.libvirt.driver(), &identity.name, id.pid));
        Known {
            name: Arc::clone(name),
            identity,
            libvirt,
            probed: Probed::default(),
            due: now,
            pause: FIRST_RETRY,
            question: Question::None,
        }
    }

    fn target_of(&self, id: ProcessId, known: &Known) -> Option<Target> {
        let identity = known.identity.clone()?;
        let uuid = known.libvirt.as_ref().and_then(|status| status.uuid.clone()).or_else(|| identity.uuid.clone());
        let is_managed = identity.monitors.contains(&Place::Inherited);
        let libvirt = uuid.filter(|_| is_managed).map(|uuid| (self.libvirt.clone(), uuid));
        Some(Target { id, name: identity.name.clone(), identity, libvirt })
    }

    /// Has those asked who are due. A captured tree has nobody to ask.
    fn ask_due(&mut self, now: Duration) {
        if !self.root.is_host() {
            return;
        }
        let due: Vec<Target> = self
            .known
            .iter()
            .filter(|(_, known)| known.due <= now && known.question == Question::None)
            .filter_map(|(id, known)| self.target_of(*id, known))
            .filter(probe::can_be_asked)
            .collect();
        for target in due {
            let Some(known) = self.known.get_mut(&target.id) else { continue };
            if self.prober.is_none() {
                self.prober = Prober::start(&self.root);
            }
            if self.prober.as_mut().is_some_and(|prober| prober.ask(target)) {
                known.due = now + known.pause;
                known.question = Question::UnderWay;
            }
        }
    }

    fn learn(&mut self, id: ProcessId, probed: Probed) {
        if let Some(known) = self.known.get_mut(&id) {
            let question = std::mem::replace(&mut known.question, Question::None);
            if question == Question::Outdated {
                return;
            }
            known.pause = match probed.error {
                None => ROUND,
                Some(_) => (known.pause * 2).min(LAST_RETRY),
            };
            known.probed = probed;
        }
    }
}

impl Known {
    fn ask_anew(&mut self) {
        (self.due, self.pause) = (Duration::ZERO, FIRST_RETRY);
        if self.question == Question::UnderWay {
            self.question = Question::Outdated;
        }
    }

    fn add_to(&self, guest: &mut Guest) {
        let told = self.probed.told.as_ref();
        let libvirt = self.libvirt.as_ref();
        guest.uuid = guest.uuid.take().or_else(|| told?.uuid.clone()).or_else(|| libvirt?.uuid.clone());
        guest.memory_bytes = guest.memory_bytes.or(self.probed.memory_bytes);
        guest.metadata = libvirt.and_then(|status| status.metadata.clone());
        guest.offered = told.map(|told| told.backends.iter().any(|backend| backend.merge && !backend.share));
        // QEMU goes on offering its firmware and video memory, some 100 KiB: that does not count, and is said.
        guest.has_residue = guest.offered == Some(false) && guest.mergeable == Some(true);
        guest.mergeable = guest.mergeable.map(|mergeable| mergeable && guest.offered != Some(false));
        guest.errors.extend(self.probed.error.clone());
        let has_own_name = self.identity.as_ref().is_some_and(|identity| identity.name != *identity.program);
        if let Some(name) = self.probed.name.as_ref().filter(|_| !has_own_name) {
            guest.name.clone_from(name);
        }
    }
}

#[cfg(test)]
mod tests;
