//! Reading one process after another.

use std::time::Duration;

use ksmith_core::fold::ZeroReading;
use ksmith_core::kernel::{SmapsRollup, Vmstat};
use ksmith_core::sample::{MergeReading, ProcessId};

use super::message::{MergeReply, MergeRequest, ReadProcess};
use crate::memory::process::OpenProcess;
use crate::own_use::CpuStopwatch;
use crate::reader::{self, ProcessReader, ReadPatience};
use crate::root::Root;

/// The longest wait for the count of zero-mapped pages, without the time that it has no CPU.
const STALL: Duration = Duration::from_millis(50);

/// The longest count: so much, and so much for each resident GiB. Empty page tables cost their owner no resident memory.
const LONGEST: Duration = Duration::from_secs(2);
const LONGEST_OF_GIB: Duration = Duration::from_millis(100);

/// The file with the bytes in a huge page.
const HUGE_PAGE_SIZE: &str = "sys/kernel/mm/transparent_hugepage/hpage_pmd_size";

/// Reads processes by children.
#[derive(Debug, Default)]
pub(super) struct ProcessMergeReader {
    reader: ProcessReader,
    splits: SplitCounter,
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
        let huge_page_bytes = root.text(HUGE_PAGE_SIZE).value().and_then(|text| text.trim().parse().ok());
        Self { root, huge_page_bytes }
    }

    /// Reads the memory in huge pages that were split since boot.
    fn read(&self) -> Option<u64> {
        let vmstat = self.root.text("proc/vmstat").and_then(|text| Vmstat::parse(&text));
        Some(vmstat.value()?.thp_split_page?.saturating_mul(self.huge_page_bytes?))
    }
}

impl ProcessMergeReader {
    /// Reads the processes of a request until its CPU time is used up, one at least.
    pub(super) fn carry_out(&mut self, request: &MergeRequest) -> MergeReply {
        let stopwatch = CpuStopwatch::start();
        let mut processes = Vec::new();
        for id in &request.processes {
            processes.push(self.read_process(*id, request.at, request.page_size));
            if stopwatch.cpu_seconds() >= request.cpu_seconds {
                break;
            }
        }
        MergeReply { processes, cpu_seconds: stopwatch.cpu_seconds() }
    }

    /// Reads a process. The counters come first: what ksmd merges meanwhile is not missed by them later.
    fn read_process(&mut self, id: ProcessId, at: Duration, page_size: u64) -> ReadProcess {
        let mut read = ReadProcess { id, at, reading: None, zeros: None, twin_of: None };
        let Some(process) = OpenProcess::open(id.pid).ok().filter(|process| process.start_ticks == id.start_ticks)
        else {
            return read;
        };
        if self.is_twin(&process) {
            read.twin_of = Some(process.parent);
            return read;
        }
        let host_split_bytes = self.splits.read();
        let ksm = process.ksm();
        let Some(sums) = read_rollup(id.pid) else { return read };
        read.reading = MergeReading::from_figures(at, &sums, &ksm, page_size);
        if let (Some(reading), Some(zero_pages)) = (read.reading, ksm.zero_pages) {
            read.zeros = self.count_zero_mapped(&process, sums.rss.unwrap_or(0)).map(|zero_mapped_bytes| {
                // Those that ksmd placed meanwhile were counted too, and KSM counts them itself.
                let after = process.ksm().zero_pages.unwrap_or(zero_pages);
                ZeroReading {
                    zero_mapped_bytes,
                    ksm_zero_bytes: zero_pages.max(after).saturating_mul(page_size),
                    huge_bytes: reading.huge_bytes,
                    host_split_bytes,
                }
            });
        }
        // What was read by the PID of one that has ended may be another's.
        if process.is_there().is_err() {
            (read.reading, read.zeros) = (None, None);
        }
        read
    }

    /// Returns true if a process shares its memory map with its parent, as helpers of user-mode Linux and children of
    /// `vfork` do. False also if that can't be told.
    fn is_twin(&mut self, process: &OpenProcess) -> bool {
        let same = self.reader.compare_memory(process.pid, &[process.parent], ReadPatience::new(STALL, LONGEST));
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

fn read_rollup(pid: u32) -> Option<SmapsRollup> {
    let bytes = reader::read(pid, "smaps_rollup").ok()?;
    SmapsRollup::parse(&String::from_utf8_lossy(&bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::put_file;

    #[test]
    fn a_process_with_the_memory_map_of_its_parent_is_a_twin_and_is_not_read() {
        let mut reader = ProcessMergeReader::default();
        let mut process = OpenProcess::open(std::process::id()).unwrap();
        assert_eq!(process.parent, std::os::unix::process::parent_id());
        assert!(!reader.is_twin(&process));
        process.parent = process.pid;
        assert!(reader.is_twin(&process));
    }

    #[test]
    fn splits_are_counted_in_bytes_where_the_kernel_has_both_figures() {
        let tree = tempfile::tempdir().unwrap();
        let counted = || SplitCounter::new(Root::at(tree.path())).read();
        put_file(tree.path(), "proc/vmstat", "pswpout 1\nthp_split_page 7\n");
        assert_eq!(counted(), None);
        put_file(tree.path(), HUGE_PAGE_SIZE, "2097152\n");
        assert_eq!(counted(), Some(14 << 20));
        put_file(tree.path(), "proc/vmstat", "pswpout 1\n");
        assert_eq!(counted(), None);
    }
}
