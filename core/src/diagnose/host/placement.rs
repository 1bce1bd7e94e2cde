//! The CPUs of ksmd and of the guests.

use std::collections::BTreeSet;

use super::{Finding, HostCircumstances, Severity, finding};
use crate::kernel::number_list;

/// The CPUs on which ksmd and the guests may run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KsmdPlacement {
    /// The CPUs that are online.
    pub online: BTreeSet<u32>,
    /// Those on which ksmd may run.
    pub of_ksmd: BTreeSet<u32>,
    /// Those on which a process with mergeable memory may run. Empty if there is none.
    pub of_guests: BTreeSet<u32>,
    /// Those that other programs keep busy, as far as that was looked at.
    pub busy: BTreeSet<u32>,
    /// Those that the scheduler leaves to programs bound to them (`isolcpus`).
    pub isolated: BTreeSet<u32>,
    /// True if the scheduler groups processes by session (`sched_autogroup_enabled`).
    pub is_autogrouped: bool,
    /// `cpu.weight` of the first guest's control group.
    pub guest_weight: Option<u64>,
}

impl KsmdPlacement {
    /// Returns the CPUs that are free for ksmd: those on which no process with mergeable memory may run, and which nobody else uses.
    pub fn spare_cpus(&self) -> BTreeSet<u32> {
        let is_used =
            |cpu: &u32| [&self.of_guests, &self.busy, &self.isolated].iter().any(|cpus| cpus.contains(cpu));
        self.online.iter().copied().filter(|cpu| !is_used(cpu)).collect()
    }
}

/// ksmd may run where the guests run, although there are CPUs that they leave free.
pub(super) fn shared_cpus(circumstances: &HostCircumstances) -> Option<Finding> {
    let placement = circumstances.placement.as_ref()?;
    let spare = placement.spare_cpus();
    let is_apart = placement.of_ksmd.is_disjoint(&placement.of_guests);
    if placement.of_guests.is_empty() || spare.is_empty() || is_apart {
        return None;
    }
    let niceness = match (placement.is_autogrouped, placement.guest_weight) {
        (_, Some(weight)) => format!("; beside a control group of cpu.weight {weight} its niceness counts little"),
        (true, None) => "; with sched_autogroup_enabled=1 its niceness counts little".to_owned(),
        (false, None) => String::new(),
    };
    Some(finding(
        "ksmd-cpus",
        Severity::Note,
        format!(
            "the processes with mergeable memory may run on CPUs {} only, and ksmd on {}: it takes its time from \
             theirs{niceness}",
            number_list(&placement.of_guests),
            number_list(&placement.of_ksmd)
        ),
        format!(
            "ksmd_cpus = \"auto\" in [daemon] keeps it on CPUs that they leave free, now {}",
            number_list(&spare)
        ),
    ))
}
