//! Guests on the live host: their names and what their hypervisors say.
//!
//! [`Guests`] names the processes of a [`Sample`] and groups them. It reads a few small files of each new process
//! once. Threads of their own ask the hypervisors. Answers are taken in when they are there, so naming never waits.

mod identities;
mod journal;
mod memory;
mod prober;
mod snapshot;
mod twins;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use ksmith_core::guest::{Guest, GuestId, Kind, NotOne, find};
use ksmith_core::sample::{Process, ProcessId, Sample};

pub use self::journal::{OffList, SwitchedOff, Why};
pub use self::memory::{merged_now, read_memory};
use self::prober::Prober;
pub use self::snapshot::GuestSnapshot;
use self::snapshot::Names;
use crate::hypervisor::{Answer, Managed, Recognised};
pub use crate::hypervisor::{
    BadUri, LibvirtError, Mconsole, MconsoleError, Monitor, MonitorError, SwitchError, Switched, Target, Uri,
};
pub use crate::process::{has_ended, is_alive};
use crate::root::Root;
use crate::users::Users;

/// The most threads: those that ask hypervisors, and the one that asks the name service.
pub const MOST_THREADS: usize = prober::LIMITS.threads + 1;

/// How soon a hypervisor that failed is asked again: at first, and at last.
const FIRST_RETRY: Duration = Duration::from_secs(10);
const LAST_RETRY: Duration = Duration::from_secs(600);

/// How soon a record is looked for again that was not there when its guest started.
const FIRST_RECORD: Duration = Duration::from_secs(1);

/// How often a hypervisor that answers is asked: its guest may have been switched by others.
const ROUND: Duration = Duration::from_secs(30);

/// The processes of samples, and what is known of them.
#[derive(Debug)]
pub struct Guests {
    root: Root,
    users: Users,
    names: Names,
    prober: Option<Prober>,
}

/// A process with the files that were read of it. Its name in the sample changes when it executes another program.
#[derive(Debug, Clone)]
struct Known {
    name: Arc<str>,
    found: Option<Recognised>,
    /// The record of its manager, and when to look for one again while there is none.
    managed: Option<Managed>,
    record: Retry,
    answer: Answer,
    /// When to ask its hypervisor (again), and how long to wait after that.
    due: Duration,
    pause: Duration,
    question: Question,
}

/// When something is tried again that has failed: at first soon, then less and less often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Retry {
    due: Duration,
    pause: Duration,
}

impl Retry {
    fn after_a_failure(self, now: Duration) -> Self {
        Self { due: now + self.pause, pause: (self.pause * 2).min(LAST_RETRY) }
    }
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
    /// No process is known yet.
    pub fn new(root: Root, libvirt: Uri) -> Self {
        let names = Names { libvirt, known: BTreeMap::new() };
        Self { users: Users::new(&root), root, names, prober: None }
    }

    /// The guests of a sample, with the last answers of their hypervisors. Those that are due are asked in the background.
    /// Processes that are not in the sample are forgotten.
    pub fn list(&mut self, sample: &Sample) -> List {
        while let Some((id, answer)) = self.prober.as_mut().and_then(Prober::answer) {
            self.learn(id, answer);
        }
        self.meet(sample);
        self.ask_due(sample.at);
        self.names.name(sample)
    }

    /// The same as a snapshot, which also names later samples.
    pub fn snapshot(&mut self, sample: &Sample) -> GuestSnapshot {
        let list = self.list(sample);
        GuestSnapshot { at: sample.at, list, names: self.names.clone() }
    }

    /// The guests of a sample by what their own files tell: no hypervisor is asked.
    pub fn list_unasked(&mut self, sample: &Sample) -> List {
        self.meet(sample);
        self.names.name(sample)
    }

