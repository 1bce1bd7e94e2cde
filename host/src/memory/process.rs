//! A process to read: its memory, and the part of it that KSM could merge.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use ksmith_core::kernel::{CommandLine, Ineligible, KsmStat, Mapping, PidStat};
use rustix::fs::{Mode, OFlags, open, openat};

use super::error::Unreadable;
use super::rights::Rights;
use crate::hypervisor::GuestName;
use crate::mappings;
use crate::proc_file::{self, ADDRESSES, OverBudget, lossy, may_wait};
use crate::reader;
use crate::root::Root;

/// A process, held by its open /proc directory: a reused PID is never taken for it.
#[derive(Debug)]
pub struct Process {
    /// The process's PID.
    pub pid: u32,
    /// The guest's name, or the program's.
    pub name: Arc<str>,
    /// The program's name.
    pub program: Arc<str>,
    /// True if it runs a virtual machine.
    pub is_vm: bool,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    directory: OwnedFd,
}

/// The readable memory of a process, with open files.
#[derive(Debug)]
pub struct Memory {
    /// The PID of its process, while that is alive.
    pub pid: u32,
    /// The process's memory by address.
    pub mem: File,
    /// The pagemap: which pages are present.
    pub pagemap: File,
    /// Address ranges with anonymous pages that KSM could merge, the largest first. This order matches the ranges of
    /// clones.
    pub stretches: Vec<Stretch>,
    /// Anonymous bytes in them.
    pub anonymous_bytes: u64,
    /// Bytes of those in huge pages.
    pub huge_bytes: u64,
    /// Bytes in swap, in mappings of any kind.
    pub swapped_bytes: u64,
    /// Bytes that can't be merged.
    pub ineligible: BTreeMap<Ineligible, u64>,
    /// True if any of it is marked mergeable.
    pub is_mergeable: bool,
    /// The mapping with the most resident bytes: of a virtual machine, its RAM.
    pub largest: Largest,
    /// KSM's figures of this process at the time of opening.
    pub ksm: KsmStat,
}

/// The mapping of a process with the most resident bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Largest {
    /// Bytes resident in it.
    pub bytes: u64,
    /// The reason why KSM never merges it; `None` if it may.
    pub ineligible: Option<Ineligible>,
}

impl Largest {
    /// Returns the larger of both.
    pub fn max(self, other: Self) -> Self {
        if other.bytes > self.bytes { other } else { self }
    }
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
}

/// The level of detail of reading a process's mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// `smaps`: resident bytes and mergeable flags too. The kernel walks all page tables for it.
    Figures,
    /// `maps`: addresses only. Resident bytes and mergeable flags are unknown.
    Headings,
}

