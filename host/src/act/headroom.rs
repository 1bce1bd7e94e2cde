//! The memory that unmerging everything needs, against the memory that the host has.

use ksmith_core::account::HostTotals;
use ksmith_core::kernel::{HostReadings, Meminfo};
use ksmith_core::reading::Reading;
use ksmith_core::sample::Sample;
use ksmith_core::units::Bytes;

use crate::ksm_counts::KsmCounts;
use crate::root::Root;

/// Memory that unmerging everything needs and memory that is available, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnmergeHeadroom {
    /// Memory that KSM saves, and so that unmerging needs. Unmerging leaves folded zeros as they are.
    pub exposure_bytes: u64,
    /// True if KSM's counters and the page size could be read.
    pub is_exposure_known: bool,
    /// Available memory and free swap; `None` if /proc/meminfo can't be read.
    pub headroom_bytes: Option<u64>,
    /// True if any page is merged, one that saves nothing (its duplicates are gone) included.
    pub is_anything_merged: bool,
}

/// Too little memory to unmerge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoHeadroom {
    /// The available memory is known and too small.
    #[error("unmerging needs {exposure} and a margin of {margin}, and the host has {headroom} \
             (available memory and free swap): free memory first, or force it",
            exposure = Bytes::from(*.exposure_bytes), margin = Bytes::from(*.margin_bytes),
            headroom = Bytes::from(*.headroom_bytes))]
    TooLittle {
        /// The memory that unmerging needs.
        exposure_bytes: u64,
        /// The margin to keep free.
        margin_bytes: u64,
        /// The available memory.
        headroom_bytes: u64,
    },
    /// The memory that unmerging needs is unknown.
    #[error("KSM's counters do not say what unmerging needs: force it if you know")]
    UnknownExposure,
    /// The available memory is unknown.
    #[error("unmerging needs {exposure}, and /proc/meminfo does not say what the host has: force it if you know",
            exposure = Bytes::from(*.exposure_bytes))]
    Unknown {
        /// The memory that unmerging needs.
        exposure_bytes: u64,
    },
}

/// Minimal margin. The margin is an eighth of what unmerging needs, since guests allocate memory meanwhile.
const LEAST_MARGIN_BYTES: u64 = 64 << 20;

impl UnmergeHeadroom {
    /// Reads the host's figures.
    pub fn now(root: &Root) -> Self {
        Self::with_counts(root, &mut KsmCounts::new(root))
    }

    /// Reads the figures to unmerge one guest with so many merged bytes. Where they are unknown, it may have all that
    /// the host has merged.
    pub fn for_guest(root: &Root, merged_bytes: Option<u64>) -> Self {
        let host = Self::now(root);
        match merged_bytes {
            Some(exposure_bytes) => Self { exposure_bytes, is_exposure_known: true, ..host },
            None => host,
        }
    }

    /// Reads the host's figures with an existing reader of KSM's counts.
    pub(super) fn with_counts(root: &Root, counts: &mut KsmCounts) -> Self {
        let page_size = root.page_size().ok();
        let memory = root.text("proc/meminfo").and_then(|text| Meminfo::parse(&text));
        let sample = Sample {
            page_size: page_size.unwrap_or_default(),
            ksm: counts.read_merged(),
            host: HostReadings { memory, ..HostReadings::default() },
            ..Sample::default()
        };
        let totals = HostTotals::from_sample(&sample);
        let shared = sample.ksm.pages_shared.get().unwrap_or(0);
        // A kernel that lacks a counter saves nothing by it.
        let are_counted = matches!(sample.ksm.pages_sharing, Reading::Value(_) | Reading::Absent)
            && matches!(sample.ksm.ksm_zero_pages, Reading::Value(_) | Reading::Absent);
        Self {
            is_exposure_known: are_counted && page_size.is_some(),
            exposure_bytes: totals.saved_bytes,
            headroom_bytes: totals.headroom_bytes,
            is_anything_merged: shared > 0 || sample.ksm.saved_pages() > 0,
        }
    }

