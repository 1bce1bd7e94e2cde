//! Figures of a guest.

use super::ModelFigure;
use super::figure::figures;
use crate::field::FigureUnit;
use crate::guest::Guest;
use crate::huge_worth::SplitMemory;
use crate::printable::strip_obeyed;

figures! {
    /// Figures of a guest. `--sort` takes each of them, and `--by` each label.
    GUEST of Guest {
        "name": String, Text State (2 6), "the hypervisor, the command line or the unit",
            "Name of the guest; two guests may have the same.",
            |guest| guest.name.clone();
        "uuid": String, Text State (2 6), "the hypervisor or the command line",
            "UUID of the guest, where its hypervisor gives one.",
            |guest| guest.uuid.clone();
        "is_verified": bool, Mode State (2 6), "libvirt's record, the cgroup, or a program of root",
            "True if name and UUID are verified, and not only the word of the guest's user.",
            |guest| guest.is_verified;
        "kind": String, Label State (2 6), "the command line and the cgroup",
            "Kind of the guest: its hypervisor, service, container or process.",
            |guest| guest.kind.to_string();
        "manager": String, Label State (2 6), "the command line, the cgroup and the manager's files",
            "Manager that started the guest, as far as that shows: libvirt, proxmox, kubernetes, podman or docker.",
            |guest| guest.manager.clone();
        "number": String, Text State (2 6), "the command line or the cgroup",
            "Number by which the manager's users know the guest: the VMID of Proxmox VE.",
            |guest| guest.number.map(|number| number.to_string());
        "program": String, Label State (2 6), "/proc/PID/cmdline",
            "Program of the guest's first process.",
            |guest| guest.program.clone();
        "user": String, Label State (2 6), "/proc/PID",
            "User of the guest's first process: a name, or a number without one.",
            |guest| guest.user.clone();
        "cgroup": String, Label State (2 6), "/proc/PID/cgroup",
            "Cgroup of the guest's first process, without /sys/fs/cgroup.",
            |guest| guest.cgroup.as_deref().map(strip_obeyed);
        "domain": String, Label State (2 6), "[domains] in the configuration",
            "Trust domain that the configuration assigns the guest to.",
            |guest| guest.domain.clone();
        "labels": String, Text State (2 6), "[[guests.label]] in the configuration",
            "Labels that the configuration gives the guest: role=db, tier=gold in tables and filters, an object in JSON.",
            |guest| guest.shown_labels();
        "obstacle": String, Text State (2 6), "the command line and /proc/PID/maps",
            "Why the guest's memory can never merge, in a word, such as vfio, shared or hugepages.",
            |guest| guest.obstacle.clone();
        "mergeable": bool, Mode State (6 14), "/proc/PID/ksm_stat: ksm_mergeable, or the monitor",
            "True if any of the guest's memory is mergeable.",
            |guest| guest.mergeable;
        "has_remaining_mergeable": bool, Mode State (6 14), "the monitor and /proc/PID/ksm_stat",
            "True if memory stays mergeable although the guest's RAM is switched off.",
            |guest| guest.has_remaining_mergeable;
        "memory_bytes": u64, Bytes State (2 6), "the hypervisor or the command line",
            "Memory that the guest believes to have, for virtual machines.",
            |guest| guest.memory_bytes;
        "rss_bytes" ["rss" 70]: u64, Bytes Gauge (2 6), "/proc/PID/stat: rss",
            "Resident memory; merged pages count in full, and shared ones in each process.",
            |guest| guest.figures.rss_bytes;
        "pss_bytes": u64, Bytes Gauge (4 14), "/proc/PID/smaps_rollup: Pss",
            "Resident memory, each page divided by the number of its mappings.",
            |guest| guest.figures.memory.pss_bytes;
        "private_bytes" ["private" 40]: u64, Bytes Gauge (4 14), "/proc/PID/smaps_rollup: Private_Clean + Private_Dirty",
            "Resident memory that no other process maps.",
            |guest| guest.figures.memory.private_bytes;
        "shared_bytes" ["shared" 30]: u64, Bytes Gauge (4 14), "pss_bytes - private_bytes",
            "The guest's part of the pages that other processes map too.",
            |guest| guest.figures.memory.shared_bytes;
        "merged_bytes" ["merged" 50]: u64, Bytes Gauge (5 19), "/proc/PID/ksm_stat: ksm_merging_pages + ksm_zero_pages",
            "Memory mapped to merged pages, zero pages included.",
            |guest| guest.figures.known(guest.figures.merged_bytes);
        "zero_bytes" ["zero" 10]: u64, Bytes Gauge (6 10), "/proc/PID/ksm_stat: ksm_zero_pages",
            "The part of merged_bytes that maps the kernel's zero page.",
            |guest| guest.figures.known(guest.figures.zero_bytes);
        "folded_bytes": u64, Bytes Gauge (6 12), "PAGEMAP_SCAN: PAGE_IS_PFNZERO since the first look, less ksm_zero_pages",
            "Zeros freed by splitting the guest's huge pages, a part of saved_bytes.",
            |guest| guest.folded_bytes;
        "huge_bytes": u64, Bytes Gauge (6 7), "/proc/PID/smaps_rollup: AnonHugePages",
            "The guest's memory in huge pages.",
            |guest| guest.huge_bytes;
        "split_bytes": u64, Bytes Gauge (6 7), "most of huge_bytes so far, as far as it is there - huge_bytes",
            "The guest's memory that merging has split into small pages, freed zeros included.",
            |guest| guest.split.map(|split| split.bytes);
        "split_cost_cpus": f64, Count Gauge (6 7), "CPU time by /proc/PID/stat * split part * loss by split_bytes",
            "CPU-seconds a second that splits cost the guest at most: as much as programs lose that read at random.",
            |guest| guest.split.map(SplitMemory::cost_cpus);
        "hugetlb_bytes": u64, Bytes Gauge (4 14), "/proc/PID/smaps_rollup: Private_Hugetlb + Shared_Hugetlb",
            "The guest's memory in pages of hugetlbfs, which can't merge and counts in none of the others.",
            |guest| guest.figures.memory.hugetlb_bytes;
        "saved_bytes" ["saved" 90]: u64, Bytes Gauge (5 19), "/proc/PID/smaps_rollup: Anonymous - Pss_Anon, at most KSM; else apportioned by merged_bytes",
            "The guest's part of what the host saves.",
            |guest| guest.figures.known(guest.figures.saved_bytes);
        "metadata_bytes" ["metadata" 20]: u64, Bytes Gauge (6 4), "64 * /proc/PID/ksm_stat: ksm_rmap_items",
            "KSM's reverse mappings for the guest's pages.",
            |guest| guest.figures.known_with_metadata(guest.figures.metadata_bytes);
        "profit_bytes" ["profit" 80]: i64, Bytes Gauge (5 19), "saved_bytes - metadata_bytes",
            "Memory saved less metadata; negative for a guest that only costs.",
            |guest| guest.figures.known_with_metadata(guest.figures.profit_bytes);
    }
}

/// Returns the figures by which guests can be grouped.
pub fn labels() -> impl Iterator<Item = &'static ModelFigure<Guest>> {
    GUEST.iter().filter(|figure| figure.field.unit == FigureUnit::Label)
}
