//! Requests to guests in worker threads, so that one that hangs delays no other.

use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::fair_pool::{FairPool, PoolLimits};
use crate::hypervisor::GuestTarget;
use crate::root::Root;

/// Requests to guests under way, with the channel of their outcomes. One user's guests that hang delay those of no
/// other.
#[derive(Debug)]
pub struct GuestRequests<T> {
    root: Root,
    pool: FairPool,
    sender: Sender<T>,
    outcomes: Receiver<T>,
    under_way: usize,
}

impl<T: Send + 'static> GuestRequests<T> {
    /// Creates a pool without threads. `name` is the name of its threads.
    pub fn new(root: &Root, name: &'static str, limits: PoolLimits) -> Self {
        let (sender, outcomes) = unbounded();
        Self { root: root.clone(), pool: FairPool::new(name, limits), sender, outcomes, under_way: 0 }
    }

    /// Queues a request to a guest. Returns true if it was accepted.
    pub fn queue(
        &mut self,
        target: GuestTarget,
        request: impl FnOnce(&Root, GuestTarget) -> T + Send + 'static,
    ) -> bool {
        let (root, sender) = (self.root.clone(), self.sender.clone());
        let is_accepted = self.pool.push(target.account(&root), move || {
            // At the end there is no receiver any more.
            let _ = sender.send(request(&root, target));
        });
        self.under_way += usize::from(is_accepted);
        is_accepted
    }

    /// Adds the outcome of a request that was not accepted.
    pub fn add_outcome(&mut self, outcome: T) {
        self.under_way += 1;
        let _ = self.sender.send(outcome);
    }

    /// Returns the channel on which outcomes arrive. Each must be reported to [`end_one`](Self::end_one).
    pub fn outcomes(&self) -> Receiver<T> {
        self.outcomes.clone()
    }

    /// Counts an outcome that was received from the channel.
    pub fn end_one(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Returns an outcome that has arrived, if any.
    pub fn take_outcome(&mut self) -> Option<T> {
        self.outcomes.try_recv().ok().inspect(|_| self.end_one())
    }

    /// Waits for an outcome until the deadline. Returns `None` at once if no request is under way.
    pub fn await_outcome(&mut self, deadline: Instant) -> Option<T> {
        if self.under_way == 0 {
            return None;
        }
        self.outcomes.recv_deadline(deadline).ok().inspect(|_| self.end_one())
    }
}
