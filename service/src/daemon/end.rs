//! The daemon's end: what is restored, and in which order.

use ksmith_core::decide::domains::OnExit;
use ksmith_host::act::RestoreError;
use ksmith_host::guests::{OffList, Uri};
use ksmith_host::live::LiveHost;

use super::DaemonHost;
use crate::domains::switch_on_again;

/// What a daemon leaves to be restored at its end.
#[derive(Debug)]
pub struct Ended<H = LiveHost> {
    pub(super) host: H,
    pub(super) off: Option<OffList>,
    pub(super) on_exit: OnExit,
    pub(super) libvirt: Uri,
}

impl<H: DaemonHost> Ended<H> {
    /// Restores the settings, and then the guests: a guest that is switched on earlier might merge with other domains.
    /// Returns sentences that say what was done.
    ///
    /// # Errors
    /// A setting could not be restored. The guests stay as they are then.
    pub fn restore(self) -> Result<Vec<String>, RestoreError> {
        let root = self.host.root().clone();
        let mut notes = self.host.restore()?;
        if let Some(off) = &self.off {
            notes.extend(switch_on_again(&root, off, self.on_exit, &self.libvirt, false));
        }
        Ok(notes)
    }
}
