//! Queries guests' hypervisors in worker threads, so that one that hangs delays no other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use ksmith_core::guest::GuestId;

use crate::fair_pool::{FairPool, PoolLimits};
use crate::hypervisor::{GuestTarget, HypervisorReply};
use crate::root::Root;

/// Limits of running and queued queries. Each takes milliseconds, or half a second if a guest hangs. One that is
/// rejected is retried at the next sample.
pub(super) const LIMITS: PoolLimits =
    PoolLimits { threads: 6, of_users: 4, of_one_user: 2, waiting_of_one_user: 64, waiting_of_host: 4096 };

/// The worker threads that query hypervisors.
#[derive(Debug)]
pub(super) struct GuestProber {
    root: Root,
    pool: FairPool,
    sender: Sender<(GuestId, HypervisorReply)>,
    answers: Receiver<(GuestId, HypervisorReply)>,
    under_way: usize,
}

impl GuestProber {
    /// Creates a prober without threads.
    pub(super) fn new(root: &Root) -> Self {
        let (sender, answers) = unbounded();
        Self { root: root.clone(), pool: FairPool::new("guest-probe", LIMITS), sender, answers, under_way: 0 }
    }

    /// Queues a query to a guest's hypervisor. Returns true if it was accepted.
    pub(super) fn queue_query(&mut self, target: GuestTarget) -> bool {
        let (sender, root) = (self.sender.clone(), self.root.clone());
        let accepted = self.pool.push(target.account(&root), move || {
            let reply = take_reply(|| target.query_guest(&root));
            // At the end there is no receiver any more.
            let _ = sender.send((target.id, reply));
        });
        self.under_way += usize::from(accepted);
        accepted
    }

    /// Returns a reply that has arrived, if any.
    pub(super) fn answer(&mut self) -> Option<(GuestId, HypervisorReply)> {
        let answer = self.answers.try_recv().ok()?;
        self.under_way = self.under_way.saturating_sub(1);
        Some(answer)
    }

    /// Waits for a reply for at most `patience`. Returns `None` at once if no query is pending.
    pub(super) fn answer_within(&mut self, patience: Duration) -> Option<(GuestId, HypervisorReply)> {
        if self.under_way == 0 {
            return None;
        }
        let answer = self.answers.recv_timeout(patience).ok()?;
        self.under_way -= 1;
        Some(answer)
    }
}

/// Returns the reply to a query, and an empty one if the query breaks off: its guest would stay under way.
fn take_reply(query: impl FnOnce() -> HypervisorReply) -> HypervisorReply {
    catch_unwind(AssertUnwindSafe(query)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_breaks_off_has_an_empty_reply() {
        let reply = take_reply(|| panic!("a fault of the program"));
        assert!(reply.memory_bytes.is_none() && reply.error.is_none());
    }
}
