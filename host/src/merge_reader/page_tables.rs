//! Facts that only page tables show of a process: its zeros that KSM does not count, and one memory map with another.

use std::time::Duration;

use ksmith_core::fold::ZeroReading;
use ksmith_core::kernel::{KsmStat, SmapsRollup, Vmstat};

use crate::memory::process::OpenProcess;
use crate::reader::{ProcessReader, ReadPatience};
use crate::root::Root;

/// The longest wait for the count of zero-mapped pages, without the time that it has no CPU.
const STALL: Duration = Duration::from_millis(50);

/// The longest count: so much, and so much for each resident GiB. Empty page tables cost their owner no resident memory.
const LONGEST: Duration = Duration::from_secs(2);
const LONGEST_OF_GIB: Duration = Duration::from_millis(100);

/// Asks a child that can be killed about page tables.
#[derive(Debug, Default)]
pub(crate) struct PageTableReader {
    reader: ProcessReader,
    splits: SplitCounter,
}

impl PageTableReader {
    /// Returns the memory in huge pages that the host has split since boot: to be read before a process's other figures.
    pub(crate) fn host_split_bytes(&self) -> Option<u64> {
        self.splits.read()
    }

    /// Counts the zero-mapped memory of a process with these figures, which were read just before. `None` if it can't be
    /// read, or the kernel lacks one of the figures.
    pub(crate) fn count_zeros(
        &mut self,
        process: &OpenProcess,
        ksm: &KsmStat,
        sums: &SmapsRollup,
        host_split_bytes: Option<u64>,
        page_size: u64,
    ) -> Option<ZeroReading> {
        let (zero_pages, huge_bytes) = ksm.zero_pages.zip(sums.anon_huge)?;
        let zero_mapped_bytes = self.count_zero_mapped(process, sums.rss.unwrap_or(0))?;
        // Those that ksmd placed meanwhile were counted too, and KSM counts them itself.
        let after = process.ksm().zero_pages.unwrap_or(zero_pages);
        let ksm_zero_bytes = zero_pages.max(after).saturating_mul(page_size);
        Some(ZeroReading {
            zero_mapped_bytes,
            ksm_zero_bytes,
            huge_bytes,
            host_split_bytes,
            small_bytes: sums.anonymous.map(|bytes| bytes.saturating_sub(huge_bytes)),
            is_tracked: ksm.tracks_pages(),
        })
    }

    /// Returns true if two processes have one memory map. False also if that can't be told.
    pub(super) fn is_one_memory(&mut self, pid: u32, other: u32) -> bool {
        let same = self.reader.compare_memory(pid, &[other], ReadPatience::new(STALL, LONGEST));
        same.is_ok_and(|same| same.contains(&true))
    }

    /// Counts the bytes that small pages of anonymous mappings map to the zero page.
    fn count_zero_mapped(&mut self, process: &OpenProcess, rss_bytes: u64) -> Option<u64> {
        let stretches = process.stretches().ok()?;
        let edges: Vec<u64> = stretches.iter().flat_map(|stretch| [stretch.start, stretch.end]).collect();
        let longest = LONGEST + LONGEST_OF_GIB.mul_f64(rss_bytes as f64 / f64::from(1 << 30));
        self.reader.count_zero_mapped(process.pid, &edges, ReadPatience::new(STALL, longest)).ok()
    }
}

/// The host's counter of splits.
#[derive(Debug)]
struct SplitCounter {
    root: Root,
    huge_page_bytes: Option<u64>,
}

impl Default for SplitCounter {
    fn default() -> Self {
        Self::new(Root::host())
    }
}

impl SplitCounter {
    fn new(root: Root) -> Self {
        let huge_page_bytes = root.shown_huge_page_bytes();
        Self { root, huge_page_bytes }
    }

    /// Reads the memory in huge pages that were split since boot.
    fn read(&self) -> Option<u64> {
        let vmstat = self.root.text("proc/vmstat").and_then(|text| Vmstat::parse(&text));
        Some(vmstat.value()?.thp_split_page?.saturating_mul(self.huge_page_bytes?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::put_file;

    #[test]
    fn splits_are_counted_in_bytes_where_the_kernel_has_both_figures() {
        let tree = tempfile::tempdir().unwrap();
        let counted = || SplitCounter::new(Root::at(tree.path())).read();
        put_file(tree.path(), "proc/vmstat", "pswpout 1\nthp_split_page 7\n");
        assert_eq!(counted(), None);
        put_file(tree.path(), "sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
        assert_eq!(counted(), Some(14 << 20));
        put_file(tree.path(), "proc/vmstat", "pswpout 1\n");
        assert_eq!(counted(), None);
    }
}