    /// As [`list`](Self::list), but waits until all hypervisors have answered, or for `patience`.
    pub fn list_within(&mut self, sample: &Sample, patience: Duration) -> List {
        self.list(sample);
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.prober.as_mut().and_then(|prober| prober.answer_within(left)) {
                Some((id, answer)) => self.learn(id, answer),
                None => return self.names.name(sample),
            }
        }
    }

    /// What is needed to switch a guest.
    pub fn target(&self, guest: &Guest) -> Option<Target> {
        self.names.target(guest)
    }

    /// What is needed to switch a guest that may be in no sample. `None` if it has ended.
    pub fn target_by_id(&self, id: GuestId) -> Option<Target> {
        let id = id.process();
        self.names.target_of(id, &self.read(id, &Arc::from(""), Duration::ZERO))
    }

    /// Forgets what a guest's monitor said: its switch was thrown.
    pub fn ask_again(&mut self, id: GuestId) {
        if let Some(known) = self.known_mut(id.process()) {
            known.answer.told = None;
            known.ask_anew();
        }
    }

    /// Takes in that a guest was switched, by the PID of its first process, so that it counts at once. Its hypervisor is
    /// asked again all the same. Returns the guest's identity, if the process is known.
    pub fn was_switched(&mut self, pid: u32, on: bool) -> Option<GuestId> {
        let id = *self.names.known.keys().find(|id| id.pid == pid)?;
        let known = self.known_mut(id)?;
        for backend in known.answer.told.iter_mut().flat_map(|told| &mut told.backends) {
            backend.merge = on;
        }
        known.ask_anew();
        Some(GuestId::of(id))
    }

    fn meet(&mut self, sample: &Sample) {
        for (uid, name) in self.users.late() {
            let number = uid.to_string();
            for known in self.names.known.values_mut() {
                let user = |known: &Known| known.found.as_ref().and_then(|found| found.identity.user.clone());
                if user(known).as_ref() == Some(&number)
                    && let Some(found) = Arc::make_mut(known).found.as_mut()
                {
                    found.identity.user = Some(name.clone());
                }
            }
        }
        let mut known = std::mem::take(&mut self.names.known);
        for process in &sample.processes {
            let is_same = |known: &Arc<Known>| known.is_of(process) && known.has_its_user(&self.root, process.id);
            let old = known.remove(&process.id).filter(is_same);
            let mut entry = old.unwrap_or_else(|| Arc::new(self.read(process.id, &process.name, sample.at)));
            if entry.lacks_its_record() && entry.record.due <= sample.at {
                self.look_up(process.id, Arc::make_mut(&mut entry), sample.at);
            }
            self.names.known.insert(process.id, entry);
        }
    }

    /// Looks for the record of a process, which verifies its name.
    fn look_up(&self, id: ProcessId, known: &mut Known, now: Duration) {
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

    fn known_mut(&mut self, id: ProcessId) -> Option<&mut Known> {
        self.names.known.get_mut(&id).map(Arc::make_mut)
    }

    fn read(&self, id: ProcessId, name: &Arc<str>, now: Duration) -> Known {
        let mut known = Known {
            name: Arc::clone(name),
            found: identities::read(&self.root, id, &self.users),
            managed: None,
            record: Retry { due: now, pause: FIRST_RECORD },
            answer: Answer::default(),
            due: now,
            pause: FIRST_RETRY,
            question: Question::None,
        };
        if known.lacks_its_record() {
            self.look_up(id, &mut known, now);
        }
        known
    }

    /// Has the hypervisors asked that are due. A captured tree has none that could be asked.
    fn ask_due(&mut self, now: Duration) {
        if !self.root.is_host() {
            return;
        }
        let due: Vec<Target> = self
            .names
            .known
            .iter()
            .filter(|(_, known)| known.due <= now && known.question == Question::None)
            .filter_map(|(id, known)| self.names.target_of(*id, known))
            .filter(Target::can_be_asked)
            .collect();
        for target in due {
            let id = target.id.process();
            let prober = self.prober.get_or_insert_with(|| Prober::new(&self.root));
            if prober.ask(target)
                && let Some(known) = self.known_mut(id)
            {
                known.due = now + known.pause;
                known.question = Question::UnderWay;
            }
        }
    }

    fn learn(&mut self, id: GuestId, answer: Answer) {
        if let Some(known) = self.known_mut(id.process()) {
            let question = std::mem::replace(&mut known.question, Question::None);
            if question == Question::Outdated {
                return;
            }
            known.pause = match answer.error {
                None => ROUND,
                Some(_) => (known.pause * 2).min(LAST_RETRY),
            };
            known.answer = answer;
        }
    }
}

impl Known {
    fn is_of(&self, process: &Process) -> bool {
        self.name == process.name
    }

    /// Whether the process still runs as the user that it had. Root's program may become another user's without a new
    /// name.
    fn has_its_user(&self, root: &Root, id: ProcessId) -> bool {
        let Some(had) = self.found.as_ref().and_then(|found| found.effective_uid) else { return true };
        !root.is_host() || fs::metadata(root.path(format!("proc/{}", id.pid))).map_or(true, |now| now.uid() == had)
    }

    /// Whether it looks like a guest of which a manager keeps a record, and there is none so far.
    fn lacks_its_record(&self) -> bool {
        self.managed.is_none() && self.found.as_ref().is_some_and(|found| found.hypervisor.has_records())
    }

    fn ask_anew(&mut self) {
        (self.due, self.pause) = (Duration::ZERO, FIRST_RETRY);
        if self.question == Question::UnderWay {
            self.question = Question::Outdated;
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
            self.found.as_ref().is_some_and(|Recognised { identity, .. }| identity.name != identity.program);
        if let Some(name) = self.answer.name.as_ref().filter(|_| !has_own_name) {
            guest.name.clone_from(name);
        }
    }
}

#[cfg(test)]
mod tests;
