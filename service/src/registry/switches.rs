//! Switches guests for the registry.

use ksmith_host::act::{NoHeadroom, UndoError};
use ksmith_host::fair_pool::PoolLimits;
use ksmith_host::guests::{GuestRequests, GuestTarget, SwitchError, SwitchedBackend};

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
    #[error("too many guests of its user wait to be switched")]
    QueueFull,
}

/// Orders a guest switched.
pub(super) fn order(
    switches: &mut GuestRequests<Done>,
    target: GuestTarget,
    on: bool,
) -> Result<(), SwitchOrderError> {
    let is_accepted = switches.queue(target, move |root, target| {
        let outcome = target.switch(root, on, false);
        (target, on, outcome)
    });
    if is_accepted { Ok(()) } else { Err(SwitchOrderError::QueueFull) }
}
