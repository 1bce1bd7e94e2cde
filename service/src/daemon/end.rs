//! The end of the daemon: the order in which parts are restored.

use ksmith_host::act::{LostState, RestoreError};
use ksmith_host::guests::OffList;
use ksmith_host::live::LiveHost;
use tracing::{info, warn};

use super::DaemonHost;
use crate::balance_service::BalanceService;
use crate::domains::switch_on_again;
use crate::folder::Folder;
use crate::notifier::Notifier;
use crate::recorder::Recorder;
use crate::registry::GuestRegistry;
use crate::sketcher::Sketcher;

/// The parts of a daemon that are restored after its last turn.
#[derive(Debug)]
pub struct EndedDaemon<H = LiveHost> {
    pub(super) host: H,
    pub(super) balance: Option<BalanceService>,
    pub(super) guests: Option<GuestRegistry>,
    pub(super) off: Option<OffList>,
    pub(super) recorder: Option<Recorder>,
    pub(super) sketcher: Option<Sketcher>,
    pub(super) folder: Option<Folder>,
    pub(super) notifier: Option<Notifier>,
    /// The fault for which it ended, if it was not told to end.
    pub lost: Option<LostState>,
    /// The time of the end, in milliseconds since 1970.
    pub(super) day_clock: i64,
}

impl<H: DaemonHost> EndedDaemon<H> {
    /// Restores the settings, which need no guest's answer. Then guests get their memory back, and last they are
    /// switched on: a guest that is switched on earlier might merge with other domains. Returns sentences that say what
    /// was done.
    ///
    /// # Errors
    /// A setting could not be restored. The guests are seen to all the same.
    pub fn restore(self) -> Result<Vec<String>, RestoreError> {
        let root = self.host.root().clone();
        let restored = self.host.restore();
        drop(self.balance);
        drop(self.guests);
        let of_guests = self.off.map(|off| switch_on_again(&root, &off, false)).unwrap_or_default();
        // Last: neither a disk nor a command that hangs delays what is restored.
        if let Some(recorder) = self.recorder {
            recorder.end(self.day_clock);
        }
        drop(self.sketcher);
        drop(self.folder);
        drop(self.notifier);
        match restored {
            Ok(notes) => Ok(notes.into_iter().chain(of_guests).collect()),
            Err(error) => {
                if let RestoreError::Incomplete { restored, .. } = &error {
                    restored.changes.iter().for_each(|change| info!("restored {change}"));
                    restored.notes.iter().for_each(|note| warn!("{note}"));
                }
                of_guests.iter().for_each(|note| info!("{note}"));
                Err(error)
            }
        }
    }
}