impl Process {
    /// Opens a process.
    ///
    /// # Errors
    /// There is none, it is a kernel thread, it is dead, or /proc hides it.
    pub fn open(pid: u32) -> Result<Self, Unreadable> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            open(format!("/proc/{pid}"), flags, Mode::empty()).map_err(|_| Unreadable::NoSuchProcess)?;
        let mut process =
            Self { pid, name: "".into(), program: "".into(), is_vm: false, start_ticks: 0, directory };
        let text = process.text("stat").map_err(Unreadable::of)?;
        let stat = PidStat::parse(&text).map_err(|why| Unreadable::Malformed { file: "stat", why })?;
        if stat.is_kernel_thread {
            return Err(Unreadable::KernelThread);
        }
        if stat.is_zombie {
            return Err(Unreadable::Exited);
        }
        process.start_ticks = stat.start_ticks;
        let line = CommandLine::parse(&process.bytes("cmdline").unwrap_or_default());
        let named = GuestName::of(&stat.comm, &line);
        process.name = named.name.into();
        process.program = GuestName::of(&stat.comm, &CommandLine::default()).name.into();
        process.is_vm = named.is_vm;
        Ok(process)
    }

    /// Reads KSM's figures of the process. All are unknown if the kernel does not show them.
    pub fn ksm(&self) -> KsmStat {
        self.text("ksm_stat").ok().and_then(|text| KsmStat::parse(&text).ok()).unwrap_or_default()
    }

    /// Returns true if the kernel denies us the process's KSM figures.
    pub fn hides_ksm(&self) -> bool {
        self.file("ksm_stat").is_err_and(|error| Unreadable::of(error) == Unreadable::Denied)
    }

    /// Returns true if any of its memory is marked mergeable, by the cheapest way that this kernel offers.
    pub fn is_involved(&self) -> bool {
        let ksm = self.ksm();
        ksm.is_involved()
            || ksm.mergeable.is_none() && {
                let mut is_marked = false;
                let visit = |mapping: Mapping| is_marked |= mapping.is_mergeable() == Some(true);
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
        Rights::read(&self.directory).is_ok_and(|rights| rights.are_of(user))
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
    pub fn memory(&self, detail: Detail) -> Result<Memory, Unreadable> {
        // First, for this shows whether the process answers at all.
        let ksm = self.ksm();
        let mem = self.file("mem").map_err(Unreadable::of)?;
        let pagemap = self.file("pagemap").map_err(Unreadable::of)?;
        let file = if detail == Detail::Figures { "smaps" } else { "maps" };
        // Not knowing counts as no.
        let is_locked = proc_file::holds_vfio(Path::new(&format!("/proc/{}/fd", self.pid))).unwrap_or(false);
        let mut memory = Memory {
            pid: self.pid,
            mem,
            pagemap,
            stretches: Vec::new(),
            anonymous_bytes: 0,
            huge_bytes: 0,
            swapped_bytes: 0,
            ineligible: BTreeMap::new(),
            is_mergeable: false,
            largest: Largest::default(),
            ksm,
        };
        let mut sorter = Sorter { is_locked, unmarked: Vec::new() };
        self.each_mapping(file, |mapping| memory.take(&mapping, &mut sorter))
            .map_err(|error| Unreadable::of_file(file, error))?;
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
    pub fn stretches(&self) -> Result<Vec<Stretch>, Unreadable> {
        let is_locked = proc_file::holds_vfio(Path::new(&format!("/proc/{}/fd", self.pid))).unwrap_or(false);
        let mut stretches = Vec::new();
        let mut take = |mapping: Mapping| stretches.extend(heading(&mapping, is_locked));
        self.each_mapping("maps", &mut take).map_err(|error| Unreadable::of_file("maps", error))?;
        Ok(stretches)
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

    fn each_mapping(&self, file: &str, visit: impl FnMut(Mapping)) -> io::Result<()> {
        mappings::each(&Root::host(), self.pid, file, visit)?;
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

impl Memory {
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
    fn take(&mut self, mapping: &Mapping, sorter: &mut Sorter) {
        let is_locked = sorter.is_locked;
        self.is_mergeable |= mapping.is_mergeable() == Some(true);
        let Some(figures) = &mapping.figures else {
            self.stretches.extend(heading(mapping, is_locked));
            return;
        };
        self.swapped_bytes = self.swapped_bytes.saturating_add(figures.swap);
        if let Some(reason) = mapping.ineligible() {
            let bytes = if reason == Ineligible::Hugetlb { figures.hugetlb } else { figures.rss };
            self.largest = self.largest.max(Largest { bytes, ineligible: Some(reason) });
            return self.lose(reason, bytes);
        }
        let ineligible = is_locked.then_some(Ineligible::Vfio);
        self.largest = self.largest.max(Largest { bytes: figures.anonymous, ineligible });
        self.lose(Ineligible::File, figures.rss.saturating_sub(figures.anonymous));
        self.huge_bytes = self.huge_bytes.saturating_add(figures.huge);
        let stretch = Stretch { start: mapping.start, end: mapping.end };
        match mapping.is_mergeable() {
            Some(false) => sorter.unmarked.push((stretch, figures.anonymous)),
            _ => self.add(stretch, figures.anonymous, is_locked),
        }
    }

    fn add(&mut self, stretch: Stretch, anonymous: u64, is_locked: bool) {
        // KSM's zero pages are not counted as anonymous: a stretch may consist of nothing else.
        if is_locked {
            self.lose(Ineligible::Vfio, anonymous);
        } else if anonymous > 0 || self.ksm.zero_pages.unwrap_or(0) > 0 {
            self.anonymous_bytes += anonymous;
            self.stretches.push(stretch);
        }
    }

    fn lose(&mut self, reason: Ineligible, bytes: u64) {
        if bytes > 0 {
            *self.ineligible.entry(reason).or_default() += bytes;
        }
    }

    /// Sorts mappings that depend on all others. QEMU marks the guest's RAM and not its own heap; a process that has
    /// marked nothing might opt in as a whole.
    fn finish(&mut self, sorter: Sorter) {
        for (stretch, anonymous) in sorter.unmarked {
            if self.is_mergeable {
                self.lose(Ineligible::NotMergeable, anonymous);
            } else {
                self.add(stretch, anonymous, sorter.is_locked);
            }
        }
    }
}

/// Returns the address range that might be merged, of a mapping without figures. Privately mapped files with written
/// pages are left out: only the page tables show these pages, and they are few.
fn heading(mapping: &Mapping, is_locked: bool) -> Option<Stretch> {
    let is_anonymous = mapping.path.is_empty() || mapping.path.starts_with('[');
    let is_taken = is_anonymous && mapping.is_accessible && !is_locked && mapping.ineligible().is_none();
    is_taken.then_some(Stretch { start: mapping.start, end: mapping.end })
}

/// State of sorting a process's mappings.
#[derive(Debug)]
struct Sorter {
    is_locked: bool,
    /// Mappings that are not marked mergeable, with their anonymous bytes.
    unmarked: Vec<(Stretch, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the ineligible bytes of a process with these mappings, and the number of ranges left.
    fn sorted(smaps: &str, is_locked: bool) -> (Vec<(Ineligible, u64)>, usize, u64) {
        let (lost, memory) = sort(smaps, is_locked);
        (lost, memory.stretches.len(), memory.anonymous_bytes)
    }

    fn sort(smaps: &str, is_locked: bool) -> (Vec<(Ineligible, u64)>, Memory) {
        let own = || File::open("/proc/self/pagemap").unwrap();
        let mappings = Mapping::parse_all(smaps).unwrap();
        let mut memory = Memory {
            pid: std::process::id(),
            mem: own(),
            pagemap: own(),
            stretches: Vec::new(),
            anonymous_bytes: 0,
            huge_bytes: 0,
            swapped_bytes: 0,
            ineligible: BTreeMap::new(),
            is_mergeable: false,
            largest: Largest::default(),
            ksm: KsmStat::default(),
        };
        let mut sorter = Sorter { is_locked, unmarked: Vec::new() };
        for mapping in &mappings {
            memory.take(mapping, &mut sorter);
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
        let lost = [(Ineligible::Shared, 4096), (Ineligible::Hugetlb, 2 << 20), (Ineligible::File, 4096)];
        assert_eq!(sorted(&all, false), (lost.to_vec(), 2, 8192), "nothing marked: all that is private counts");
        let marked = [RAM, HEAP].concat();
        assert_eq!(sorted(&marked, false), (vec![(Ineligible::NotMergeable, 4096)], 1, 8192));
        assert_eq!(sorted(RAM, true), (vec![(Ineligible::Vfio, 8192)], 0, 0));
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
            ([RAM, HEAP].concat(), true, 8192, Some(Ineligible::Vfio)),
            ([HEAP, SHARED].concat(), false, 4096, None),
            ([SHARED, LIBRARY].concat(), false, 4096, Some(Ineligible::Shared)),
            ([RAM, HUGE].concat(), false, 2 << 20, Some(Ineligible::Hugetlb)),
        ] {
            let (_, memory) = sort(&smaps, is_locked);
            assert_eq!(memory.largest, Largest { bytes, ineligible }, "{smaps}");
        }
    }
}