    /// Checks that everything can be unmerged.
    ///
    /// # Errors
    /// Memory does not suffice, or what is needed or available is unknown; the error holds the figures.
    pub fn check(&self) -> Result<(), NoHeadroom> {
        let exposure_bytes = self.exposure_bytes;
        if !self.is_exposure_known {
            return Err(NoHeadroom::UnknownExposure);
        }
        if exposure_bytes == 0 {
            return Ok(());
        }
        let margin_bytes = LEAST_MARGIN_BYTES.max(exposure_bytes / 8);
        match self.headroom_bytes {
            None => Err(NoHeadroom::Unknown { exposure_bytes }),
            Some(headroom) if headroom < exposure_bytes.saturating_add(margin_bytes) => {
                Err(NoHeadroom::TooLittle { exposure_bytes, margin_bytes, headroom_bytes: headroom })
            }
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::put_file;

    const GIB: u64 = 1 << 30;

    fn headroom_from(exposure_bytes: u64, headroom_bytes: Option<u64>) -> UnmergeHeadroom {
        UnmergeHeadroom {
            exposure_bytes,
            headroom_bytes,
            is_anything_merged: exposure_bytes > 0,
            is_exposure_known: true,
        }
    }

    #[test]
    fn what_comes_back_must_fit_with_a_margin() {
        assert_eq!(headroom_from(8 * GIB, Some(9 * GIB)).check(), Ok(()));
        let error = headroom_from(8 * GIB, Some(9 * GIB - 1)).check().unwrap_err().to_string();
        assert!(error.contains("needs 8.00 GiB and a margin of 1.00 GiB, and the host has 9.00 GiB"), "{error}");
        assert!(headroom_from(1, Some(64 << 20)).check().is_err());
        assert!(headroom_from(u64::MAX, Some(u64::MAX - 1)).check().is_err());
    }

    #[test]
    fn with_nothing_merged_nothing_is_needed() {
        assert_eq!(headroom_from(0, Some(0)).check(), Ok(()));
        assert_eq!(headroom_from(0, None).check(), Ok(()));
        assert!(matches!(headroom_from(1, None).check(), Err(NoHeadroom::Unknown { .. })));
    }

    #[test]
    fn the_figures_come_from_the_tree() {
        let tree = super::super::writer::tests::tree(&[("pages_shared", "3\n"), ("pages_sharing", "5\n")]);
        std::fs::create_dir_all(tree.path().join("proc")).unwrap();
        std::fs::write(tree.path().join("proc/meminfo"), "MemTotal: 9 kB\nMemAvailable: 4 kB\nSwapFree: 1 kB\n")
            .unwrap();
        let headroom = UnmergeHeadroom::now(&Root::at(tree.path()));
        let page = 4096;
        assert_eq!((headroom.exposure_bytes, headroom.headroom_bytes), (5 * page, Some(5 << 10)));
        assert!(headroom.is_anything_merged);
    }

    #[test]
    fn a_guest_of_unknown_merged_memory_may_have_all_of_the_hosts() {
        let tree = super::super::writer::tests::tree(&[("pages_shared", "3\n"), ("pages_sharing", "5\n")]);
        put_file(tree.path(), "proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 4 kB\nSwapFree: 1 kB\n");
        let headroom = |merged| UnmergeHeadroom::for_guest(&Root::at(tree.path()), merged);
        assert_eq!(headroom(Some(0)).check(), Ok(()));
        assert_eq!(headroom(None).exposure_bytes, 5 * 4096);
        assert!(matches!(headroom(None).check(), Err(NoHeadroom::TooLittle { .. })));
        let tree = super::super::writer::tests::tree(&[("pages_sharing", "18446744073709551608\n")]);
        let headroom = |merged| UnmergeHeadroom::for_guest(&Root::at(tree.path()), merged);
        assert_eq!(headroom(None).check(), Err(NoHeadroom::UnknownExposure));
    }

    #[test]
    fn zero_pages_that_no_process_has_need_no_memory() {
        let merged_nothing = [("pages_shared", "0\n"), ("pages_sharing", "0\n"), ("ksm_zero_pages", "691\n")];
        let tree = super::super::writer::tests::tree(&merged_nothing);
        let process = tree.path().join("proc/7");
        std::fs::create_dir_all(&process).unwrap();
        let headroom = |zero_pages: u64| {
            std::fs::write(process.join("ksm_stat"), format!("ksm_zero_pages {zero_pages}\n")).unwrap();
            let headroom = UnmergeHeadroom::now(&Root::at(tree.path()));
            (headroom.exposure_bytes, headroom.is_anything_merged)
        };
        assert_eq!(headroom(0), (0, false));
        assert_eq!(headroom(1), (4096, true));
    }

    #[test]
    fn pages_are_of_the_size_that_the_tree_shows() {
        let tree = super::super::writer::tests::tree(&[("pages_shared", "3\n"), ("pages_sharing", "5\n")]);
        put_file(tree.path(), "proc/meminfo", "MemTotal: 99000 kB\nMemFree: 64000 kB\n");
        put_file(tree.path(), "proc/vmstat", "nr_free_pages 1000\n");
        assert_eq!(UnmergeHeadroom::now(&Root::at(tree.path())).exposure_bytes, 5 * 65_536);
    }

    #[test]
    fn counters_that_make_no_sense_are_no_leave_to_unmerge() {
        let tree = super::super::writer::tests::tree(&[("pages_sharing", "18446744073709551608\n")]);
        put_file(tree.path(), "proc/meminfo", "MemTotal: 99000 kB\nMemAvailable: 64000 kB\n");
        assert_eq!(UnmergeHeadroom::now(&Root::at(tree.path())).check(), Err(NoHeadroom::UnknownExposure));
    }
}
