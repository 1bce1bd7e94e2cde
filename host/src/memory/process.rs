//! A process to read: its memory, and the part of it that KSM could merge.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ksmith_core::kernel::{CommandLine, IneligibleReason, KsmStat, PidStat, ProcessMapping};
use rustix::fs::{Mode, OFlags, open, openat};

use super::error::UnreadableProcess;
use super::rights::ProcessRights;
use super::vfio::holds_vfio;
use crate::hypervisor::{GuestName, MachineSize};
use crate::mappings;
use crate::proc_file::{self, ADDRESSES, OverBudget, lossy, may_wait};
use crate::reader;
use crate::root::Root;

/// A process, held by its open /proc directory: a reused PID is never taken for it.
#[derive(Debug)]
pub struct OpenProcess {
    /// The process's PID.
    pub pid: u32,
    /// The guest's name, or the program's.
    pub name: Arc<str>,
    /// The program's name.
    pub program: Arc<str>,
    /// True if it runs a virtual machine.
    pub is_vm: bool,
    /// The size of that machine, as far as its command line says.
    pub size: MachineSize,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// The PID of its parent.
    pub parent: u32,
    directory: OwnedFd,
}

/// The readable memory of a process, with open files.
#[derive(Debug)]
pub struct ProcessMemory {
    /// The PID of its process, while that is alive.
    pub pid: u32,
    /// The process's memory by address.
    pub mem: File,
    /// The pagemap: which pages are present.
    pub pagemap: File,
    /// Address ranges with anonymous pages that KSM could merge, the largest first. This order matches the ranges of
    /// clones.
    pub stretches: Vec<AddressRange>,
    /// Anonymous bytes in them.
    pub anonymous_bytes: u64,
    /// Bytes of those in huge pages.
    pub huge_bytes: u64,
    /// Bytes in swap, in mappings of any kind.
    pub swapped_bytes: u64,
    /// Bytes that can't be merged.
    pub ineligible: BTreeMap<IneligibleReason, u64>,
    /// True if any of it is marked mergeable.
    pub is_mergeable: bool,
    /// The mapping with the most resident bytes: of a virtual machine, its RAM.
    pub largest: LargestMapping,
    /// KSM's figures of this process at the time of opening.
    pub ksm: KsmStat,
}

/// The mapping of a process with the most resident bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LargestMapping {
    /// Bytes resident in it.
    pub bytes: u64,
    /// The reason why KSM never merges it; `None` if it may.
    pub ineligible: Option<IneligibleReason>,
}

impl LargestMapping {
    /// Returns the larger of both.
    pub fn max(self, other: Self) -> Self {
        if other.bytes > self.bytes { other } else { self }
    }
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
}

/// The level of detail of reading a process's mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappingDetail {
    /// `smaps`: resident bytes and mergeable flags too. The kernel walks all page tables for it.
    Figures,
    /// `maps`: addresses only. Resident bytes and mergeable flags are unknown.
    Headings,
}

