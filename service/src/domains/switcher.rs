//! Switches guests in the background: un-merging a large guest takes seconds, and a monitor may hang.

use ksmith_core::guest::GuestId;
use ksmith_host::fair_pool::PoolLimits;
use ksmith_host::guests::{GuestRequests, GuestTarget, SwitchError};

/// Switches under way. One that hangs holds its thread for ten minutes.
pub(super) const LIMITS: PoolLimits =
    PoolLimits { threads: 16, of_users: 6, of_one_user: 1, waiting_of_one_user: 64, waiting_of_host: 1 << 16 };

/// The outcome of an order.
#[derive(Debug)]
pub struct SwitchOutcome {
    /// The guest's first process.
    pub id: GuestId,
    /// The guest's name.
    pub name: String,
    /// True if it was to be switched on.
    pub on: bool,
    /// Success, or the reason for the failure.
    pub result: Result<(), SwitchFailure>,
}

/// A guest that was not switched.
#[derive(Debug, thiserror::Error)]
pub enum SwitchFailure {
    /// It can't be.
    #[error(transparent)]
    Guest(#[from] SwitchError),
    /// The queue of its user is full.
    #[error("too many guests of its user wait to be switched")]
    QueueFull,
}

/// Orders a guest switched. Its outcome comes in any case.
pub(super) fn order(switches: &mut GuestRequests<SwitchOutcome>, target: GuestTarget, on: bool) {
    let (id, name) = (target.id, target.name.clone());
    let is_accepted = switches.queue(target, move |root, target| {
        let result = target.switch(root, on, false).map(|_| ()).map_err(SwitchFailure::from);
        SwitchOutcome { id, name: target.name, on, result }
    });
    if !is_accepted {
        switches.add_outcome(SwitchOutcome { id, name, on, result: Err(SwitchFailure::QueueFull) });
    }
}
