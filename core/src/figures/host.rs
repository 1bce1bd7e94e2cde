//! Figures of the host.

use super::figure::figures;
use super::{FigureRow, FigureScalar, ModelFigure};
use crate::account::HostTotals;
use crate::field::FigureDescription;
use crate::huge_worth::SplitMemory;
use crate::kernel::{FIELDS, Meminfo};
use crate::model::{GuestsReport, StatusReport};

figures! {
    /// Figures of the host beside the files of `/sys/kernel/mm/ksm`.
    HOST of StatusReport {
        "page_size": u64, Bytes State (2 6), "sysconf(_SC_PAGESIZE)",
            "The host's base page size.",
            |status| status.sample.page_size;
        "saved_bytes": u64, Bytes Gauge (2 6), "(pages_sharing + ksm_zero_pages) * page_size + folded_bytes, less what page tables show un-merged",
            "Memory that is not needed because pages are merged, or zeros of split huge pages freed.",
            |status| known(status, |totals| totals.saved_bytes);
        "folded_bytes": u64, Bytes Gauge (6 12), "PAGEMAP_SCAN: PAGE_IS_PFNZERO since the first look, less ksm_zero_pages",
            "Part of saved_bytes that splitting huge pages freed: zeros, as far as the daemon looked.",
            |status| status.sample.folded_bytes;
        "unverified_bytes": u64, Bytes Gauge (2 6), "saved_bytes of processes whose page tables were not read in ten minutes",
            "Part of saved_bytes that no page tables confirm. Collapses may have undone it, and it lacks freed zeros.",
            |status| known(status, |totals| totals.unverified_bytes);
        "earlier_zero_bytes": u64, Bytes Gauge (6 12), "PAGEMAP_SCAN: PAGE_IS_PFNZERO at the first look, less ksm_zero_pages",
            "Most that splits freed before the first look, and saved_bytes lacks; null where a look is missing.",
            |status| HostTotals::from_sample(&status.sample).earlier_zero_bytes;
        "oldest_reading_seconds": u64, Seconds Gauge (6 7), "the clock",
            "Age of the oldest reading of page tables that saved_bytes goes by.",
            |status| HostTotals::from_sample(&status.sample).oldest_reading_seconds;
        "huge_bytes": u64, Bytes Gauge (6 7), "/proc/PID/smaps_rollup: AnonHugePages",
            "Memory in huge pages of the processes that merge, as far as the daemon looked.",
            |status| HostTotals::from_sample(&status.sample).huge_bytes;
        "split_bytes": u64, Bytes Gauge (6 7), "most of huge_bytes so far, as far as it is there - huge_bytes",
            "Memory of these processes that merging has split into small pages, freed zeros included.",
            |status| HostTotals::from_sample(&status.sample).split.map(|split| split.bytes);
        "split_cost_cpus": f64, Count Gauge (6 7), "CPU time by /proc/PID/stat * split part * loss by split_bytes",
            "CPU-seconds a second that splits cost at most: as much as programs lose that read at random.",
            |status| HostTotals::from_sample(&status.sample).split.map(SplitMemory::cost_cpus);
        "tracked_bytes": u64, Bytes Gauge (2 6), "(pages_shared + pages_sharing + pages_unshared + pages_volatile) * page_size",
            "Mergeable memory that ksmd has visited; it grows in the first pass over new memory.",
            |status| {
                let ksm = &status.sample.ksm;
                ksm.shows_tracked().then(|| ksm.tracked_pages().saturating_mul(status.sample.page_size))
            };
        "overhead_bytes": u64, Bytes Gauge (2 6), "64 * (pages_shared + pages_sharing + pages_unshared + pages_volatile)",
            "KSM's own metadata: 64 bytes for each page that it tracks.",
            |status| status.sample.ksm.shows_tracked().then(|| HostTotals::from_sample(&status.sample).overhead_bytes);
        "profit_bytes": i64, Bytes Gauge (2 6), "saved_bytes - overhead_bytes",
            "Memory saved less KSM's metadata; negative when KSM costs memory.",
            |status| {
                known(status, |totals| totals.profit_bytes).filter(|_| status.sample.ksm.shows_tracked())
            };
        "exposure_bytes": u64, Bytes Gauge (2 6), "saved_bytes",
            "Memory that the host would need if every merged page and every folded zero were written to.",
            |status| known(status, |totals| totals.exposure_bytes);
        "headroom_bytes": u64, Bytes Gauge (2 6), "/proc/meminfo: MemAvailable + SwapFree",
            "Memory and free swap that the host has to cover the exposure.",
            |status| HostTotals::from_sample(&status.sample).headroom_bytes;
        "host_memory_bytes": u64, Bytes Gauge (2 6), "/proc/meminfo: MemTotal",
            "All memory of the host.",
            |status| status.sample.host.memory.value().and_then(|memory| memory.total);
        "host_available_bytes": u64, Bytes Gauge (2 6), "/proc/meminfo: MemAvailable",
            "Memory of the host that can be had without swapping.",
            |status| status.sample.host.memory.value().and_then(Meminfo::obtainable);
        "committed_bytes": u64, Bytes Gauge (2 6), "sum of memory_bytes of verified guests",
            "Memory that the host's virtual machines believe to have.",
            |status| status.committed_bytes;
        "overcommit_ratio": f64, Ratio Gauge (2 6), "committed_bytes / /proc/meminfo: MemTotal",
            "Memory that virtual machines believe to have, by the host's: above 1 it is overcommitted.",
            |status| status.overcommit_ratio();
        "most_sharers": u64, Count Gauge (2 6), "min(max_page_sharing, pages_sharing + 1)",
            "Most mappings that a merged page can have: what one bad memory cell can hit.",
            |status| status.most_sharers();
        "memory_pressure_percent": f64, Percent Gauge (4 20), "/proc/pressure/memory: some avg10",
            "Part of the last ten seconds in which some work waited for memory.",
            |status| status.sample.host.memory_pressure.value().and_then(|pressure| pressure.some.avg10).map(f64::from);
        "ksmd_cpu_percent": f64, Percent Gauge (2 6), "/proc/PID/schedstat of ksmd",
            "CPU time that ksmd uses, in per cent of one CPU.",
            |status| status.ksmd_cpu_percent;
        "cow_ksm": u64, Count Counter (5 19), "/proc/vmstat: cow_ksm",
            "Merged pages that were copied because a process wrote to them.",
            |status| status.sample.host.vmstat.value().and_then(|vm| vm.cow_ksm);
        "unattributed_bytes": u64, Bytes Gauge (2 6), "saved_bytes - sum of the processes' saved_bytes",
            "Memory saved in processes that hide their figures from this user.",
            |status| status.sample.ksm.shows_savings().then(|| status.processes().1);
        "hidden_processes": u64, Count Gauge (2 6), "/proc/PID/ksm_stat",
            "Processes that hide their KSM figures from this user.",
            |status| status.sample.hidden_processes;
        "given_up_processes": u64, Count Gauge (2 6), "/proc/PID",
            "Processes that are not read: they do not answer, or are more, or hold more, than is read; errors say why.",
            |status| status.sample.given_up.count;
        "over_budget_processes": u64, Count Gauge (2 6), "/proc/PID",
            "Part of given_up_processes: more than are read of one user.",
            |status| status.sample.given_up.over_budget;
    }
}

