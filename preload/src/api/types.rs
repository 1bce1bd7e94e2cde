//! The structures of `ksmith.h`.

use crate::stats::Stats;

/// The daemon's figures.
pub const FROM_DAEMON: u64 = 1;
/// The kernel's.
pub const FROM_KERNEL: u64 = 2;

/// `struct ksmith_savings`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Savings {
    /// Who says so.
    pub source: u64,
    /// Resident, merged pages included.
    pub rss_bytes: u64,
    /// In merged pages, zero pages included.
    pub merged_bytes: u64,
    /// What this process's part in that saves.
    pub saved_bytes: u64,
    /// That without what merging costs.
    pub profit_bytes: i64,
    /// In zero pages.
    pub zero_bytes: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

/// `struct ksmith_guided`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Guided {
    /// Ranges that are marked.
    pub ranges: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl From<Stats> for Savings {
    fn from(stats: Stats) -> Self {
        Self {
            source: FROM_KERNEL,
            rss_bytes: stats.resident,
            merged_bytes: stats.merged.saturating_add(stats.zero),
            // The kernel tells a process nothing of the frames that are kept, so this is the most that it can be.
            saved_bytes: stats.merged.saturating_add(stats.zero),
            profit_bytes: stats.profit,
            zero_bytes: stats.zero,
            reserved: [0; 2],
        }
    }
}
