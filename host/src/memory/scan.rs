//! Reading a range of a process's memory without disturbing it.
//!
//! Only pages that are present and anonymous by pagemap are read, so nothing is faulted in and no userfaultfd handler
//! is woken. They are read through `/proc/PID/mem`, which takes no pins, so that merged pages stay merged;
//! [`super::pinned`] documents when a faster call may be used. A page that goes away in between costs at most one
//! fault.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use ksmith_core::kernel::{FrameFlags, PageEntry, usual_huge_page_bytes};
use ksmith_core::sketch::ZERO;

use super::frames::FrameTable;
use super::pace::ReadPace;
use super::pinned::{self, PinningCheck};
use super::process::ProcessMemory;
use super::salt::FingerprintSalt;
use super::under_way;
use crate::root::Root;

/// State shared by all scanning threads.
#[derive(Debug)]
pub struct ScanContext {
    /// The salt of the run.
    pub salt: FingerprintSalt,
    /// The rate limit of reading.
    pub pace: ReadPace,
    /// Frame flags, and the frames seen.
    pub frames: FrameTable,
    /// The check that nothing is merged on this host.
    pub quiet: PinningCheck,
    /// Bytes in a page.
    pub page_size: u64,
}

/// Buffers and state of one scanning thread.
#[derive(Debug)]
pub struct ScanBuffers {
    buffer: Vec<u8>,
    entries: Vec<u8>,
    frames: Vec<u64>,
    flags: Vec<FrameFlags>,
    /// True if pages may be pinned, as of a few milliseconds ago. `looks` more single pages use it.
    may_pin: bool,
    looks: u32,
    /// True if frames seen before may be read, because the first pass saw them.
    is_second_look: bool,
}

/// Figures of a scan besides the fingerprints, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanTally {
    /// Pages that were read.
    pub read: u64,
    /// Pages that are merged with others by KSM.
    pub merged: u64,
    /// Pages that map the kernel's zero page, through KSM or never written to. They are not reported as pages. If frame
    /// numbers are hidden, pages of zeros that are not mapped here alone count as such.
    pub zero_mapped: u64,
    /// Pages skipped because a page seen before has the same frame since a fork.
    pub forked: u64,
}

impl ScanTally {
    /// Adds another process's pages.
    pub fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.merged += other.merged;
        self.zero_mapped += other.zero_mapped;
        self.forked += other.forked;
    }
}

/// A reason why a scan ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanStopped {
    /// The process is gone.
    Exited,
}

impl ScanBuffers {
    /// Bytes of one read: they fit the second-level cache until they are hashed.
    const READ: usize = 256 << 10;

    /// Pages looked up by one read.
    const LOOKED_UP: u64 = 4096;

    /// Reads of single pages between two checks that pages may be pinned.
    const LOOKS: u32 = 256;

    /// Creates the buffers of one thread.
    pub fn new() -> Self {
        Self {
            buffer: vec![0; Self::READ],
            entries: Vec::new(),
            frames: Vec::new(),
            flags: Vec::new(),
            may_pin: false,
            looks: 0,
            is_second_look: false,
        }
    }

    /// Permits reading frames that were seen before, for a second pass.
    pub fn look_again(&mut self) {
        self.is_second_look = true;
    }

    /// Reads all readable pages of `addresses`, in order, and calls `page` with the address and the fingerprint of
    /// each.
    ///
    /// # Errors
    /// The process is gone.
    pub fn scan(
        &mut self,
        context: &ScanContext,
        memory: &ProcessMemory,
        addresses: Range<u64>,
        page: impl FnMut(u64, u64),
    ) -> Result<ScanTally, ScanStopped> {
        self.may_pin = context.quiet.is_certain();
        self.pages(context, memory, addresses, page)
    }

    fn pages(
        &mut self,
        context: &ScanContext,
        memory: &ProcessMemory,
        addresses: Range<u64>,
        mut page: impl FnMut(u64, u64),
    ) -> Result<ScanTally, ScanStopped> {
        let size = context.page_size;
        let mut tally = ScanTally::default();
        let mut first = addresses.start / size;
        let end = addresses.end / size;
        while first < end {
            let count = Self::LOOKED_UP.min(end - first);
            let found = self.look_up(memory.pid, &memory.pagemap, first, count)?;
            self.find_frames(context, found);
            let mut at = 0;
            while at < found {
                let run = self.run(context, at, found, &mut tally);
                if run > 0 {
                    let from = (first + at as u64) * size;
                    self.read(context, memory, from, run, at, &mut tally, &mut page)?;
                }
                at += run.max(1);
            }
            first += count;
        }
        Ok(tally)
    }

    /// Reads the pagemap entries of `count` pages from page number `first` on. Returns the number of entries.
    fn look_up(&mut self, pid: u32, pagemap: &File, first: u64, count: u64) -> Result<usize, ScanStopped> {
        self.entries.resize(count as usize * 8, 0);
        // A mapping may have been taken away: no entries then, which is no reason to stop. A process that is gone
        // has no entries anywhere.
        match under_way::during(pid, || pagemap.read_at(&mut self.entries, first * 8)) {
            Ok(0) => Err(ScanStopped::Exited),
            Ok(bytes) => Ok(bytes / 8),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(ScanStopped::Exited),
            Err(_) => Ok(0),
        }
    }

