//! One view of the guests for everybody who needs it: they are named once, and their hypervisors asked once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Guests, Uri};
use crate::root::Root;

/// [`Guests`] that several threads use. Held for as long as naming takes; nothing in it waits for a hypervisor.
#[derive(Debug, Clone)]
pub struct SharedGuests {
    root: Root,
    guests: Arc<Mutex<Guests>>,
}

impl SharedGuests {
    /// Knows nobody yet.
    pub fn new(root: Root, libvirt: Uri) -> Self {
        Self { guests: Arc::new(Mutex::new(Guests::new(root.clone(), libvirt))), root }
    }

    /// The guests, for this thread alone until the guard is dropped.
    pub fn lock(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks another libvirt from now on. Who is known is forgotten.
    pub fn ask_libvirt_at(&self, libvirt: Uri) {
        *self.lock() = Guests::new(self.root.clone(), libvirt);
    }
}
