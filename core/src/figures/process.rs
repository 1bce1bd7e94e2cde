//! Figures of a process.

use super::figure::figures;
use crate::model::ProcessStatus;

figures! {
    /// Figures of a process with mergeable memory.
    PROCESS of ProcessStatus {
        "name": String, Text State (2 6), "/proc/PID/cmdline, /proc/PID/stat",
            "Name of the guest where its command line gives one, else of the program.",
            |process| process.name.clone();
        "pid" ["pid" 75]: u64, Count State (2 6), "/proc",
            "PID of the process.",
            |process| u64::from(process.pid);
        "rss_bytes" ["rss" 70]: u64, Bytes Gauge (2 6), "/proc/PID/stat: rss",
            "Resident memory; merged pages count in full.",
            |process| process.rss_bytes;
        "merged_bytes" ["merged" 50]: u64, Bytes Gauge (5 19), "/proc/PID/ksm_stat: ksm_merging_pages + ksm_zero_pages",
            "Memory mapped to merged pages, zero pages included.",
            |process| (!process.share.is_unknown).then_some(process.share.merged_bytes);
        "saved_bytes" ["saved" 90]: u64, Bytes Gauge (5 19), "the host's saved_bytes, apportioned by merged_bytes",
            "The process's part of what the host saves.",
            |process| (!process.share.is_unknown).then_some(process.share.saved_bytes);
        "profit_bytes" ["profit" 80]: i64, Bytes Gauge (5 19), "saved_bytes - 64 * ksm_rmap_items",
            "Memory saved less KSM's metadata for the process; negative for one that only costs.",
            |process| {
                let share = &process.share;
                (!share.is_unknown && !share.is_metadata_unknown).then_some(share.profit_bytes)
            };
    }
}
