//! Figures of balance: of the pool, of each guest that it may resize, and of what it did.

use super::figure::figures;
use crate::model::{BalanceReport, GuestRow, ResizeRecord};

figures! {
    /// Figures of the pool that guests share.
    POOL of BalanceReport {
        "is_enabled": bool, Mode State (2 6), "[balance] in the configuration",
            "True if a daemon carries plans out.",
            |report| report.is_enabled;
        "policy": String, Text State (2 6), "[balance] in the configuration",
            "Name of the policy of balance.",
            |report| report.policy.clone();
        "state": String, Text State (2 6), "the policy's last plan",
            "State of balance, in a word.",
            |report| report.state.clone();
        "reason": String, Text State (2 6), "the policy's last plan",
            "Reason of the last plan, in a sentence.",
            |report| report.reason.clone();
        "pool_name": String, Text State (2 6), "[balance] in the configuration",
            "Name of the pool: host, or the cgroup.",
            |report| report.pool_name.clone();
        "low_bytes": u64, Bytes State (2 6), "[balance] in the configuration",
            "Available memory below which memory is taken from guests.",
            |report| report.low_bytes;
        "high_bytes": u64, Bytes State (2 6), "[balance] in the configuration",
            "Available memory above which memory goes back to guests.",
            |report| report.high_bytes;
        "exposed": String, Text State (2 6), "exposure_bytes > headroom_bytes",
            "Consequence if all merged pages diverged, where memory is too little for that.",
            |report| report.exposed.clone();
        "pool.size_bytes": u64, Bytes Gauge (2 6), "/proc/meminfo, or memory.max of the cgroup",
            "All memory of the pool.",
            |report| report.pool.size_bytes;
        "pool.available_bytes": u64, Bytes Gauge (2 6), "/proc/meminfo, or memory.max - memory.current of the cgroup",
            "Memory that can be had without swapping.",
            |report| report.pool.available_bytes;
        "pool.swap_out_bytes_per_second": f64, BytesPerSecond Gauge (2 6), "/proc/vmstat: pswpout",
            "Memory that the pool writes to swap.",
            |report| report.pool.swap_out_bytes_per_second;
        "pool.psi_some_percent": f64, Percent Gauge (4 20), "/proc/pressure/memory: some avg10",
            "Part of the last ten seconds in which some work waited for memory.",
            |report| report.pool.psi_some_percent;
        "pool.cow_bytes_per_second": f64, BytesPerSecond Gauge (5 19), "increase of cow_ksm * page_size / time",
            "Merged memory that is broken by writes.",
            |report| report.pool.cow_bytes_per_second;
        "pool.exposure_bytes": u64, Bytes Gauge (2 6), "the host's saved_bytes",
            "Memory that would be needed if every merged page diverged and every folded zero were written to.",
            |report| report.pool.exposure_bytes;
        "pool.headroom_bytes": u64, Bytes Gauge (2 6), "available_bytes + SwapFree",
            "Available memory and free swap that cover the exposure.",
            |report| report.pool.headroom_bytes;
    }
}