/// Reads a figure of the host's totals, if KSM's counters of merged pages can be read.
fn known<T>(status: &StatusReport, read: impl Fn(HostTotals) -> T) -> Option<T> {
    let totals = HostTotals::from_sample(&status.sample);
    (!totals.is_unknown).then(|| read(totals))
}

figures! {
    /// Ratios and rates of the host that `guests` shows.
    EFFICIENCY of GuestsReport {
        "efficiency.sharing_per_shared": f64, Ratio Gauge (2 6), "pages_sharing / pages_shared",
            "Copies saved for each page kept: high is good, 1 means that pages only come in pairs.",
            |report| report.efficiency.sharing_per_shared;
        "efficiency.unshared_per_sharing": f64, Ratio Gauge (2 6), "pages_unshared / pages_sharing",
            "Unique pages tracked for each page saved: above 64, metadata costs more than is saved.",
            |report| report.efficiency.unshared_per_sharing;
        "efficiency.volatile_part": f64, Ratio Gauge (2 6),
            "pages_volatile / (pages_shared + pages_sharing + pages_unshared + pages_volatile)",
            "Part of the pages that changed too fast or that smart_scan skipped; only cow_ksm tells churn.",
            |report| report.efficiency.volatile_part;
        "cow_ksm_per_second": f64, PerSecond Gauge (5 19), "increase of cow_ksm / time",
            "Merged pages that writes broke, per second: the churn of merging.",
            |report| report.cow_ksm_per_second;
    }
}

/// Figures of the host that `guests` shows too, under the same keys.
pub const HOST_IN_GUESTS: &[ModelFigure<GuestsReport>] = &[
    again("saved_bytes", |report| (!report.is_unknown).then_some(report.saved_bytes).into()),
    again("profit_bytes", |report| (!report.is_unknown).then_some(report.profit_bytes).into()),
    again("unattributed_bytes", |report| (!report.is_unknown).then_some(report.unattributed_bytes).into()),
    again("cow_ksm", |report| report.cow_ksm.into()),
];

/// Creates a figure of [`HOST`] that is read from another model.
const fn again<M>(key: &'static str, read: fn(&M) -> FigureScalar) -> ModelFigure<M> {
    let mut at = 0;
    while !is_same(HOST[at].field.name.as_bytes(), key.as_bytes()) {
        at += 1;
    }
    ModelFigure { field: HOST[at].field, heading: None, importance: 0, read }
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Returns all figures of the host with their values: the files of KSM first.
pub fn host(status: &StatusReport) -> impl Iterator<Item = (FigureDescription, FigureScalar)> {
    let of_ksm = status.sample.ksm.entries().map(|(field, reading)| {
        (*field, reading.value().map_or(FigureScalar::Unknown, |value| FigureScalar::from(*value)))
    });
    of_ksm.chain(HOST.iter().map(|figure| (figure.field, (figure.read)(status))))
}

/// Returns the rows of [`host`].
pub fn rows() -> impl Iterator<Item = FigureRow> {
    let of_ksm = FIELDS.iter().map(|field| FigureRow { field: *field, heading: None });
    of_ksm.chain(HOST.iter().map(ModelFigure::row))
}
