//! The CPUs of ksmd: listed ones, or those that the processes with mergeable memory leave free.

use std::time::{Duration, Instant};

use ksmith_core::controller::TickOutcome;
use ksmith_core::diagnose::KsmdPlacement;
use ksmith_core::kernel::number_list;
use ksmith_core::knobs::Knob;
use ksmith_host::doctor::ksmd_placement;
use tracing::{info, warn};

use super::{Daemon, DaemonHost};
use crate::config::KsmdCpus;

/// The shortest time between two looks at the CPUs of all processes while ksmd runs.
const LOOK_PAUSE: Duration = Duration::from_secs(10);

/// The CPUs that ksmd was bound to last, and the time of the last look at those of the processes.
#[derive(Debug, Default)]
pub(super) struct KsmdBinding {
    cpus: Option<String>,
    looked: Option<Instant>,
}

impl<H: DaemonHost> Daemon<H> {
    /// Binds ksmd to a list of CPUs, and logs the change. A failure is logged once for each list.
    pub(super) fn bind_ksmd(&mut self, cpus: &str) {
        if self.binding.cpus.as_deref() == Some(cpus) {
            return;
        }
        self.binding.cpus = Some(cpus.to_owned());
        match self.controller.host_mut().bind_ksmd(cpus) {
            Ok(Some(before)) => info!("ksmd runs on CPUs {cpus} only (before: {before})"),
            Ok(None) => {}
            Err(why) => warn!("{why}"),
        }
    }

    /// Moves ksmd to the CPUs that are free when a scan begins, and from time to time while it goes on
    /// (`ksmd_cpus = "auto"`). Where none is free it may use all.
    pub(super) fn follow_spare_cpus(&mut self, tick: &TickOutcome) {
        if self.config.daemon.ksmd_cpus != Some(KsmdCpus::Spare) {
            return;
        }
        if tick.decision.knobs.get(Knob::Run) != Some(1) {
            self.binding.looked = None;
            return;
        }
        let now = self.environment.now();
        if self.binding.looked.is_some_and(|then| now.duration_since(then) < LOOK_PAUSE) {
            return;
        }
        self.binding.looked = Some(now);
        let Some(placement) = ksmd_placement(self.controller.host().root(), &tick.sample) else { return };
        if let Some(cpus) = wanted_cpus(&placement, self.binding.cpus.is_some()) {
            self.bind_ksmd(&cpus);
        }
    }
}

/// Returns the list of CPUs for ksmd; `None` to leave it as it is.
fn wanted_cpus(placement: &KsmdPlacement, is_bound: bool) -> Option<String> {
    let spare = placement.spare_cpus();
    match () {
        () if !spare.is_empty() => Some(number_list(&spare)),
        () if is_bound => Some(number_list(&placement.online)),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ksmd_runs_where_no_process_may_and_anywhere_if_they_may_run_everywhere() {
        let placement = |guests: &[u32]| KsmdPlacement {
            online: (0..4).collect(),
            of_guests: guests.iter().copied().collect(),
            ..KsmdPlacement::default()
        };
        assert_eq!(wanted_cpus(&placement(&[1, 2]), false).as_deref(), Some("0,3"));
        assert_eq!(wanted_cpus(&placement(&[0, 1, 2, 3]), false), None);
        assert_eq!(wanted_cpus(&placement(&[0, 1, 2, 3]), true).as_deref(), Some("0-3"));
    }
}
