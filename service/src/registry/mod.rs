//! The registry of guests: a thread of its own owns all that is known of them, and publishes immutable snapshots.
//!
//! The daemon only hands samples over. Neither naming a thousand guests, nor a hypervisor that hangs, nor a switch that
//! takes seconds delays a turn. The turn, the guard of the domains, balance and the answers read the newest snapshot
//! and never wait. Each guest's files are read once, and its hypervisor is asked by this thread's helpers alone.
//!
//! With `[guests] prune` the thread also switches off guests that are not worth merging, each noted on disk before. The huge
//! pages of those that merging has split for little are put together by the folder ([`crate::folder`]).
//! When it ends they are switched on again. Guests that are off because of trust domains are left to the guard of the
//! domains ([`crate::domains`]) as long as that is in force.

mod churn;
mod published;
mod switches;
mod switching;
mod worker;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use ksmith_core::decide::DecisionReason;
use ksmith_core::decide::domains::DomainsConfig;
use ksmith_core::sample::{ProcessForecast, ProcessId, Sample};

pub use self::published::PublishedSnapshot;
use self::worker::RegistryWorker;
use crate::config::GuestsConfig;
use crate::control::ControlReply;
use ksmith_host::guests::{GuestSnapshot, OffList};
use ksmith_host::root::Root;

/// The most threads of the registry: its own, those that ask guests, and those that switch them.
pub const MOST_THREADS: usize = 1 + ksmith_host::guests::MOST_THREADS + switches::LIMITS.threads;

/// The interval between two samples while guests are pruned, or a hypervisor's record is awaited.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// The interval between two samples with the same processes.
const BETWEEN_IDLE_LOOKS: Duration = Duration::from_secs(10);

/// The number of waiting orders from which samples and requests are refused.
const INBOX: usize = 16;

/// The most decisions that wait for the history. Later ones stand in the log alone.
const MOST_NOTES: usize = 256;

/// The daemon's handle of the registry. Dropping it switches pruned guests on again, and waits for that.
#[derive(Debug)]
pub struct GuestRegistry {
    orders: Sender<RegistryOrder>,
    thread: Option<JoinHandle<()>>,
    published: PublishedSnapshot,
    notes: Receiver<DecisionReason>,
    prunes: bool,
    last_look: Option<Duration>,
    /// The processes of the last sample that was handed over.
    seen: Vec<(ProcessId, Arc<str>)>,
    /// The forecast in it.
    forecasts: Arc<[ProcessForecast]>,
}

/// A predicate: true if more memory may be offered to merging.
type MayOffer = Box<dyn Fn() -> bool + Send>;

/// A thread that reads the snapshots.
struct SnapshotFollower {
    may_offer: MayOffer,
    waker: Sender<()>,
}

enum RegistryOrder {
    Look(Box<Sample>),
    Report(Box<(Sample, DomainsConfig)>, Sender<ControlReply>),
    SwitchOff(String),
    Follow(SnapshotFollower),
    Configure(GuestsConfig, bool),
    Switched(u32, bool),
    End,
}

impl GuestRegistry {
    /// Starts the thread. `off` is the list of guests that were switched off. `guards_domains`: trust domains are kept
    /// apart, and guests that are off because of them stay off.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start(
        root: &Root,
        off: Option<OffList>,
        config: GuestsConfig,
        guards_domains: bool,
    ) -> io::Result<Self> {
        let (orders, inbox) = unbounded();
        let prunes = config.prune;
        let (root, published) = (root.clone(), PublishedSnapshot::default());
        let publisher = published.clone();
        let (writer, notes) = bounded(MOST_NOTES);
        let work = move || RegistryWorker::new(root, publisher, off, config, guards_domains, writer).work(&inbox);
        let thread = std::thread::Builder::new().name("guests".to_owned()).spawn(work)?;
        let (last_look, seen, forecasts) = (None, Vec::new(), Arc::default());
        Ok(Self { orders, thread: Some(thread), published, notes, prunes, last_look, seen, forecasts })
    }

    /// Hands over a sample: at once if a process has started, ended or executed another program, or if guests are pruned by a
    /// forecast that is new, else now and then.
    pub fn offer_sample(&mut self, sample: &Sample) {
        let since = self.last_look.map_or(Duration::MAX, |last| sample.at.saturating_sub(last));
        let processes = || sample.processes.iter().map(|process| (process.id, &process.name));
        let is_same = || processes().eq(self.seen.iter().map(|(id, name)| (*id, name)));
        let has_reason = || self.prunes || self.newest().awaits_a_record();
        // ksmd may split what is not worth it a second later.
        let forecasts = &sample.process_forecasts;
        let is_foretold = self.prunes && !forecasts.is_empty() && !Arc::ptr_eq(&self.forecasts, forecasts);
        let is_due = since >= BETWEEN_IDLE_LOOKS || is_foretold || since >= BETWEEN_LOOKS && has_reason();
        if !is_due && is_same() {
            return;
        }
        // A thread that is busy gets the next turn's sample.
        if self.has_room() && self.orders.send(RegistryOrder::Look(Box::new(sample.clone()))).is_ok() {
            self.last_look = Some(sample.at);
            self.seen = processes().map(|(id, name)| (id, Arc::clone(name))).collect();
            self.forecasts = Arc::clone(&sample.process_forecasts);
        }
    }

    /// Returns the newest snapshot, which is empty before the first sample.
    pub fn newest(&self) -> Arc<GuestSnapshot> {
        self.published.newest()
    }

    /// Returns the cell in which other threads find the newest snapshot.
    pub fn published(&self) -> PublishedSnapshot {
        self.published.clone()
    }

    /// Returns the guests that pruning has switched since the last call, and why.
    pub fn drain_notes(&self) -> Vec<DecisionReason> {
        self.notes.try_iter().collect()
    }

    /// Requests a report on the guests of this sample, each with the trust domain that `domains` assigns it to.
    pub fn report(&self, sample: Sample, domains: DomainsConfig, reply: Sender<ControlReply>) {
        if self.has_room() {
            // A peer that has hung up meanwhile loses its answer, here and below.
            let _ = self.orders.send(RegistryOrder::Report(Box::new((sample, domains)), reply));
        } else {
            let _ = reply.try_send(ControlReply::error("too many requests at once; try again"));
        }
    }

    fn has_room(&self) -> bool {
        self.orders.len() < INBOX
    }

    /// Orders a guest's merging switched off because its pages diverge. The key is balance's.
    pub fn switch_off(&self, key: String) {
        let _ = self.orders.send(RegistryOrder::SwitchOff(key));
    }

    /// Wakes a thread after each new snapshot, and offers more memory to merging only while `may_offer` is true.
    pub fn follow(&self, waker: Sender<()>, may_offer: impl Fn() -> bool + Send + 'static) {
        let _ = self.orders.send(RegistryOrder::Follow(SnapshotFollower { may_offer: Box::new(may_offer), waker }));
    }

    /// Replaces the configuration.
    pub fn configure(&mut self, config: GuestsConfig, guards_domains: bool) {
        self.prunes = config.prune;
        let _ = self.orders.send(RegistryOrder::Configure(config, guards_domains));
    }

    /// Records that the guest with this first process was switched by another program.
    pub fn was_switched(&self, pid: u32, on: bool) {
        let _ = self.orders.send(RegistryOrder::Switched(pid, on));
    }
}

impl Drop for GuestRegistry {
    fn drop(&mut self) {
        let _ = self.orders.send(RegistryOrder::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