impl OpenProcess {
    /// Opens a process.
    ///
    /// # Errors
    /// There is none, it is a kernel thread, it is dead, or /proc hides it.
    pub fn open(pid: u32) -> Result<Self, UnreadableProcess> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            open(format!("/proc/{pid}"), flags, Mode::empty()).map_err(|_| UnreadableProcess::NoSuchProcess)?;
        let mut process = Self {
            pid,
            name: "".into(),
            program: "".into(),
            is_vm: false,
            size: MachineSize::default(),
            start_ticks: 0,
            parent: 0,
            directory,
        };
        let text = process.text("stat").map_err(UnreadableProcess::from_io)?;
        let stat = PidStat::parse(&text).map_err(|why| UnreadableProcess::Malformed { file: "stat", why })?;
        if stat.is_kernel_thread {
            return Err(UnreadableProcess::KernelThread);
        }
        if stat.is_zombie {
            return Err(UnreadableProcess::Exited);
        }
        (process.start_ticks, process.parent) = (stat.start_ticks, stat.parent);
        let line = CommandLine::parse(&process.bytes("cmdline").unwrap_or_default());
        let named = GuestName::from_command_line(&stat.comm, &line);
        process.name = named.name.into();
        process.program = GuestName::from_command_line(&stat.comm, &CommandLine::default()).name.into();
        process.is_vm = named.is_vm;
        process.size = named.size;
        Ok(process)
    }

    /// Reads KSM's figures of the process. All are unknown if the kernel does not show them.
    pub fn ksm(&self) -> KsmStat {
        self.text("ksm_stat").ok().and_then(|text| KsmStat::parse(&text).ok()).unwrap_or_default()
    }

    /// Returns true if the kernel denies us the process's KSM figures.
    pub fn hides_ksm(&self) -> bool {
        self.file("ksm_stat").is_err_and(|error| UnreadableProcess::from_io(error) == UnreadableProcess::Denied)
    }

    /// Returns true if any of its memory is marked mergeable, by the cheapest way that this kernel offers.
    pub fn is_involved(&self) -> bool {
        let ksm = self.ksm();
        ksm.is_involved()
            || ksm.mergeable.is_none() && {
                let mut is_marked = false;
                let visit = |mapping: ProcessMapping| is_marked |= mapping.is_mergeable() == Some(true);
                self.each_mapping("smaps", visit).is_ok() && is_marked
            }
    }

    /// Reads the uid of its user.
    pub fn user(&self) -> Option<u32> {
        let status = self.text("status").ok()?;
        status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_ascii_whitespace().next()?.parse().ok())
    }

    /// Returns true if `user` might read its memory: all its rights are that user's.
    pub fn is_of(&self, user: u32) -> bool {
        ProcessRights::read(&self.directory).is_ok_and(|rights| rights.are_of(user))
    }

    /// Reads its control group in the unified hierarchy.
    pub fn cgroup(&self) -> Option<String> {
        let text = self.text("cgroup").ok()?;
        text.lines().find_map(|line| line.strip_prefix("0::").map(str::to_owned))
    }

    /// Opens its memory and sorts it into mergeable and ineligible.
    ///
    /// # Errors
    /// It may not be read, or it is gone.
    pub fn memory(&self, detail: MappingDetail) -> Result<ProcessMemory, UnreadableProcess> {
        // First, for this shows whether the process answers at all.
        let ksm = self.ksm();
        let mem = self.file("mem").map_err(UnreadableProcess::from_io)?;
        let pagemap = self.file("pagemap").map_err(UnreadableProcess::from_io)?;
        let file = if detail == MappingDetail::Figures { "smaps" } else { "maps" };
        // Not knowing counts as no.
        let is_locked = holds_vfio(&Root::host(), self.pid).unwrap_or(false);
        let mut memory = ProcessMemory {
            pid: self.pid,
            mem,
            pagemap,
            stretches: Vec::new(),
            anonymous_bytes: 0,
            huge_bytes: 0,
            swapped_bytes: 0,
            ineligible: BTreeMap::new(),
            is_mergeable: false,
            largest: LargestMapping::default(),
            ksm,
        };
        let mut sorter = MappingSorter { is_locked, unmarked: Vec::new() };
        self.each_mapping(file, |mapping| memory.sort_mapping(&mapping, &mut sorter))
            .map_err(|error| UnreadableProcess::from_file_io(file, error))?;
        memory.finish(sorter);
        let addresses = memory.stretches.iter().map(|stretch| stretch.end - stretch.start);
        if addresses.fold(0, u64::saturating_add) > ADDRESSES {
            return Err(OverBudget::new(self.pid, file, ADDRESSES, "bytes of address space").into());
        }
        // Ties by address, so that the order is the same in clones.
        memory.stretches.sort_by_key(|stretch| (std::cmp::Reverse(stretch.end - stretch.start), stretch.start));
        Ok(memory)
    }

    /// Returns the address ranges that might be merged, marked mergeable or not. Its memory is not opened.
    ///
    /// # Errors
    /// As [`memory`](Self::memory).
    pub fn stretches(&self) -> Result<Vec<AddressRange>, UnreadableProcess> {
        let is_locked = holds_vfio(&Root::host(), self.pid).unwrap_or(false);
        let mut stretches = Vec::new();
        let mut take = |mapping: ProcessMapping| stretches.extend(heading(&mapping, is_locked));
        self.each_mapping("maps", &mut take).map_err(|error| UnreadableProcess::from_file_io("maps", error))?;
        Ok(stretches)
    }

    /// Returns the marked memory of a process that offers a part of its memory. Reading it takes longer than
    /// [`stretches`](Self::stretches).
    ///
    /// # Errors
    /// As [`memory`](Self::memory).
    pub fn marked_memory(&self) -> Result<MarkedMemory, UnreadableProcess> {
        let mut marked = MarkedMemory::default();
        self.each_mapping("smaps", |mapping| marked.add(&mapping))
            .map_err(|error| UnreadableProcess::from_file_io("smaps", error))?;
        Ok(marked)
    }

    fn file(&self, name: &str) -> io::Result<File> {
        Ok(File::from(openat(&self.directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
    }

    fn bytes(&self, name: &str) -> io::Result<Vec<u8>> {
        if !may_wait(name) {
            return proc_file::read(self.file(name)?, self.pid, name);
        }
        let bytes = reader::read(self.pid, name)?;
        self.is_there()?;
        Ok(bytes)
    }

    fn each_mapping(&self, file: &str, visit: impl FnMut(ProcessMapping)) -> io::Result<()> {
        mappings::visit_mappings(&Root::host(), self.pid, file, visit)?;
        self.is_there()
    }

    /// Checks that the process has not ended. Otherwise what was read by its PID may be another's.
    pub(crate) fn is_there(&self) -> io::Result<()> {
        self.file("stat").map(|_| ())
    }

    fn text(&self, name: &str) -> io::Result<String> {
        self.bytes(name).map(lossy)
    }
}

impl ProcessMemory {
    /// Checks that the memory still belongs to a process. If so, its PID was not reused meanwhile.
    ///
    /// # Errors
    /// It does not (`ESRCH`).
    pub fn is_alive(&self) -> io::Result<()> {
        // A page map without memory behind it reads as empty.
        match self.pagemap.read_at(&mut [0; 8], 0)? {
            0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => Ok(()),
        }
    }

    /// Sorts one mapping's pages into mergeable and ineligible, by reason.
    fn sort_mapping(&mut self, mapping: &ProcessMapping, sorter: &mut MappingSorter) {
        let is_locked = sorter.is_locked;
        self.is_mergeable |= mapping.is_mergeable() == Some(true);
        let Some(figures) = &mapping.figures else {
            self.stretches.extend(heading(mapping, is_locked));
            return;
        };
        self.swapped_bytes = self.swapped_bytes.saturating_add(figures.swap);
        if let Some(reason) = mapping.ineligible() {
            let bytes = if reason == IneligibleReason::Hugetlb { figures.hugetlb } else { figures.rss };
            self.largest = self.largest.max(LargestMapping { bytes, ineligible: Some(reason) });
            return self.lose(reason, bytes);
        }
        let ineligible = is_locked.then_some(IneligibleReason::Vfio);
        self.largest = self.largest.max(LargestMapping { bytes: figures.anonymous, ineligible });
        self.lose(IneligibleReason::File, figures.rss.saturating_sub(figures.anonymous));
        self.huge_bytes = self.huge_bytes.saturating_add(figures.huge);
        let stretch = AddressRange { start: mapping.start, end: mapping.end };
        match mapping.is_mergeable() {
            Some(false) => sorter.unmarked.push((stretch, figures.anonymous)),
            _ => self.add(stretch, figures.anonymous, is_locked),
        }
    }

    fn add(&mut self, stretch: AddressRange, anonymous: u64, is_locked: bool) {
        // KSM's zero pages are not counted as anonymous: a stretch may consist of nothing else.
        if is_locked {
            self.lose(IneligibleReason::Vfio, anonymous);
        } else if anonymous > 0 || self.ksm.zero_pages.unwrap_or(0) > 0 {
            self.anonymous_bytes += anonymous;
            self.stretches.push(stretch);
        }
    }

    fn lose(&mut self, reason: IneligibleReason, bytes: u64) {
        if bytes > 0 {
            *self.ineligible.entry(reason).or_default() += bytes;
        }
    }

    /// Sorts mappings that depend on all others. QEMU marks the guest's RAM and not its own heap; a process that has
    /// marked nothing might opt in as a whole.
    fn finish(&mut self, sorter: MappingSorter) {
        for (stretch, anonymous) in sorter.unmarked {
            if self.is_mergeable {
                self.lose(IneligibleReason::NotMergeable, anonymous);
            } else {
                self.add(stretch, anonymous, sorter.is_locked);
            }
        }
    }
}

/// Returns the address range that might be merged, of a mapping without figures. Privately mapped files with written
/// pages are left out: only the page tables show these pages, and they are few.
fn heading(mapping: &ProcessMapping, is_locked: bool) -> Option<AddressRange> {
    let is_anonymous = mapping.path.is_empty() || mapping.path.starts_with('[');
    let is_taken = is_anonymous && mapping.is_accessible && !is_locked && mapping.ineligible().is_none();
    is_taken.then_some(AddressRange { start: mapping.start, end: mapping.end })
}

/// The memory of a process that is marked mergeable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MarkedMemory {
    /// Its address ranges.
    pub stretches: Vec<AddressRange>,
    /// Resident bytes of all other mappings.
    pub unmarked_bytes: u64,
}

impl MarkedMemory {
    fn add(&mut self, mapping: &ProcessMapping) {
        // Where the kernel shows no flags, all may be marked.
        if mapping.is_mergeable() == Some(false) {
            let resident = mapping.figures.as_ref().map_or(0, |figures| figures.rss);
            self.unmarked_bytes = self.unmarked_bytes.saturating_add(resident);
        } else {
            self.stretches.extend(heading(mapping, false));
        }
    }
}

/// State of sorting a process's mappings.
#[derive(Debug)]
struct MappingSorter {
    is_locked: bool,
    /// Mappings that are not marked mergeable, with their anonymous bytes.
    unmarked: Vec<(AddressRange, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the ineligible bytes of a process with these mappings, and the number of ranges left.
    fn sorted(smaps: &str, is_locked: bool) -> (Vec<(IneligibleReason, u64)>, usize, u64) {
        let (lost, memory) = sort(smaps, is_locked);
        (lost, memory.stretches.len(), memory.anonymous_bytes)
    }

    fn sort(smaps: &str, is_locked: bool) -> (Vec<(IneligibleReason, u64)>, ProcessMemory) {
        let own = || File::open("/proc/self/pagemap").unwrap();
        let mappings = ProcessMapping::parse_all(smaps).unwrap();
        let mut memory = ProcessMemory {
            pid: std::process::id(),
            mem: own(),
            pagemap: own(),
            stretches: Vec::new(),
            anonymous_bytes: 0,
            huge_bytes: 0,
            swapped_bytes: 0,
            ineligible: BTreeMap::new(),
            is_mergeable: false,
            largest: LargestMapping::default(),
            ksm: KsmStat::default(),
        };
        let mut sorter = MappingSorter { is_locked, unmarked: Vec::new() };
        for mapping in &mappings {
            memory.sort_mapping(mapping, &mut sorter);
        }
        memory.finish(sorter);
        (memory.ineligible.clone().into_iter().collect(), memory)
    }

    const RAM: &str = "1000-9000 rw-p 0 0:0 0\nRss: 8 kB\nAnonymous: 8 kB\nVmFlags: rd wr mg\n";
    const HEAP: &str = "a000-b000 rw-p 0 0:0 0 [heap]\nRss: 4 kB\nAnonymous: 4 kB\nVmFlags: rd wr\n";
    const SHARED: &str = "c000-d000 rw-s 0 0:0 7 /memfd:ram\nRss: 4 kB\nAnonymous: 0 kB\nVmFlags: rd wr sh\n";
    const HUGE: &str =
        "200000-400000 rw-p 0 0:0 0 /anon_hugepage\nRss: 0 kB\nPrivate_Hugetlb: 2048 kB\nVmFlags: ht\n";
    const LIBRARY: &str = "e000-10000 rw-p 0 8:1 9 /lib\nRss: 8 kB\nAnonymous: 4 kB\nVmFlags: rd wr\n";

    #[test]
    fn each_mapping_goes_where_it_belongs() {
        let all = [HEAP, SHARED, HUGE, LIBRARY].concat();
        let lost = [
            (IneligibleReason::Shared, 4096),
            (IneligibleReason::Hugetlb, 2 << 20),
            (IneligibleReason::File, 4096),
        ];
        assert_eq!(sorted(&all, false), (lost.to_vec(), 2, 8192), "nothing marked: all that is private counts");
        let marked = [RAM, HEAP].concat();
        assert_eq!(sorted(&marked, false), (vec![(IneligibleReason::NotMergeable, 4096)], 1, 8192));
        assert_eq!(sorted(RAM, true), (vec![(IneligibleReason::Vfio, 8192)], 0, 0));
    }

    #[test]
    fn marked_memory_is_told_from_the_rest() {
        let marked = |smaps: &str| {
            let mut marked = MarkedMemory::default();
            ProcessMapping::parse_all(smaps).unwrap().iter().for_each(|mapping| marked.add(mapping));
            (
                marked.stretches.iter().map(|range| (range.start, range.end)).collect::<Vec<_>>(),
                marked.unmarked_bytes,
            )
        };
        assert_eq!(marked(&[RAM, HEAP, LIBRARY].concat()), (vec![(0x1000, 0x9000)], 12_288));
        let without_flags = "a000-b000 rw-p 0 0:0 0 [heap]\nRss: 4 kB\nAnonymous: 4 kB\n";
        assert_eq!(marked(without_flags), (vec![(0xa000, 0xb000)], 0));
    }

    #[test]
    fn what_is_in_swap_counts_in_mappings_of_any_kind() {
        let swapped = "11000-19000 rw-p 0 0:0 0\nRss: 0 kB\nAnonymous: 0 kB\nSwap: 24 kB\nVmFlags: rd wr mg\n";
        let shared = "1a000-1c000 rw-s 0 0:0 7 /memfd:ram\nRss: 4 kB\nSwap: 4 kB\nVmFlags: rd wr sh\n";
        assert_eq!(sort(&[RAM, swapped, shared].concat(), false).1.swapped_bytes, 28 << 10);
        assert_eq!(sort(RAM, false).1.swapped_bytes, 0);
    }

    #[test]
    fn the_largest_mapping_says_why_it_can_not_be_merged() {
        for (smaps, is_locked, bytes, ineligible) in [
            ([RAM, HEAP].concat(), false, 8192, None),
            ([RAM, HEAP].concat(), true, 8192, Some(IneligibleReason::Vfio)),
            ([HEAP, SHARED].concat(), false, 4096, None),
            ([SHARED, LIBRARY].concat(), false, 4096, Some(IneligibleReason::Shared)),
            ([RAM, HUGE].concat(), false, 2 << 20, Some(IneligibleReason::Hugetlb)),
        ] {
            let (_, memory) = sort(&smaps, is_locked);
            assert_eq!(memory.largest, LargestMapping { bytes, ineligible }, "{smaps}");
        }
    }
}
