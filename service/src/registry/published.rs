//! The newest snapshot, which any thread reads without waiting.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ksmith_host::guests::GuestSnapshot;

/// A cell with the newest snapshot. Clones share it.
#[derive(Clone, Default)]
pub struct PublishedSnapshot(Arc<ArcSwap<GuestSnapshot>>);

impl fmt::Debug for PublishedSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Published").field(&self.newest().at).finish()
    }
}

impl PublishedSnapshot {
    /// Returns the newest snapshot.
    pub fn newest(&self) -> Arc<GuestSnapshot> {
        self.0.load_full()
    }

    /// Replaces the snapshot. A reader keeps the one that it has.
    pub fn publish(&self, snapshot: GuestSnapshot) {
        self.0.store(Arc::new(snapshot));
    }
}
