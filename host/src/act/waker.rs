//! What a writer has to wake ksmd with.

use std::sync::Arc;
use std::time::Duration;

use super::lease::{Ksmd, Lease};
use super::on_rest::OnRest;

/// The lease of a writer, and the ksmd that is woken under it.
#[derive(Debug, Default)]
pub(super) struct Waker {
    /// The lease in force.
    pub(super) lease: Option<Lease>,
    /// `None` until it was looked for, and the second one where it can't be woken.
    pub(super) ksmd: Option<Option<Arc<Ksmd>>>,
    /// How long a stop may wait for the end of a batch.
    pub(super) patience: Option<Duration>,
    /// What is called when ksmd has come to rest.
    pub(super) on_rest: OnRest,
}
