//! A process to fold: its descriptors, its huge pages, and its zero-mapped pages.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use ksmith_core::sample::ProcessId;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::FoldError;
use crate::memory::entries;
use crate::memory::error::UnreadableProcess;
use crate::memory::page_ranges::{PageKinds, PageQuery, each_range};
use crate::memory::process::{MappingDetail, OpenProcess, ProcessMemory};
use crate::memory::scan::{huge_page_size, page_size};

/// A process to fold, held by descriptors: a reused PID is never taken for it.
#[derive(Debug)]
pub struct FoldTarget {
    pub(super) process: OpenProcess,
    pub(super) memory: ProcessMemory,
    pub(super) pidfd: OwnedFd,
    /// Bytes in a page, and in a huge page that one entry of the second lowest page table maps.
    pub(super) page_size: usize,
    pub(super) huge_size: usize,
}

/// Anonymous memory of a process, by how it is mapped.
#[derive(Debug, Default)]
pub(super) struct AnonymousMemory {
    /// Ranges of huge pages, each a whole number of them.
    pub(super) huge: Vec<Range<u64>>,
    /// Ranges of other pages, without zero-mapped ones.
    pub(super) small: Vec<Range<u64>>,
}

impl FoldTarget {
    /// Opens a process.
    ///
    /// # Errors
    /// There is none, it is a kernel thread, it has ended, or its memory may not be read.
    pub fn open(pid: u32) -> Result<Self, UnreadableProcess> {
        let process = OpenProcess::open(pid)?;
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(UnreadableProcess::NoSuchProcess)?;
        let pidfd =
            pidfd_open(number, PidfdFlags::empty()).map_err(|error| UnreadableProcess::from_io(error.into()))?;
        let memory = process.memory(MappingDetail::Headings)?;
        // Both were opened by the PID: as long as its directory is alive, they are of this process.
        process.is_there().map_err(UnreadableProcess::from_io)?;
        Ok(Self { process, memory, pidfd, page_size: page_size() as usize, huge_size: huge_page_size() as usize })
    }

    /// Returns the process's PID and start time.
    pub fn id(&self) -> ProcessId {
        ProcessId { pid: self.process.pid, start_ticks: self.process.start_ticks }
    }

    /// Returns the guest's name, or the program's.
    pub fn name(&self) -> &str {
        &self.process.name
    }

    /// Returns the bytes that map the kernel's zero page: memory only read, zeros merged by KSM, and zeros of split
    /// huge pages.
    ///
    /// # Errors
    /// The process has ended, or the kernel lacks `PAGEMAP_SCAN` (before Linux 6.7).
    pub fn zero_mapped_bytes(&self) -> Result<u64, FoldError> {
        let mut bytes = 0;
        let query = PageQuery { all_of: PageKinds::ZERO_MAPPED, none_of: PageKinds::HUGE, ..PageQuery::default() };
        for stretch in self.process.stretches()? {
            self.each_range(stretch.start..stretch.end, query, |range, _| bytes += range.end - range.start)?;
        }
        Ok(bytes)
    }

    /// Finds the current anonymous memory of the process.
    pub(super) fn find_anonymous(&self) -> Result<AnonymousMemory, FoldError> {
        let mut found = AnonymousMemory::default();
        let query = PageQuery {
            all_of: PageKinds::PRESENT,
            any_of: PageKinds::HUGE.and(PageKinds::PRESENT),
            none_of: PageKinds::FILE.and(PageKinds::ZERO_MAPPED),
        };
        for stretch in self.process.stretches()? {
            self.each_range(stretch.start..stretch.end, query, |range, kinds| {
                if kinds.contains(PageKinds::HUGE) {
                    found.huge.push(range);
                } else {
                    found.small.push(range);
                }
            })?;
        }
        Ok(found)
    }

    /// Finds pages by `PAGEMAP_SCAN`.
    pub(super) fn each_range(
        &self,
        addresses: Range<u64>,
        query: PageQuery,
        take: impl FnMut(Range<u64>, PageKinds),
    ) -> Result<(), FoldError> {
        let outcome = each_range(&self.memory.pagemap, self.process.pid, addresses, query, take);
        outcome.map_err(FoldError::of_reading)
    }

    /// Returns true if the first page there is mapped by this process alone. A fork shares it with its child, and KSM
    /// with any process.
    pub(super) fn is_exclusive(&self, huge_page: u64) -> io::Result<bool> {
        self.are_exclusive(huge_page, self.page_size as u64)
    }

    /// Returns true if all pages of a range are mapped by this process alone.
    pub(super) fn are_exclusive(&self, start: u64, bytes: u64) -> io::Result<bool> {
        Ok(self.exclusive_bytes(start, bytes)? == bytes)
    }

    /// Returns the bytes in pages of a range that are mapped by this process alone.
    pub(super) fn exclusive_bytes(&self, start: u64, bytes: u64) -> io::Result<u64> {
        let (mut exclusive, page) = (0, self.page_size as u64);
        entries::each(&self.memory.pagemap, self.process.pid, [start, start + bytes, page], |_, entries| {
            exclusive += entries.iter().filter(|entry| entry.is_exclusive()).count() as u64 * page;
            Ok(())
        })?;
        Ok(exclusive)
    }
}
