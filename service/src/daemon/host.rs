//! The daemon's interface to a host, beyond samples and settings.

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::controller::KsmHost;
use ksmith_core::huge_worth::SplitLosses;
use ksmith_core::sample::{FoldedFigure, ProcessId, Sample};
use ksmith_host::act::{AffinityError, LostState, RestoreError, StateDir};
use ksmith_host::live::LiveHost;
use ksmith_host::observe::ProcessEvent;
use ksmith_host::other_controllers::{ControllerProcess, find};
use ksmith_host::root::Root;

/// A host that the daemon can control: the live kernel, or a simulated one in tests.
pub trait DaemonHost: KsmHost {
    /// Returns the root of this host's files.
    fn root(&self) -> &Root;

    /// Returns the directory of state that outlives the daemon.
    fn state_dir(&self) -> StateDir {
        StateDir::from_root(self.root())
    }

    /// Samples the host outside a turn. With `closely`, no figure of a process is reused from an earlier sample.
    fn sample_now(&mut self, closely: bool) -> Sample;

    /// Handles starts and ends of processes. Returns true if a turn is worthwhile at once.
    fn notice(&mut self, events: Vec<ProcessEvent>) -> bool;

    /// Returns the time until a new process is due for its first look, if there is one.
    fn next_glance(&self) -> Option<Duration> {
        None
    }

    /// Looks at new processes only. Returns true if one of them has mergeable memory.
    fn glance(&mut self) -> bool {
        false
    }

    /// Makes the next sample look at every process.
    fn look_at_all(&mut self);

    /// Has what page tables show read anew, without waiting for it; a no-op by default.
    fn renew_readings(&mut self) {}

    /// Ends what [`Self::renew_readings`] has begun; a no-op by default.
    fn cancel_readings(&mut self) {}

    /// Returns true until samples have what was read anew; never by default.
    fn is_renewing_readings(&self) -> bool {
        false
    }

    /// Sets the shortness of memory, from 0 to 1, in the following samples.
    fn set_pool_shortness(&mut self, shortness: f64);

    /// Sets the loss of programs by split huge pages, in the following samples.
    fn set_split_losses(&mut self, losses: SplitLosses);

    /// Sets the folded memory of processes in the following samples.
    fn set_folded(&mut self, folded: BTreeMap<ProcessId, FoldedFigure>);

    /// Binds ksmd to a list of CPUs. Returns the list before, if it differs.
    ///
    /// # Errors
    /// See [`AffinityError`].
    fn bind_ksmd(&mut self, cpus: &str) -> Result<Option<String>, AffinityError>;

    /// Calls `tell` whenever ksmd pauses at a pass boundary; a no-op by default.
    fn on_rest(&mut self, _tell: Box<dyn Fn() + Send + Sync>) {}

    /// Returns the reason to end at once, if a second ksmith could start beside this one; `None` by default.
    fn find_lost_state(&self) -> Option<LostState> {
        None
    }

    /// Returns the other programs that control KSM.
    fn holders(&self) -> Vec<ControllerProcess>;

    /// Restores the changed settings. Returns sentences about them.
    ///
    /// # Errors
    /// A setting could not be restored.
    fn restore(self) -> Result<Vec<String>, RestoreError>;
}

impl DaemonHost for LiveHost {
    fn root(&self) -> &Root {
        self.control.root()
    }

    fn sample_now(&mut self, closely: bool) -> Sample {
        if closely {
            self.observer.look_closely();
        }
        LiveHost::sample_without_pages(self)
    }

    fn notice(&mut self, events: Vec<ProcessEvent>) -> bool {
        self.observer.notice_all(events)
    }

    fn next_glance(&self) -> Option<Duration> {
        self.observer.next_glance()
    }

    fn glance(&mut self) -> bool {
        self.observer.glance()
    }

    fn look_at_all(&mut self) {
        self.observer.look_at_all();
    }

    fn renew_readings(&mut self) {
        LiveHost::renew_readings(self);
    }

    fn cancel_readings(&mut self) {
        LiveHost::cancel_readings(self);
    }

    fn is_renewing_readings(&self) -> bool {
        LiveHost::is_renewing_readings(self)
    }

    fn set_pool_shortness(&mut self, shortness: f64) {
        self.observer.pool_shortness = shortness;
    }

    fn set_split_losses(&mut self, losses: SplitLosses) {
        self.split_losses = losses;
    }

    fn set_folded(&mut self, folded: BTreeMap<ProcessId, FoldedFigure>) {
        self.folded = folded;
    }

    fn bind_ksmd(&mut self, cpus: &str) -> Result<Option<String>, AffinityError> {
        self.control.bind_ksmd(cpus)
    }

    fn on_rest(&mut self, tell: Box<dyn Fn() + Send + Sync>) {
        self.control.writer().on_rest(tell);
    }

    fn find_lost_state(&self) -> Option<LostState> {
        self.control.find_lost_state()
    }

    fn holders(&self) -> Vec<ControllerProcess> {
        find(self.control.root())
    }

    fn restore(self) -> Result<Vec<String>, RestoreError> {
        let restored = self.control.restore()?;
        let changes = restored.changes.iter().map(|change| format!("restored {change}"));
        Ok(changes.chain(restored.notes).collect())
    }
}
