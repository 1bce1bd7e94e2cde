//! The CPUs of ksmd: listed ones, or those that the processes with mergeable memory leave free.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ksmith_core::controller::TickOutcome;
use ksmith_core::diagnose::KsmdPlacement;
use ksmith_core::kernel::{CpuLoads, number_list};
use ksmith_core::knobs::Knob;
use ksmith_host::cpus::cpu_loads;
use ksmith_host::doctor::ksmd_placement;
use ksmith_host::root::Root;
use tracing::{info, warn};

use super::{Daemon, DaemonHost};
use crate::config::KsmdCpus;

/// The shortest time between two looks at the CPUs of all processes while ksmd runs.
const LOOK_PAUSE: Duration = Duration::from_secs(10);

/// The CPUs that ksmd was bound to last, and the looks at those of the processes.
#[derive(Debug, Default)]
pub(super) struct KsmdBinding {
    cpus: Option<String>,
    /// The CPUs that ksmd had before it was bound.
    before: Option<String>,
    looked: Option<Instant>,
    /// The last look at what the CPUs do, and those that were busy between it and the one before.
    loads: Option<(Instant, CpuLoads)>,
    busy: BTreeSet<u32>,
}

impl KsmdBinding {
    /// Looks at what the CPUs do while ksmd does nothing: a CPU that ksmd runs on is busy by that alone.
    fn follow_loads(&mut self, root: &Root, now: Instant) {
        if self.loads.as_ref().is_some_and(|(then, _)| now.duration_since(*then) < LOOK_PAUSE) {
            return;
        }
        let loads = cpu_loads(root);
        if let Some((_, before)) = &self.loads {
            self.busy = loads.busy_since(before);
        }
        self.loads = Some((now, loads));
    }
}

impl<H: DaemonHost> Daemon<H> {
    /// Binds ksmd to a list of CPUs, and logs the change. A failure is logged once for each list.
    pub(super) fn bind_ksmd(&mut self, cpus: &str) {
        if self.binding.cpus.as_deref() == Some(cpus) {
            return;
        }
        self.binding.cpus = Some(cpus.to_owned());
        match self.controller.host_mut().bind_ksmd(cpus) {
            Ok(Some(before)) => {
                info!("ksmd runs on CPUs {cpus} only (before: {before})");
                self.binding.before.get_or_insert(before);
            }
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
        let now = self.environment.now();
        if tick.decision.knobs.get(Knob::Run) != Some(1) {
            self.binding.looked = None;
            self.binding.follow_loads(self.controller.host().root(), now);
            return;
        }
        // What they did before the scan holds until its end.
        self.binding.loads = None;
        if self.binding.looked.is_some_and(|then| now.duration_since(then) < LOOK_PAUSE) {
            return;
        }
        self.binding.looked = Some(now);
        let Some(placement) = ksmd_placement(self.controller.host().root(), &tick.sample) else { return };
        let placement = KsmdPlacement { busy: self.binding.busy.clone(), ..placement };
        if let Some(cpus) = wanted_cpus(&placement, self.binding.before.as_deref()) {
            self.bind_ksmd(&cpus);
        }
    }
}

/// Returns the list of CPUs for ksmd, which had `before` until it was bound; `None` to leave it as it is.
fn wanted_cpus(placement: &KsmdPlacement, before: Option<&str>) -> Option<String> {
    let spare = placement.spare_cpus();
    if spare.is_empty() { before.map(str::to_owned) } else { Some(number_list(&spare)) }
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
        assert_eq!(wanted_cpus(&placement(&[1, 2]), None).as_deref(), Some("0,3"));
        assert_eq!(wanted_cpus(&placement(&[0, 1, 2, 3]), None), None);
        assert_eq!(wanted_cpus(&placement(&[0, 1, 2, 3]), Some("0-2")).as_deref(), Some("0-2"));
        // Other jobs run on those that these leave free.
        let shared = KsmdPlacement { busy: [3].into(), ..placement(&[1, 2]) };
        assert_eq!(wanted_cpus(&shared, None).as_deref(), Some("0"));
    }

    #[test]
    fn what_the_cpus_do_is_looked_at_while_ksmd_does_nothing() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("proc")).unwrap();
        let put = |busy: u32, idle: u32| {
            std::fs::write(tree.path().join("proc/stat"), format!("cpu  0 0 0 0\ncpu7 {busy} 0 0 {idle}\n"))
                .unwrap();
        };
        let (root, began) = (Root::at(tree.path()), Instant::now());
        let mut binding = KsmdBinding::default();
        let mut look = |seconds, busy, idle| {
            put(busy, idle);
            binding.follow_loads(&root, began + Duration::from_secs(seconds));
            binding.busy.contains(&7)
        };
        assert!(!look(0, 100, 100));
        assert!(!look(5, 150, 100), "too soon");
        assert!(look(10, 200, 100));
        assert!(!look(20, 200, 300));
    }
}
