//! The folder's thread.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, select};
use ksmith_core::fold::{FoldCandidate, FoldLedger, FoldLook, FoldPolicy, FoldStep};
use ksmith_core::guest::Guest;
use ksmith_core::sample::{ProcessId, Sample};
use ksmith_host::own_use::thread_cpu;
use tracing::{debug, info};

use super::child::{FoldChild, KilledFoldChildren};
use super::collapse::CollapseQueue;
use super::config::{FoldConfig, FoldMode};
use super::figures::FoldedFigures;
use super::protocol::{FoldAction, FoldOutcome, FoldReply, FoldRequest};
use super::{FolderOrder, MOST_NOTES, NameGuests, Notes};

/// Huge pages that a look reads: 64 MiB.
const SAMPLES: usize = 32;

/// The deadline of a look, not counting the time in which the child has no CPU.
pub(super) const LOOK_DEADLINE: Duration = Duration::from_secs(10);

/// Seconds of deadline for each second of a pass's CPU limit, beside the deadline of a look: its pages may have to come
/// from swap.
const PASS_SLOWNESS: u32 = 4;

/// The longest wait for anything, starved or not.
const LONGEST_DEADLINE: Duration = Duration::from_secs(300);

/// The time for which an idle child is kept. To start it takes some milliseconds of CPU.
const KEPT: Duration = Duration::from_secs(3);

/// The pause after the host turned out to be unable to fold, or no child could be started.
const HINDERED: Duration = Duration::from_secs(600);

/// The interval between two checks of the deadline while a child works.
const BEAT: Duration = Duration::from_millis(500);

/// The end of a request.
enum RequestEnding {
    Reply(FoldReply),
    /// The process held the child up.
    Silent,
    /// The child has ended.
    Broken,
    /// The daemon ends.
    End,
}

pub(super) struct FolderWorker {
    command: Vec<String>,
    config: FoldConfig,
    figures: FoldedFigures,
    name_guests: NameGuests,
    notes: Notes,
    policy: FoldPolicy,
    ledger: FoldLedger,
    /// Times of the newest looks, since boot.
    looks: BTreeMap<ProcessId, Duration>,
    collapses: CollapseQueue,
    host_bytes: u64,
    child: Option<FoldChild>,
    graves: KilledFoldChildren,
    /// The deadline of a look.
    pub(super) look_deadline: Duration,
    /// Time of the last sample, by this thread's clock and by the sample's.
    met: Option<(Instant, Duration)>,
    /// The end of the pause after the host could not fold.
    hindered: Option<Instant>,
    hindrance: Option<String>,
    /// CPU time of this thread that is charged.
    charged: Duration,
}

impl FolderWorker {
    pub(super) fn new(
        command: Vec<String>,
        config: FoldConfig,
        figures: FoldedFigures,
        name_guests: NameGuests,
        notes: Notes,
    ) -> Self {
        Self {
            policy: FoldPolicy::new(config.terms()),
            command,
            config,
            figures,
            name_guests,
            notes,
            ledger: FoldLedger::default(),
            looks: BTreeMap::new(),
            collapses: CollapseQueue::default(),
            host_bytes: 0,
            child: None,
            graves: KilledFoldChildren::default(),
            look_deadline: LOOK_DEADLINE,
            met: None,
            hindered: None,
            hindrance: None,
            charged: Duration::ZERO,
        }
    }

