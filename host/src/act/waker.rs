//! The writer's state for waking ksmd.

use std::sync::Arc;
use std::time::Duration;

use super::lease::{Ksmd, Lease};
use super::on_rest::OnRest;

/// The lease of a writer, and the ksmd that is woken under it.
#[derive(Debug, Default)]
pub(super) struct Waker {
    /// The lease in force.
    pub(super) lease: Option<Lease>,
    /// `None` before the first search; `Some(None)` if it can't be woken.
    pub(super) ksmd: Option<Option<Arc<Ksmd>>>,
    /// Time limit for a stop to wait for the end of a batch.
    pub(super) patience: Option<Duration>,
    /// The callback for a ksmd that has come to rest.
    pub(super) on_rest: OnRest,
}
