//! Savings, costs and exposure of merging.

use super::{DaemonPresence, Finding, HostCircumstances, Severity, finding};
use crate::account::HostTotals;
use crate::reading::Reading;
use crate::sample::Sample;
use crate::units::Bytes;

pub(super) fn exposure(sample: &Sample) -> Option<Finding> {
    let totals = HostTotals::from_sample(sample);
    totals.is_overexposed().then(|| {
        finding(
            "exposure",
            Severity::Problem,
            format!(
                "if every merged page and every folded zero were written to, the host would need {}, and it has \
                {}",
                Bytes::from(totals.exposure_bytes),
                Bytes::from(totals.headroom_bytes.unwrap_or(0)),
            ),
            "add swap, or run fewer guests: if merged pages diverge, the kernel is left with the OOM killer; \
             [balance] with exposure = \"cover\" keeps as much ready as guests can spare \
             (/usr/share/doc/ksmith/docs/how-to/balance.md)",
        )
    })
}

/// Lines of /proc/meminfo that can't be true.
pub(super) fn impossible_lines(circumstances: &HostCircumstances) -> Option<Finding> {
    let faults: Vec<String> = circumstances.impossible_lines.iter().map(ToString::to_string).collect();
    (!faults.is_empty()).then(|| {
        finding(
            "meminfo",
            Severity::Note,
            format!("/proc/meminfo shows impossible values: {}", faults.join("; ")),
            "nothing: these lines count as unknown, free swap as none; a newer kernel, or lxcfs in a container, may show them right",
        )
    })
}

/// Files of KSM that make no sense: what merging saves, or its cost, is unknown.
pub(super) fn malformed_counters(sample: &Sample) -> Option<Finding> {
    let faults: Vec<String> = sample
        .ksm
        .entries()
        .filter_map(|(field, reading)| match reading {
            Reading::Malformed(why) => Some(format!("{}: {why}", field.name)),
            Reading::Value(_) | Reading::Absent | Reading::Denied => None,
        })
        .collect();
    (!faults.is_empty()).then(|| {
        finding(
            "counters",
            Severity::Warning,
            format!("files of /sys/kernel/mm/ksm show impossible values: {}", faults.join("; ")),
            "nothing: figures that need them are unknown; a reboot starts the kernel's counters anew",
        )
    })
}

pub(super) fn metadata(sample: &Sample, circumstances: &HostCircumstances) -> Option<Finding> {
    let totals = HostTotals::from_sample(sample);
    (!totals.is_unknown && totals.profit_bytes < 0 && sample.ksm.full_scans.get().unwrap_or(0) > 0).then(|| {
        finding(
            "loss",
            Severity::Warning,
            format!(
                "KSM costs more memory than it saves: {} saved, {} of metadata",
                Bytes::from(totals.saved_bytes),
                Bytes::from(totals.overhead_bytes)
            ),
            match circumstances.daemon {
                DaemonPresence::Present => {
                    "`ksmith scan` shows whether more would merge; if not, end the daemon (`systemctl stop ksmith`), \
                     and `ksmith unmerge` frees the metadata"
                }
                _ => "`ksmith unmerge` frees the metadata; `ksmith scan` first shows whether more would merge",
            },
        )
    })
}

pub(super) fn chains(sample: &Sample) -> Option<Finding> {
    let dups = sample.ksm.stable_node_dups.get().filter(|&dups| dups > 0)?;
    Some(finding(
        "chains",
        Severity::Note,
        format!(
            "{} contents have more copies than max_page_sharing and keep {dups} frames",
            sample.ksm.stable_node_chains.get().unwrap_or(0)
        ),
        "use_zero_pages=1 takes empty pages out of this; a larger max_page_sharing saves the rest, at the price of \
         slower reclaim",
    ))
}

/// Merged pages are read from another node's memory. Source: `merge_across_nodes` in
/// `Documentation/admin-guide/mm/ksm.rst`.
pub(super) fn across_nodes(sample: &Sample, circumstances: &HostCircumstances) -> Option<Finding> {
    let nodes = circumstances.memory_nodes;
    (nodes > 1 && sample.ksm.merge_across_nodes.get() == Some(1)).then(|| {
        finding(
            "numa",
            Severity::Note,
            format!("KSM merges pages of all {nodes} NUMA nodes, so that guests read merged pages from other nodes"),
            "`ksmith estimate` says what merging within nodes alone would save; if latency matters more than the rest: \
             `[daemon] merge_across_nodes = false`, or by hand `ksmith unmerge`, then `ksmith set merge_across_nodes=0`",
        )
    })
}

/// Empty pages from which on folding is named, in bytes.
const WORTH_FOLDING: u64 = 64 << 20;

/// Most of what merging saves are empty pages, which need no ksmd.
pub(super) fn folding(sample: &Sample) -> Option<Finding> {
    let saved = HostTotals::from_sample(sample).saved_bytes;
    let zero = sample.ksm.zero_pages().saturating_mul(sample.page_size);
    (zero >= WORTH_FOLDING && zero >= saved / 2).then(|| {
        finding(
            "folding",
            Severity::Note,
            format!("{} of the {} that KSM saves are empty pages", Bytes::from(zero), Bytes::from(saved)),
            "without ksmd: `ksmith fold` or [fold] while they are in huge pages, free page reporting for virtual machines \
             (/usr/share/doc/ksmith/docs/how-to/fold.md)",
        )
    })
}

/// Zero pages that no process has, from which on the kernel's count is named, in bytes.
const WORTH_NAMING: u64 = 64 << 20;

/// The kernel counts zero pages that no process has. Source: `move_zeropage_pte` in `mm/userfaultfd.c`.
pub(super) fn lost_zero_pages(sample: &Sample) -> Option<Finding> {
    let lost = sample.lost_zero_pages.unsigned_abs().saturating_mul(sample.page_size);
    (lost >= WORTH_NAMING).then(|| {
        let off = if sample.lost_zero_pages > 0 { "too many" } else { "too few" };
        finding(
            "zero-count",
            Severity::Note,
            format!("the kernel's ksm_zero_pages counts {} {off}; ksmith's figures are without them", Bytes::from(lost)),
            "nothing: the count is right again after a reboot; a program that moves pages by userfaultfd changes it",
        )
    })
}

pub(super) fn zero_pages(sample: &Sample) -> Option<Finding> {
    let zero = sample.ksm.ksm_zero_pages.get().filter(|&pages| pages > 0)?;
    (sample.ksm.use_zero_pages.get()? == 0).then(|| {
        finding(
            "zero-pages",
            Severity::Note,
            format!("use_zero_pages is off now, but {zero} empty pages still map the kernel's zero page"),
            "nothing: they leave it when they are written to",
        )
    })
}