figures! {
    /// Figures of a guest in balance.
    BALANCED_GUEST of GuestRow {
        "key": String, Text State (2 6), "the list of guests",
            "Key of the guest over its life.",
            |row| row.guest.key.clone();
        "name": String, Text State (2 6), "the list of guests",
            "Name of the guest; two guests may have the same.",
            |row| row.guest.name.clone();
        "class.name" ["class" 20]: String, Text State (2 6), "[balance] in the configuration",
            "Class of the guest.",
            |row| row.guest.class.name.clone();
        "class.weight": u64, Count State (2 6), "[balance] in the configuration",
            "Weight of the class: more weight gets memory first and gives it last.",
            |row| u64::from(row.guest.class.weight);
        "given_bytes" ["has" 70]: u64, Bytes Gauge (2 6), "the monitor, mconsole or the cgroup",
            "Memory that the hypervisor lets the guest have now.",
            |row| row.guest.given_bytes;
        "whole_bytes" ["of" 40]: u64, Bytes State (2 6), "the monitor, mconsole or the cgroup",
            "Memory that the guest was started with.",
            |row| row.guest.whole_bytes;
        "resident_bytes" ["host" 10]: u64, Bytes Gauge (2 6), "/proc/PID/stat: rss",
            "Memory that the host spends on the guest.",
            |row| row.guest.resident_bytes;
        "inside.available_bytes" ["available" 50]: u64, Bytes Gauge (3 14), "the guest: MemAvailable",
            "Memory that the guest could have without swapping, by its own kernel's estimate.",
            |row| row.guest.inside.available_bytes;
        "inside.free_bytes": u64, Bytes Gauge (2 6), "the guest: MemFree",
            "Memory of the guest that is free.",
            |row| row.guest.inside.free_bytes;
        "inside.cache_bytes": u64, Bytes Gauge (2 6), "the guest: Cached",
            "Page cache of the guest.",
            |row| row.guest.inside.cache_bytes;
        "inside.major_faults_per_second": f64, PerSecond Gauge (2 6), "the guest: pgmajfault",
            "Faults of the guest that had to read from a disk.",
            |row| row.guest.inside.major_faults_per_second;
        "inside.swap_in_bytes_per_second": f64, BytesPerSecond Gauge (2 6), "the guest: pswpin",
            "Memory that the guest reads back from its own swap.",
            |row| row.guest.inside.swap_in_bytes_per_second;
        "inside.swap_out_bytes_per_second": f64, BytesPerSecond Gauge (2 6), "the guest: pswpout",
            "Memory that the guest writes to its own swap.",
            |row| row.guest.inside.swap_out_bytes_per_second;
        "inside.psi_some_percent": f64, Percent Gauge (4 20), "the guest: some avg10",
            "Part of the last ten seconds in which some work of the guest waited for memory.",
            |row| row.guest.inside.psi_some_percent;
        "floor_bytes": u64, Bytes State (2 6), "[balance] in the configuration",
            "Memory that the operator never lets the guest have less than.",
            |row| row.guest.floor_bytes;
        "ceiling_bytes": u64, Bytes State (2 6), "[balance] in the configuration",
            "Memory that the operator gives the guest at most.",
            |row| row.guest.ceiling_bytes;
        "step_bytes": u64, Bytes State (2 6), "the way of resizing",
            "Smallest amount that can be taken or given.",
            |row| row.guest.step_bytes;
        "can_take": bool, Mode State (2 6), "the way of resizing",
            "True if memory can be taken from the guest.",
            |row| row.guest.can_take;
        "can_give": bool, Mode State (2 6), "the way of resizing",
            "True if memory can be given back to the guest.",
            |row| row.guest.can_give;
        "held": bool, Mode State (2 6), "ksmith hold",
            "True if an operator has said that the guest is to be left alone.",
            |row| row.guest.held;
        "merged_bytes": u64, Bytes Gauge (5 19), "/proc/PID/ksm_stat",
            "Merged memory of the guest, which the host would need again if it diverged.",
            |row| row.guest.merged_bytes;
        "giving_seconds": f64, Seconds Gauge (2 6), "the clock",
            "Time for which the guest has been on its way to less memory.",
            |row| row.guest.giving_for.map(|time| time.as_secs_f64());
        "trouble": String, Text State (2 6), "the guest",
            "Fault of the guest, in words; memory is only given back to it then.",
            |row| row.guest.trouble.clone();
        "way": String, Text State (2 6), "the hypervisor",
            "Way of resizing: mconsole, virtio-balloon, virtio-mem, cgroup.",
            |row| row.way.clone();
        "why_not": String, Text State (2 6), "the hypervisor",
            "Lasting obstacle to resizing the guest.",
            |row| row.why_not.clone();
        "least_bytes" ["least" 30]: u64, Bytes Gauge (2 6), "what the guest uses, with a reserve",
            "Memory that the guest would not be taken below now.",
            |row| row.least_bytes;
        "to_bytes": u64, Bytes Gauge (2 6), "the plan",
            "Memory that the guest is to have; null where it stays as it is.",
            |row| row.to_bytes;
        "reason": String, Text State (2 6), "the plan",
            "Reason of the plan for the guest.",
            |row| row.reason.clone();
    }
}

figures! {
    /// Figures of a resize that was done lately.
    RESIZE of ResizeRecord {
        "key": String, Text State (2 6), "the list of guests",
            "Key of the guest over its life.",
            |done| done.key.clone();
        "name": String, Text State (2 6), "the list of guests",
            "Name of the guest.",
            |done| done.name.clone();
        "seconds_ago": f64, Seconds Gauge (2 6), "the clock",
            "Time since the resize.",
            |done| done.seconds_ago;
        "from_bytes": u64, Bytes State (2 6), "the monitor, mconsole or the cgroup",
            "Memory that the guest had.",
            |done| done.from_bytes;
        "to_bytes": u64, Bytes State (2 6), "the plan",
            "Memory that the guest was to have.",
            |done| done.to_bytes;
        "got_bytes": u64, Bytes State (2 6), "the monitor, mconsole or the cgroup",
            "Memory that the guest had afterwards; null while that is unknown.",
            |done| done.got_bytes;
        "error": String, Text State (2 6), "the way of resizing",
            "Why the resize failed.",
            |done| done.error.clone();
        "reason": String, Text State (2 6), "the plan",
            "Reason of the resize.",
            |done| done.reason.clone();
    }
}
