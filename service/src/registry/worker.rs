//! The registry's thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, select};
use ksmith_core::decide::{DecisionReason, GuestPruner, MemoryShortage};
use ksmith_core::guest::{SwitchOffReason, assign_labels};
use ksmith_core::model::GuestsReport;
use ksmith_host::guests::{GuestList, GuestRequests, GuestSnapshot, GuestTracker, OffList};
use ksmith_host::root::Root;
use tracing::{info, warn};

use super::churn::ChurnRate;
use super::switches::{self, Done};
use super::{PublishedSnapshot, RegistryOrder, SnapshotFollower};
use crate::config::GuestsConfig;
use crate::control::ControlReply;

/// The longest wait at the end for a switch under way.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct RegistryWorker {
    pub(super) root: Root,
    config: GuestsConfig,
    pub(super) guests: GuestTracker,
    published: PublishedSnapshot,
    followers: Vec<SnapshotFollower>,
    guards_domains: bool,
    churn: ChurnRate,
    pub(super) prune: Option<GuestPruner>,
    pub(super) off: Option<OffList>,
    pub(super) switches: GuestRequests<Done>,
    /// The time of the last look.
    pub(super) now: Duration,
    pub(super) shortage: MemoryShortage,
    /// Decisions of pruning, for the history.
    pub(super) notes: Sender<DecisionReason>,
}

impl RegistryWorker {
    pub(super) fn new(
        root: Root,
        published: PublishedSnapshot,
        off: Option<OffList>,
        config: GuestsConfig,
        guards_domains: bool,
        notes: Sender<DecisionReason>,
    ) -> Self {
        Self {
            guests: GuestTracker::new(root.clone(), config.libvirt_uri.clone()),
            switches: GuestRequests::new(&root, "guest-switch", switches::LIMITS),
            root,
            published,
            followers: Vec::new(),
            guards_domains,
            churn: ChurnRate::default(),
            prune: config.prune_limits().map(GuestPruner::new),
            config,
            off,
            now: Duration::ZERO,
            shortage: MemoryShortage::default(),
            notes,
        }
    }

    pub(super) fn work(mut self, inbox: &Receiver<RegistryOrder>) {
        // What a killed daemon left.
        self.switch_on_again();
        let outcomes = self.switches.outcomes();
        loop {
            select! {
                recv(inbox) -> order => match order {
                    Ok(RegistryOrder::End) | Err(_) => break,
                    Ok(order) => self.carry_out(order),
                },
                recv(outcomes) -> outcome => match outcome {
                    Ok(outcome) => {
                        self.switches.end_one();
                        self.settle(outcome);
                    }
                    Err(_) => break,
                },
            }
        }
        let deadline = Instant::now() + LAST_PATIENCE;
        while let Some(outcome) = self.switches.await_outcome(deadline) {
            self.settle(outcome);
        }
        self.switch_on_again();
    }

    fn carry_out(&mut self, order: RegistryOrder) {
        match order {
            RegistryOrder::Look(sample) => {
                self.churn.see(&sample);
                let snapshot = self.guests.snapshot(&sample);
                self.prune(&sample, &snapshot);
                self.publish(snapshot);
            }
            RegistryOrder::Report(asked, reply) => {
                let (sample, domains) = *asked;
                let GuestList { mut guests, unattributed_bytes } = self.guests.list(&sample);
                if let Some(off) = &self.off {
                    off.mark(&mut guests);
                }
                let mut report = GuestsReport::new(&sample, guests, unattributed_bytes);
                report.cow_ksm_per_second = self.churn.rate();
                domains.assign(&mut report.guests);
                assign_labels(&self.config.label, &mut report.guests);
                let _ = reply.try_send(ControlReply::Guests(Box::new(report)));
            }
            RegistryOrder::SwitchOff(key) => self.switch_off(&key),
            RegistryOrder::Follow(follower) => self.followers.push(follower),
            RegistryOrder::Configure(config, guards_domains) => self.configure(config, guards_domains),
            RegistryOrder::Switched(pid, on) => self.was_switched(pid, on),
            RegistryOrder::End => {}
        }
    }

    fn publish(&mut self, snapshot: GuestSnapshot) {
        self.published.publish(snapshot);
        for follower in &self.followers {
            // A reader that was woken already reads the newest snapshot all the same.
            let _ = follower.waker.try_send(());
        }
    }

    /// Returns true if more memory may be offered to merging.
    pub(super) fn may_offer(&self) -> bool {
        self.followers.iter().all(|follower| (follower.may_offer)())
    }

    /// Returns the snapshot that was published last.
    pub(super) fn last(&self) -> Arc<GuestSnapshot> {
        self.published.newest()
    }

    fn configure(&mut self, config: GuestsConfig, guards_domains: bool) {
        let were_guarded = std::mem::replace(&mut self.guards_domains, guards_domains);
        if config.libvirt_uri != self.config.libvirt_uri {
            self.guests = GuestTracker::new(self.root.clone(), config.libvirt_uri.clone());
        }
        let prunes_otherwise = config.prune_limits() != self.config.prune_limits();
        self.config = config;
        if prunes_otherwise {
            self.prune = self.config.prune_limits().map(GuestPruner::new);
        }
        if prunes_otherwise || were_guarded && !guards_domains {
            self.switch_on_again();
        }
    }

    fn was_switched(&mut self, pid: u32, on: bool) {
        let id = self.guests.was_switched(pid, on);
        if let (Some(id), Some(off), true) = (id, &self.off, on)
            && let Err(error) = off.remove_processes(&[id.process()].into())
        {
            warn!("{error}");
        }
    }

    fn switch_on_again(&mut self) {
        let Some(off) = &self.off else { return };
        let mut notes = off.restore(&self.root, |guest| guest.why.is_of_pruning(), false);
        if !self.guards_domains {
            notes.extend(off.restore(&self.root, |guest| guest.why == SwitchOffReason::Domain, false));
        }
        for note in notes {
            info!("{note}");
        }
    }
}
