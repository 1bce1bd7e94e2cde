//! The writer's state for waking ksmd.

use std::sync::Arc;
use std::time::Duration;

use super::lease::{KsmdLease, LeasedKsmd};
use super::on_rest::RestCallback;

/// The lease of a writer, and the ksmd that is woken under it.
#[derive(Debug, Default)]
pub(super) struct WriterLease {
    /// The lease in force.
    pub(super) lease: Option<KsmdLease>,
    /// `None` before the first search; `Some(None)` if it can't be woken.
    pub(super) ksmd: Option<Option<Arc<LeasedKsmd>>>,
    /// Time limit for a stop to wait for the end of a batch.
    pub(super) patience: Option<Duration>,
    /// The callback for a ksmd that has come to rest.
    pub(super) on_rest: RestCallback,
}
