//! The structures that `ksmith.h` declares.

use crate::stats::OwnProcessStats;

/// The figures are from the daemon.
pub const FROM_DAEMON: u64 = 1;
/// The figures are from the kernel.
pub const FROM_KERNEL: u64 = 2;

/// Layout of `struct ksmith_savings`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessSavings {
    /// Source of the figures.
    pub source: u64,
    /// Resident memory, with merged pages.
    pub rss_bytes: u64,
    /// Memory in merged pages, with zero pages.
    pub merged_bytes: u64,
    /// Bytes saved by this process's part of the merged pages.
    pub saved_bytes: u64,
    /// Bytes saved, less the cost of the kernel's records.
    pub profit_bytes: i64,
    /// Memory in zero pages.
    pub zero_bytes: u64,
    /// Reserved fields, which are zero.
    pub reserved: [u64; 2],
}

/// Layout of `struct ksmith_guided`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct GuidedCounts {
    /// Number of marked ranges.
    pub ranges: u64,
    /// Bytes in the marked ranges.
    pub bytes: u64,
}

impl From<OwnProcessStats> for ProcessSavings {
    fn from(stats: OwnProcessStats) -> Self {
        Self {
            source: FROM_KERNEL,
            rss_bytes: stats.resident,
            merged_bytes: stats.merged.saturating_add(stats.zero),
            // The kernel does not show the kept frames to a process, so this is an upper bound.
            saved_bytes: stats.merged.saturating_add(stats.zero),
            profit_bytes: stats.profit,
            zero_bytes: stats.zero,
            reserved: [0; 2],
        }
    }
}