    fn entry(&self, at: usize) -> PageEntry {
        let word = self.entries.get(at * 8..).and_then(<[u8]>::first_chunk::<8>);
        word.map_or(PageEntry::default(), |word| PageEntry::from_bytes(*word))
    }

    /// Looks up the frames of all pages that others may map too.
    fn find_frames(&mut self, context: &ScanContext, found: usize) {
        self.frames.clear();
        for at in 0..found {
            let entry = self.entry(at);
            if entry.is_anonymous() && !entry.is_exclusive() && entry.frame() > 0 {
                self.frames.push(entry.frame());
            }
        }
        if self.frames.is_empty() {
            return;
        }
        self.frames.sort_unstable();
        self.frames.dedup();
        context.frames.flags(&self.frames, &mut self.flags);
    }

    fn flags_of(&self, entry: PageEntry) -> FrameFlags {
        match entry.is_exclusive() {
            true => FrameFlags::default(),
            false => self.frames.binary_search(&entry.frame()).map_or(FrameFlags::default(), |at| self.flags[at]),
        }
    }

    /// Returns the number of pages from `at` on for one read; 0 if the page at `at` is not to be read.
    fn run(&self, context: &ScanContext, at: usize, found: usize, tally: &mut ScanTally) -> usize {
        let most = Self::READ / context.page_size as usize;
        let mut run = 0;
        let is_exclusive = self.entry(at).is_exclusive();
        while at + run < found && run < most {
            let entry = self.entry(at + run);
            // Where pinning is possible, only runs of exclusive pages are read by it.
            if !entry.is_anonymous() || self.may_pin && entry.is_exclusive() != is_exclusive {
                break;
            }
            let flags = self.flags_of(entry);
            if flags.is_zero_page() {
                tally.zero_mapped += u64::from(run == 0);
                break;
            }
            // Without flags a merged page could not be told from one that a fork shares.
            let is_told_apart = context.frames.are_visible() && entry.frame() > 0;
            let is_shared = is_told_apart && !entry.is_exclusive() && !flags.is_merged();
            if is_shared && !self.is_second_look && !context.frames.see(entry.frame()) {
                // It is seen for good: it will be met again as the first of a run, and passed over.
                tally.forked += u64::from(run == 0);
                break;
            }
            tally.merged += u64::from(flags.is_merged());
            run += 1;
        }
        run
    }

    #[allow(clippy::too_many_arguments, reason = "the state of one loop")]
    fn read(
        &mut self,
        context: &ScanContext,
        memory: &ProcessMemory,
        from: u64,
        pages: usize,
        at: usize,
        tally: &mut ScanTally,
        page: &mut impl FnMut(u64, u64),
    ) -> Result<(), ScanStopped> {
        let size = context.page_size as usize;
        let wanted = pages * size;
        let is_exclusive = self.entry(at).is_exclusive();
        context.pace.wait_for(wanted as u64);
        let buffer = &mut self.buffer[..wanted];
        let may_pin = self.may_pin;
        let result = under_way::during(memory.pid, || match may_pin && is_exclusive {
            // It may be refused where the file is not: seccomp, a user namespace.
            true => match pinned::read(memory.pid, from, buffer) {
                Ok(got) => memory.is_alive().map(|()| got),
                Err(_) => memory.mem.read_at(buffer, from),
            },
            false => memory.mem.read_at(buffer, from),
        });
        let got = match result {
            // The memory of a process that ended reads as empty.
            Ok(0) => return Err(ScanStopped::Exited),
            Ok(got) => got,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(ScanStopped::Exited),
            // The mapping was taken away since pagemap was read.
            Err(_) => 0,
        };
        let hides_frames = !context.frames.are_visible() || self.entry(at).frame() == 0;
        for (index, bytes) in self.buffer[..got].chunks_exact(size).enumerate() {
            let fingerprint = context.salt.fingerprint(bytes);
            if hides_frames && fingerprint == ZERO && !self.entry(at + index).is_exclusive() {
                tally.zero_mapped += 1;
                continue;
            }
            page(from + (index * size) as u64, fingerprint);
        }
        tally.read += (got / size) as u64;
        Ok(())
    }

    /// Reads one page. Returns its fingerprint (`None` if there is nothing to read) and the figures that tell why.
    ///
    /// # Errors
    /// The process is gone.
    pub fn read_page(
        &mut self,
        context: &ScanContext,
        memory: &ProcessMemory,
        address: u64,
    ) -> Result<(Option<u64>, ScanTally), ScanStopped> {
        if self.looks == 0 {
            self.may_pin = context.quiet.is_certain();
            self.looks = Self::LOOKS;
        }
        self.looks -= 1;
        let mut look = None;
        let page = address..address + context.page_size;
        let tally = self.pages(context, memory, page, |_, fingerprint| look = Some(fingerprint))?;
        Ok((look, tally))
    }
}

impl Default for ScanBuffers {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the size of a page.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// Returns the size of a transparent huge page: the usual one if the kernel does not show it.
pub fn huge_page_size() -> u64 {
    Root::host().shown_huge_page_bytes().unwrap_or_else(|| usual_huge_page_bytes(page_size()))
}

/// Returns the CPU time used by this process, in seconds.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Converts an unexpected I/O error of the action `what`.
pub fn unexpected(what: &'static str) -> impl FnOnce(io::Error) -> super::error::EstimateError {
    move |why| super::error::EstimateError::System { what, why }
}
