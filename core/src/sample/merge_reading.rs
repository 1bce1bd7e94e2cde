//! A reading of a process's page tables: what is really merged, whatever KSM's counters say.
//!
//! KSM learns that a page is no longer merged when ksmd visits it. A write, `MADV_COLLAPSE` and khugepaged un-merge
//! pages at once. So the counters are an upper bound, and while ksmd is parked they never fall.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kernel::{KsmStat, SmapsRollup};

/// Merged and huge memory by a process's page tables, beside KSM's counter at that moment.
///
/// Source: `smaps_pte_entry` and `smaps_account` in `fs/proc/task_mmu.c`. `KSM:` (6.7) is the merged pages and the zero
/// pages that KSM placed. `Anonymous` less `Pss_Anon` is what is saved, since zero pages are in neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MergeReading {
    /// Time of the reading since boot.
    pub read_at: Duration,
    /// `ksm_merging_pages` at the reading.
    pub counted_pages: u64,
    /// Pages that are merged, zero pages not included.
    pub merged_pages: u64,
    /// Its part of the frames that those pages save.
    pub saved_pages: u64,
    /// Bytes in huge pages.
    pub huge_bytes: u64,
}

impl MergeReading {
    /// Creates a reading from the figures of a process; `None` where the kernel lacks one of them (before 6.7).
    ///
    /// Pages that a fork shares with its child are in `Anonymous` less `Pss_Anon` too. They can't be told apart, so the
    /// saved pages are bounded by the merged ones, and those by the counter.
    pub fn from_figures(read_at: Duration, sums: &SmapsRollup, ksm: &KsmStat, page_size: u64) -> Option<Self> {
        let page_size = page_size.max(1);
        let counted_pages = ksm.merging_pages?;
        let zero_pages = ksm.zero_pages?;
        let merged_pages = (sums.ksm? / page_size).saturating_sub(zero_pages).min(counted_pages);
        let shared_bytes = sums.anonymous?.saturating_sub(sums.pss_anon?);
        Some(Self {
            read_at,
            counted_pages,
            merged_pages,
            // The kernel rounds each sum down to kB.
            saved_pages: (shared_bytes.saturating_add(page_size / 2) / page_size).min(merged_pages),
            huge_bytes: sums.anon_huge?,
        })
    }

    /// Returns the pages that the process saves now, by the counter now and the host's counters of merged frames.
    ///
    /// Pages that the counter gained since the reading save what pages save on this host: `sharing` of `shared` +
    /// `sharing`. Where it fell, ksmd has found pages that were no longer merged at the reading; only a fall beyond
    /// these lessens the saving. The error is at most the pages un-merged since the reading plus half the counter's
    /// change, and the result is at most the counter.
    pub fn saved_now(&self, merging_pages: u64, shared: u64, sharing: u64) -> u64 {
        let saving = |pages: u64| {
            let mapped = u128::from(shared) + u128::from(sharing);
            let saved = u128::from(pages) * u128::from(sharing) / mapped.max(1);
            u64::try_from(saved).unwrap_or(u64::MAX)
        };
        let now = match merging_pages.checked_sub(self.counted_pages) {
            Some(gained) => self.saved_pages.saturating_add(saving(gained)),
            None => {
                let unmerged = self.counted_pages.saturating_sub(self.merged_pages);
                let fallen = self.counted_pages - merging_pages;
                self.saved_pages.saturating_sub(saving(fallen.saturating_sub(unmerged)))
            }
        };
        now.min(merging_pages)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIB: u64 = 1024;

    fn figures(ksm_kib: u64, anonymous_kib: u64, pss_kib: u64) -> SmapsRollup {
        SmapsRollup {
            ksm: Some(ksm_kib * KIB),
            anonymous: Some(anonymous_kib * KIB),
            pss_anon: Some(pss_kib * KIB),
            anon_huge: Some(64 << 20),
            ..SmapsRollup::default()
        }
    }

    fn counters(merging: u64, zero: u64) -> KsmStat {
        KsmStat { merging_pages: Some(merging), zero_pages: Some(zero), ..KsmStat::default() }
    }

    fn read(sums: &SmapsRollup, ksm: &KsmStat) -> Option<MergeReading> {
        MergeReading::from_figures(Duration::ZERO, sums, ksm, 4096)
    }

    /// The figures are those of two ranges of 64 MiB on Linux 6.18, a quarter equal and a quarter zeros.
    #[test]
    fn pages_that_were_collapsed_save_nothing_whatever_the_counter_says() {
        let merged = read(&figures(32_768, 98_408, 82_024), &counters(8192, 0)).unwrap();
        assert_eq!((merged.merged_pages, merged.saved_pages), (8192, 4096));
        let half = read(&figures(16_384, 114_884, 106_692), &counters(8192, 0)).unwrap();
        assert_eq!((half.counted_pages, half.merged_pages, half.saved_pages), (8192, 4096, 2048));
        // One of the two ranges was collapsed: the other one's pages are merged with nothing.
        let one = read(&figures(16_384, 114_884, 114_884), &counters(8192, 0)).unwrap();
        assert_eq!((one.merged_pages, one.saved_pages, one.huge_bytes), (4096, 0, 64 << 20));
    }

    #[test]
    fn zero_pages_of_ksm_are_no_merged_pages() {
        let read = read(&figures(8 * 4, 100, 84), &counters(6, 3)).unwrap();
        assert_eq!((read.merged_pages, read.saved_pages), (5, 4));
    }

    #[test]
    fn a_kernel_without_one_of_the_figures_has_no_reading() {
        let all = figures(4, 4, 4);
        assert!(read(&all, &counters(1, 0)).is_some());
        assert_eq!(read(&SmapsRollup { ksm: None, ..all }, &counters(1, 0)), None);
        assert_eq!(read(&SmapsRollup { pss_anon: None, ..all }, &counters(1, 0)), None);
        assert_eq!(read(&all, &KsmStat { zero_pages: None, ..counters(1, 0) }), None);
    }

    #[test]
    fn a_fall_that_the_reading_knew_lessens_nothing_and_a_gain_saves_its_part() {
        let read =
            MergeReading { counted_pages: 100, merged_pages: 60, saved_pages: 30, ..MergeReading::default() };
        let saved = |merging| read.saved_now(merging, 50, 50);
        assert_eq!([saved(100), saved(60), saved(50), saved(120), saved(10), saved(0)], [30, 30, 25, 40, 5, 0]);
    }

    proptest! {
        #[test]
        fn no_saving_exceeds_the_counter(
            [ksm, anonymous, pss, merging, zero, now, shared, sharing] in prop::array::uniform8(any::<u64>()),
        ) {
            let sums = figures(ksm / KIB, anonymous / KIB, pss / KIB);
            let read = read(&sums, &counters(merging, zero)).unwrap();
            prop_assert!(read.saved_pages <= read.merged_pages && read.merged_pages <= merging);
            prop_assert!(read.saved_now(now, shared, sharing) <= now);
            prop_assert_eq!(read.saved_now(merging, shared, sharing), read.saved_pages);
        }
    }
}
