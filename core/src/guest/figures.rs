//! The memory that a guest uses, saves and costs.

use serde::{Deserialize, Serialize};

use crate::account::ProcessShare;
use crate::kernel::{RMAP_ITEM_BYTES, SmapsRollup};
use crate::sample::ProcessSample;

/// A guest's figures in bytes, summed over its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GuestMemoryFigures {
    /// Resident; merged pages count in full, and what its processes share counts in each. `None` if that of a process is
    /// unknown, or there is none.
    pub rss_bytes: Option<u64>,
    /// The sums of `smaps_rollup`, as in [`RollupFigures`]. `None`: not asked for, or not shown to us.
    #[serde(flatten)]
    pub memory: RollupFigures,
    /// Pages that KSM merged, zero pages included: what is mapped, not what is saved.
    pub merged_bytes: u64,
    /// Of these, pages that map the kernel's zero page.
    pub zero_bytes: u64,
    /// Its part of the host's savings: over all guests they add up to the host's figure, to the page.
    pub saved_bytes: u64,
    /// KSM's reverse mappings for its pages. Those of a process that does not show them count as none.
    pub metadata_bytes: u64,
    /// Saved less metadata.
    pub profit_bytes: i64,
    /// True if a process does not show its reverse mappings: `metadata_bytes` is a lower bound, `profit_bytes` an upper
    /// one.
    #[serde(default)]
    pub is_metadata_unknown: bool,
    /// True if KSM's counters can't be read; then the figures of merging are meaningless.
    #[serde(default)]
    pub is_unknown: bool,
    /// True if a process hides its count of merged pages: `merged_bytes` is a lower bound.
    #[serde(skip)]
    pub is_undercounted: bool,
}

/// Figures of `/proc/PID/smaps_rollup`. They are expensive: the kernel walks all page tables for them.
///
/// Under KSM the three hold together: PSS divides a merged page among all that map it, private is what no
/// other process maps, and shared, as `ps_mem` prints it, is the difference: this guest's part of what it shares. The
/// zero pages that KSM maps count nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RollupFigures {
    /// Resident, each page divided by the number of its mappings.
    pub pss_bytes: Option<u64>,
    /// Mapped by no other process.
    pub private_bytes: Option<u64>,
    /// This guest's part of the pages that others map too.
    pub shared_bytes: Option<u64>,
    /// In pages of hugetlbfs, which count in none of the others.
    pub hugetlb_bytes: Option<u64>,
}

impl RollupFigures {
    /// Converts the kernel's sums.
    pub fn from_rollup(sums: &SmapsRollup) -> Self {
        let shared = sums.pss.zip(sums.private).map(|(pss, private)| pss.saturating_sub(private));
        Self { pss_bytes: sums.pss, private_bytes: sums.private, shared_bytes: shared, hugetlb_bytes: sums.hugetlb }
    }

    /// Adds the figures of two processes. One that is not known makes the sum unknown.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let add = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        Self {
            pss_bytes: add(self.pss_bytes, other.pss_bytes),
            private_bytes: add(self.private_bytes, other.private_bytes),
            shared_bytes: add(self.shared_bytes, other.shared_bytes),
            hugetlb_bytes: add(self.hugetlb_bytes, other.hugetlb_bytes),
        }
    }
}

impl GuestMemoryFigures {
    /// Returns a figure of merging, if KSM's counters can be read.
    pub fn known<T>(&self, figure: T) -> Option<T> {
        (!self.is_unknown).then_some(figure)
    }

    /// Returns the merged bytes, if all processes show their counts.
    pub fn counted_merged_bytes(&self) -> Option<u64> {
        (!self.is_undercounted).then_some(self.merged_bytes)
    }

    /// Returns a figure that depends on KSM's metadata, if all processes show theirs and KSM's counters can be read.
    pub fn known_with_metadata<T>(&self, figure: T) -> Option<T> {
        self.known(figure).filter(|_| !self.is_metadata_unknown)
    }

    /// Returns the resident bytes, 0 if they are unknown.
    pub fn known_rss_bytes(&self) -> u64 {
        self.rss_bytes.unwrap_or(0)
    }

    /// Adds savings of a process with memory that was counted already.
    pub fn add_saved(&mut self, saved_bytes: u64) {
        self.saved_bytes = self.saved_bytes.saturating_add(saved_bytes);
        self.profit_bytes = self.profit_bytes.saturating_add_unsigned(saved_bytes);
    }

    /// Adds a process with its share of the host's savings. Its [`RollupFigures`] is added apart.
    pub fn add(&mut self, process: &ProcessSample, share: &ProcessShare, page_size: u64) {
        let metadata = process.ksm.rmap_items.unwrap_or(0).saturating_mul(RMAP_ITEM_BYTES);
        self.rss_bytes = self.rss_bytes.zip(process.rss_bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
        self.merged_bytes = self.merged_bytes.saturating_add(share.merged_bytes);
        self.zero_bytes = self.zero_bytes.saturating_add(process.zero_pages().saturating_mul(page_size));
        self.saved_bytes = self.saved_bytes.saturating_add(share.saved_bytes);
        self.metadata_bytes = self.metadata_bytes.saturating_add(metadata);
        self.profit_bytes = self.profit_bytes.saturating_add(share.profit_bytes);
        self.is_unknown |= share.is_unknown;
        self.is_metadata_unknown |= share.is_metadata_unknown;
        self.is_undercounted |= process.ksm.merging_pages.is_none();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_shared_are_the_pss() {
        let memory = RollupFigures::from_rollup(&SmapsRollup {
            pss: Some(100),
            private: Some(60),
            ..SmapsRollup::default()
        });
        assert_eq!((memory.private_bytes, memory.shared_bytes), (Some(60), Some(40)));
        // The kernel rounds each: private may come out a little larger.
        let memory =
            RollupFigures::from_rollup(&SmapsRollup { pss: Some(59), private: Some(60), ..SmapsRollup::default() });
        assert_eq!(memory.shared_bytes, Some(0));
    }

    #[test]
    fn a_sum_with_an_unknown_part_is_unknown() {
        let known = RollupFigures {
            pss_bytes: Some(1),
            private_bytes: Some(1),
            shared_bytes: Some(0),
            hugetlb_bytes: Some(4),
        };
        assert_eq!((known.plus(known).pss_bytes, known.plus(known).hugetlb_bytes), (Some(2), Some(8)));
        assert_eq!(known.plus(RollupFigures::default()), RollupFigures::default());
    }
}
