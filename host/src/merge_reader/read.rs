//! Reading one process after another.

use std::time::Duration;

use ksmith_core::kernel::SmapsRollup;
use ksmith_core::merge_schedule::{MergeReply, MergeRequest, ReadProcess};
use ksmith_core::sample::{MergeReading, ProcessId};

use super::page_tables::PageTableReader;
use crate::memory::process::OpenProcess;
use crate::own_use::CpuStopwatch;
use crate::reader;

/// Reads processes by children.
#[derive(Debug, Default)]
pub(super) struct ProcessMergeReader {
    page_tables: PageTableReader,
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
        let host_split_bytes = self.page_tables.host_split_bytes();
        let ksm = process.ksm();
        let Some(sums) = read_rollup(id.pid) else { return read };
        read.reading = MergeReading::from_figures(at, &sums, &ksm, page_size);
        if read.reading.is_some() {
            read.zeros = self.page_tables.count_zeros(&process, &ksm, &sums, host_split_bytes, page_size);
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
        self.page_tables.is_one_memory(process.pid, process.parent)
    }
}

fn read_rollup(pid: u32) -> Option<SmapsRollup> {
    let bytes = reader::read(pid, "smaps_rollup").ok()?;
    SmapsRollup::parse(&String::from_utf8_lossy(&bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_the_memory_map_of_its_parent_is_a_twin_and_is_not_read() {
        let mut reader = ProcessMergeReader::default();
        let mut process = OpenProcess::open(std::process::id()).unwrap();
        assert_eq!(process.parent, std::os::unix::process::parent_id());
        assert!(!reader.is_twin(&process));
        process.parent = process.pid;
        assert!(reader.is_twin(&process));
    }
}
