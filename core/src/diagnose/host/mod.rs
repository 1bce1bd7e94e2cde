//! Diagnosis of KSM on this host: findings with their evidence and their remedy.

mod domains;
mod huge_pages;
mod ksmith;
mod memory;
mod others;
mod placement;
mod scanning;

use schemars::JsonSchema;
use serde::Serialize;

pub use self::huge_pages::HugePageCircumstances;
pub use self::placement::KsmdPlacement;

use crate::field::KernelVersion;
use crate::other_controllers::{FoundController, name::UKSM};
use crate::reading::{Malformed, Reading};
use crate::sample::Sample;

/// The weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// KSM does not work, or endangers the host.
    Problem,
    /// KSM does less, or costs more, than it could.
    Warning,
    /// A fact worth knowing.
    Note,
}

/// One finding of the doctor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Its stable name.
    pub code: &'static str,
    /// The weight of the finding.
    pub severity: Severity,
    /// The fact, with the figures that show it.
    pub what: String,
    /// The remedy, with its command.
    pub remedy: String,
}

/// The presence of a ksmith that controls KSM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DaemonPresence {
    /// No ksmith controls KSM.
    #[default]
    Absent,
    /// This user can't see whether one does.
    Hidden,
    /// A daemon, a scan or a demo does.
    Present,
}

/// The facts that are not in the sample.
#[derive(Debug, Clone, Default)]
pub struct HostCircumstances {
    /// The running kernel.
    pub kernel: Option<KernelVersion>,
    /// The presence of a ksmith that controls KSM.
    pub daemon: DaemonPresence,
    /// Other controllers of KSM that run, start at boot or are installed.
    pub others: Vec<FoundController>,
    /// True if settings that an earlier ksmith changed must still be restored.
    pub unrestored: bool,
    /// The consequence of guests sharing pages without trusting each other, in a sentence, if they may.
    pub side_channel: Option<String>,
    /// Memory that domains share now although they must be kept apart.
    pub shared_across_bytes: u64,
    /// Guests with remaining mergeable memory: their RAM is switched off and their firmware is not.
    pub remaining_mergeable: Vec<String>,
    /// The reason why this kernel can't keep domains apart as the configuration wants.
    pub domains_refused: Option<String>,
    /// The reason why the daemon keeps ksmd parked to keep domains apart, if it does.
    pub guarded: Option<String>,
    /// The fault of a damaged journal. No ksmith starts beside it.
    pub damaged_journal: Option<String>,
    /// The CPUs of ksmd and of the guests; `None` where they can't be read.
    pub placement: Option<KsmdPlacement>,
    /// NUMA nodes with memory.
    pub memory_nodes: usize,
    /// The state of transparent huge pages.
    pub huge_pages: HugePageCircumstances,
    /// Lines of /proc/meminfo with an impossible value, each with the fault.
    pub impossible_lines: Vec<Malformed>,
    /// The number of guests with less memory than their whole and no daemon to give it back.
    pub unreturned_guests: usize,
}

/// Returns all findings, the worst first.
pub fn diagnose(sample: &Sample, circumstances: &HostCircumstances) -> Vec<Finding> {
    if let Some(finding) = ksm_itself(sample) {
        let in_its_place = circumstances.others.iter().filter(|found| found.controller.name == UKSM);
        let others = in_its_place.filter_map(|found| others::finding_of(found, circumstances.daemon));
        return [finding].into_iter().chain(others).collect();
    }
    let checks = [
        scanning::run_state(sample, circumstances),
        scanning::nothing_mergeable(sample),
        scanning::pace(sample, circumstances),
        scanning::smart_scan(sample, circumstances),
        placement::shared_cpus(circumstances),
        memory::exposure(sample),
        memory::impossible_lines(circumstances),
        memory::malformed_counters(sample),
        memory::metadata(sample, circumstances),
        memory::chains(sample),
        memory::across_nodes(sample, circumstances),
        memory::zero_pages(sample),
        memory::lost_zero_pages(sample),
        memory::folding(sample),
        huge_pages::undone(sample, circumstances),
        huge_pages::price(sample, circumstances),
        huge_pages::other_writer(circumstances),
        huge_pages::damon(sample, circumstances),
        scanning::sparse_giants(sample, circumstances),
        ksmith::unrestored(circumstances),
        domains::side_channel(circumstances),
        domains::shared_across(circumstances),
        domains::remaining_mergeable(circumstances),
        domains::guarded(circumstances),
        domains::refused(circumstances),
        ksmith::damaged_journal(circumstances),
        ksmith::unreturned(circumstances),
    ];
    let mut findings: Vec<Finding> = checks.into_iter().flatten().collect();
    findings
        .extend(circumstances.others.iter().filter_map(|found| others::finding_of(found, circumstances.daemon)));
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn finding(code: &'static str, severity: Severity, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { code, severity, what: what.into(), remedy: remedy.into() }
}

fn ksm_itself(sample: &Sample) -> Option<Finding> {
    let (code, what, remedy) = match &sample.ksm.run {
        Reading::Value(_) => return None,
        Reading::Absent => (
            "no-ksm",
            "this kernel has no KSM: there is no /sys/kernel/mm/ksm".to_owned(),
            "use a kernel with CONFIG_KSM=y; in a container, ask on the host",
        ),
        Reading::Denied => (
            "no-privilege",
            "/sys/kernel/mm/ksm/run may not be read by this user".to_owned(),
            "run as root, or outside the sandbox that hides it",
        ),
        Reading::Malformed(why) => (
            "malformed",
            format!("/sys/kernel/mm/ksm/run makes no sense: {why}"),
            "this is not a kernel's file: check what is mounted there",
        ),
    };
    Some(finding(code, Severity::Problem, what, remedy))
}

#[cfg(test)]
mod tests;
