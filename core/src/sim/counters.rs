//! The counters that a visit changes, as one value: where ksmd is inside a run of pages, the part of a visit's effect
//! that has not come about yet is taken off again.

use super::memory::MergeableMemory;

/// Counters of the machine, in runs of pages; or a difference between two states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MachineCounters {
    pub private: i64,
    pub frames: i64,
    pub rmap_items: i64,
    pub unshared: i64,
    pub zero_pages: i64,
    pub shared: i64,
    pub sharing: i64,
    pub chains: i64,
    pub dups: i64,
}

/// Counters of one guest, in the same way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct GuestCounters {
    pub rmap_items: i64,
    pub merging: i64,
    pub zero: i64,
}

impl MachineCounters {
    pub fn from_memory(memory: &MergeableMemory) -> Self {
        Self {
            private: memory.private.cast_signed(),
            frames: memory.stable.frames.cast_signed(),
            rmap_items: memory.rmap_items.cast_signed(),
            unshared: memory.unshared.cast_signed(),
            zero_pages: memory.zero_pages.cast_signed(),
            shared: memory.stable.shared.cast_signed(),
            sharing: memory.stable.sharing.cast_signed(),
            chains: memory.stable.chains().cast_signed(),
            dups: memory.stable.dups.cast_signed(),
        }
    }

    /// The result of `join` for each counter of the two.
    pub fn with(self, other: Self, join: impl Fn(i64, i64) -> i64) -> Self {
        Self {
            private: join(self.private, other.private),
            frames: join(self.frames, other.frames),
            rmap_items: join(self.rmap_items, other.rmap_items),
            unshared: join(self.unshared, other.unshared),
            zero_pages: join(self.zero_pages, other.zero_pages),
            shared: join(self.shared, other.shared),
            sharing: join(self.sharing, other.sharing),
            chains: join(self.chains, other.chains),
            dups: join(self.dups, other.dups),
        }
    }
}

impl GuestCounters {
    pub fn from_memory(memory: &MergeableMemory, guest: u32) -> Self {
        let guest = &memory.guests[guest as usize];
        Self {
            rmap_items: guest.rmap_items.cast_signed(),
            merging: guest.merging.cast_signed(),
            zero: guest.zero.cast_signed(),
        }
    }

    /// The result of `join` for each counter of the two.
    pub fn with(self, other: Self, join: impl Fn(i64, i64) -> i64) -> Self {
        Self {
            rmap_items: join(self.rmap_items, other.rmap_items),
            merging: join(self.merging, other.merging),
            zero: join(self.zero, other.zero),
        }
    }
}

/// The run that ksmd is inside of: its state is that after the visit, and `left` of its pages are still to be visited.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnfinishedRun {
    pub guest: u32,
    pub run: u32,
    /// Pages of the run that ksmd has not come to.
    pub left: u32,
    /// The cost of each page.
    pub cost_ns: u64,
    pub step: ScanStep,
    /// The change that the visit makes; `None` if a write or the end of the guest has settled it.
    pub change: Option<VisitChange>,
}

/// The kind of one step of ksmd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanStep {
    /// A visit, which counts towards the batch.
    Visited,
    /// `smart_scan` skips the page.
    Skipped,
    /// The page needs no visit.
    Passed,
}

/// The change that a visit to a run makes.
#[derive(Debug, Clone, Copy)]
pub(super) struct VisitChange {
    pub totals: MachineCounters,
    /// That of the guest.
    pub own: GuestCounters,
    /// The other guest, where the two runs were the first to merge.
    pub partner: Option<u32>,
}