    /// Runs until the queue is closed.
    pub(super) fn work(mut self, inbox: &Receiver<FolderOrder>) {
        loop {
            let wait = self.step(inbox);
            self.publish();
            let Some(wait) = wait else { break };
            // A child that has nothing to do is let go.
            let order = match inbox.recv_timeout(wait.min(KEPT)) {
                Err(RecvTimeoutError::Timeout) if wait > KEPT => {
                    self.end_child();
                    inbox.recv_timeout(wait.saturating_sub(KEPT))
                }
                order => order,
            };
            match order {
                Err(RecvTimeoutError::Disconnected) => break,
                Ok(order) => self.carry_out(order),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        self.end_child();
    }

    /// Returns the time since boot, by the newest sample and the time that has passed since.
    fn now(&self) -> Duration {
        self.met.map_or(Duration::ZERO, |(then, at)| at + then.elapsed())
    }

    fn carry_out(&mut self, order: FolderOrder) {
        match order {
            FolderOrder::Take(sample) => self.meet(&sample),
            FolderOrder::Configure(config) => {
                self.policy.configure(config.terms());
                self.config = config;
                (self.hindered, self.hindrance) = (None, None);
            }
        }
    }

    /// Updates the candidates from a sample.
    fn meet(&mut self, sample: &Sample) {
        self.met = Some((Instant::now(), sample.at));
        let total = sample.host.memory.value().and_then(|memory| memory.total).unwrap_or(u64::MAX);
        if total != self.host_bytes {
            self.host_bytes = total;
            self.ledger.set_host_bytes(total);
        }
        let guests = (self.name_guests)(sample);
        let candidates = self.candidates(sample, &guests);
        self.policy.set_candidates(sample.at, &candidates);
        self.collapses.follow(&guests);
        let is_there = |id| sample.processes.iter().any(|process| process.id == id);
        self.ledger.retain(is_there);
        self.looks.retain(|id, _| is_there(*id));
    }

    /// Returns the processes that may be folded, and those with folded memory: these are looked at even while folding
    /// is off.
    pub(super) fn candidates(&self, sample: &Sample, guests: &[Guest]) -> Vec<FoldCandidate> {
        let is_chosen = |id: ProcessId, is_vm: bool, is_verified: bool| match self.config.mode {
            FoldMode::Off => self.ledger.folded_bytes(id).is_some_and(|bytes| bytes > 0),
            FoldMode::Guests => is_vm && is_verified,
            FoldMode::All => true,
        };
        // Memory that two processes have in common is folded in the first.
        let candidates = sample.processes.iter().filter(|process| !process.is_twin).filter_map(|process| {
            let guest = guests.iter().find(|guest| guest.processes.contains(&process.id));
            is_chosen(process.id, process.is_vm, guest.is_some_and(|guest| guest.is_verified)).then(|| {
                FoldCandidate {
                    id: process.id,
                    name: match guest {
                        Some(guest) if guest.id().process() == process.id => guest.title(),
                        _ => format!("{} (pid {})", process.name, process.id.pid),
                    },
                    rss_bytes: process.known_rss_bytes(),
                }
            })
        });
        candidates.collect()
    }

    /// Does the next step. Returns the time to wait for the one after it; `None` if the daemon ends.
    fn step(&mut self, inbox: &Receiver<FolderOrder>) -> Option<Duration> {
        let used = thread_cpu();
        self.policy.charge(used.saturating_sub(self.charged));
        self.charged = used;
        let now = Instant::now();
        if let Some(until) = self.hindered {
            if now < until {
                return Some(until - now);
            }
            self.hindered = None;
        }
        let (id, action, cpu_limit) = match self.collapses.next() {
            Some(id) => {
                let wait = self.policy.time_until_pass(self.now());
                if wait > Duration::ZERO {
                    return Some(wait);
                }
                (id, FoldAction::Collapse, self.policy.pass_cpu_limit())
            }
            None => match self.policy.next_step(self.now()) {
                FoldStep::Wait(wait) => return Some(wait),
                FoldStep::Look { id } => (id, FoldAction::Look, Duration::ZERO),
                FoldStep::Fold { id, cpu_limit } => (id, FoldAction::Fold, cpu_limit),
            },
        };
        let request = FoldRequest {
            pid: id.pid,
            start_ticks: id.start_ticks,
            action,
            cpu_limit_seconds: cpu_limit.as_secs_f64(),
            least_zero_permille: self.config.least_zero_permille(),
            samples: SAMPLES,
        };
        let deadline = self.look_deadline + cpu_limit * PASS_SLOWNESS;
        match self.send_request(&request, deadline, inbox) {
            RequestEnding::Reply(reply) if action == FoldAction::Collapse => self.take_collapsed(id, reply),
            RequestEnding::Reply(reply) => self.take_reply(id, reply),
            RequestEnding::Silent => {
                self.collapses.finish(id);
                self.record_silence(id);
                self.end_child();
            }
            RequestEnding::Broken => {
                self.hinder("no child reads memory for it: it can't be started, or ended by itself".to_owned());
                self.end_child();
            }
            RequestEnding::End => return None,
        }
        Some(Duration::ZERO)
    }

    /// Sends a request and waits for the reply. Orders that come meanwhile are carried out.
    fn send_request(
        &mut self,
        request: &FoldRequest,
        deadline: Duration,
        inbox: &Receiver<FolderOrder>,
    ) -> RequestEnding {
        if self.child.is_none() {
            if !self.graves.collect() {
                return RequestEnding::Broken;
            }
            match FoldChild::start(&self.command) {
                Ok(child) => self.child = Some(child),
                Err(error) => {
                    debug!("can't start the child that folds: {error}");
                    return RequestEnding::Broken;
                }
            }
        }
        let Some(child) = self.child.as_mut() else { return RequestEnding::Broken };
        let replies = child.replies.clone();
        if child.send(request).is_err() {
            return RequestEnding::Broken;
        }
        let (began, starved_before) = (Instant::now(), child.starved());
        loop {
            select! {
                recv(replies) -> reply => return reply.map_or(RequestEnding::Broken, RequestEnding::Reply),
                recv(inbox) -> order => match order {
                    Ok(order) => self.carry_out(order),
                    Err(_) => return RequestEnding::End,
                },
                default(BEAT.min(deadline)) => {}
            }
            let starved = self.child.as_ref().map(FoldChild::starved).unwrap_or_default();
            let starved = starved.saturating_sub(starved_before);
            let passed = began.elapsed();
            if passed.saturating_sub(starved) >= deadline || passed >= LONGEST_DEADLINE {
                return RequestEnding::Silent;
            }
        }
    }

    fn take_reply(&mut self, id: ProcessId, reply: FoldReply) {
        let cpu = self.child.as_mut().map(|child| child.uncharged_cpu(&reply)).unwrap_or_default();
        self.policy.charge(cpu);
        let now = self.now();
        if !self.policy.is_candidate(id) {
            return;
        }
        match reply.outcome {
            FoldOutcome::Looked(look) => {
                self.looks.insert(id, now);
                self.ledger.record_look(id, look.zero_reading());
                self.record_look(id, look, cpu);
            }
            FoldOutcome::Folded(pass, look) => {
                self.looks.insert(id, now);
                self.ledger.record_fold(id, pass.freed_bytes, look.zero_reading());
                self.policy.record_pass(now, id, &pass);
                debug!("folded {id}: {pass:?}");
            }
            FoldOutcome::Gone => {
                self.policy.forget(id);
                self.ledger.retain(|other| other != id);
            }
            FoldOutcome::Silent => self.record_silence(id),
            FoldOutcome::Failed(why) => self.policy.record_failure(now, id, &why),
            FoldOutcome::Hindered(why) => self.hinder(why),
            // It was not asked for.
            FoldOutcome::Collapsed(_) => {}
        }
    }

    /// Records the outcome of putting huge pages together.
    fn take_collapsed(&mut self, id: ProcessId, reply: FoldReply) {
        let cpu = self.child.as_mut().map(|child| child.uncharged_cpu(&reply)).unwrap_or_default();
        self.policy.charge(cpu);
        if let Some(note) = self.collapses.record(id, reply.outcome) {
            self.policy.add_note(note.state, note.text);
        }
    }

    /// Backs off from a process that held its reader up. Its folded memory is not known from then on.
    fn record_silence(&mut self, id: ProcessId) {
        self.policy.record_silence(self.now(), id);
        self.ledger.retain(|other| other != id);
    }

    fn record_look(&mut self, id: ProcessId, look: FoldLook, cpu: Duration) {
        debug!("looked at {id} for folding, for {cpu:?} of CPU: {look:?}");
        let folded_bytes = self.ledger.folded_bytes(id).unwrap_or(0);
        self.policy.record_look(self.now(), id, look, folded_bytes, cpu);
    }

    /// Pauses, since the host can't fold. Each reason is logged once.
    fn hinder(&mut self, why: String) {
        self.hindered = Some(Instant::now() + HINDERED);
        if self.hindrance.as_ref() != Some(&why) {
            self.policy.add_note("hindered", format!("nothing is folded: {why}"));
            self.hindrance = Some(why);
        }
    }

    fn end_child(&mut self) {
        if let Some(child) = self.child.take() {
            let cpu = child.end(&mut self.graves);
            self.policy.charge(cpu);
        }
        self.graves.collect();
    }

    /// Publishes figures and notes.
    fn publish(&mut self) {
        self.figures.publish(&self.ledger, &self.looks, self.host_bytes);
        let new = self.policy.drain_notes();
        if new.is_empty() {
            return;
        }
        for note in &new {
            info!("{}", ksmith_core::printable::OneLine(&note.text));
        }
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.extend(new);
        let surplus = notes.len().saturating_sub(MOST_NOTES);
        notes.drain(..surplus);
    }
}
