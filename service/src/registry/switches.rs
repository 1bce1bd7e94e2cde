//! Switches guests for the registry.

use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use ksmith_host::act::{NoHeadroom, UndoError};
use ksmith_host::fair_pool::{FairPool, PoolLimits};
use ksmith_host::guests::{GuestTarget, SwitchError, SwitchedBackend};
use ksmith_host::root::Root;

/// Switches under way and waiting. One that hangs holds its thread for ten minutes.
pub(super) const LIMITS: PoolLimits =
    PoolLimits { threads: 4, of_users: 2, of_one_user: 1, waiting_of_one_user: 64, waiting_of_host: 1 << 16 };

/// A switch that was carried out: the guest, true if on, and the outcome.
pub(super) type Done = (GuestTarget, bool, Result<Vec<SwitchedBackend>, SwitchError>);

/// A switch that is not ordered.
#[derive(Debug, thiserror::Error)]
pub(super) enum SwitchOrderError {
    /// The guest can't be switched.
    #[error(transparent)]
    Guest(#[from] SwitchError),
    /// The host might not hold what is unmerged.
    #[error(transparent)]
    NoHeadroom(#[from] NoHeadroom),
    /// The guest can't be noted for a later ksmith.
    #[error(transparent)]
    Store(#[from] UndoError),
    /// Merged pages could need more memory than the host has.
    #[error(
        "merged pages could need more memory than there is, so no more is offered \
             (/usr/share/doc/ksmith/docs/how-to/balance.md)"
    )]
    Exposed,
    /// The queue of the guest's user is full.
    #[error("too many of its user's guests wait for their switches")]
    QueueFull,
}

/// Switches of guests under way.
#[derive(Debug)]
pub(super) struct PendingSwitches {
    root: Root,
    pool: FairPool,
    sender: Sender<Done>,
    done: Receiver<Done>,
    under_way: usize,
}

impl PendingSwitches {
    /// Creates the pool, with no switch under way.
    pub(super) fn new(root: &Root) -> Self {
        let (sender, done) = unbounded();
        Self { root: root.clone(), pool: FairPool::new("guest-switch", LIMITS), sender, done, under_way: 0 }
    }

    /// Orders a guest switched.
    pub(super) fn order(&mut self, target: GuestTarget, on: bool) -> Result<(), SwitchOrderError> {
        let (root, sender) = (self.root.clone(), self.sender.clone());
        let is_accepted = self.pool.push(target.account(&root), move || {
            let outcome = target.switch(&root, on, false);
            // At the end there is no receiver any more.
            let _ = sender.send((target, on, outcome));
        });
        if !is_accepted {
            return Err(SwitchOrderError::QueueFull);
        }
        self.under_way += 1;
        Ok(())
    }

    /// Returns the channel on which outcomes arrive. Each must be reported to [`settle`](Self::apply_drop_ins).
    pub(super) fn outcomes(&self) -> Receiver<Done> {
        self.done.clone()
    }

    pub(super) fn settle(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Waits for the next outcome until the deadline. Returns `None` at once if no switch is under way.
    pub(super) fn wait(&self, deadline: Instant) -> Option<Done> {
        if self.under_way == 0 {
            return None;
        }
        self.done.recv_deadline(deadline).ok()
    }
}
