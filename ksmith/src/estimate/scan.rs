//! Reading a stretch of a process's memory without disturbing it.
//!
//! Only pages that pagemap says are present and anonymous are read, so nothing is faulted in and no userfaultfd
//! handler is woken; and only through `/proc/PID/mem`, which takes no pins, so that merged pages stay merged
//! (`process_vm_readv` would un-merge them). A page that goes away in between costs at most one fault.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use ksmith_core::kernel::{FrameFlags, PageEntry};
use ksmith_core::sketch::ZERO;

use super::frames::Frames;
use super::pace::Pace;
use super::process::Memory;
use super::salt::Salt;

/// What all threads share.
#[derive(Debug)]
pub struct Context {
    /// The salt of the run.
    pub salt: Salt,
    /// How fast to read.
    pub pace: Pace,
    /// Whose frames are whose.
    pub frames: Frames,
    /// Bytes in a page.
    pub page_size: u64,
}

/// What one thread needs again and again.
#[derive(Debug)]
pub struct Scratch {
    buffer: Vec<u8>,
    entries: Vec<u8>,
    frames: Vec<u64>,
    flags: Vec<FrameFlags>,
}

/// What was found besides the fingerprints, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pages read.
    pub read: u64,
    /// Pages that are merged with others by KSM.
    pub merged: u64,
    /// Pages that map the kernel's zero page, KSM's work or never written to: not reported as pages. Where
    /// frames are hidden from us, pages of zeros that are not mapped here alone are taken for such.
    pub zero_mapped: u64,
}

impl Tally {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.merged += other.merged;
        self.zero_mapped += other.zero_mapped;
    }
}

/// Why reading a stretch ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The process is gone.
    Exited,
}

impl Scratch {
    /// Bytes read at once: the second-level cache holds them until they are hashed.
    const READ: usize = 256 << 10;

    /// Pages looked up at once.
    const LOOKED_UP: u64 = 4096;

    /// Buffers for one thread.
    pub fn new() -> Self {
        Self { buffer: vec![0; Self::READ], entries: Vec::new(), frames: Vec::new(), flags: Vec::new() }
    }

    /// Reads all of `addresses` that may be read and calls `page` with the address and the fingerprint of each
    /// page, in order.
    ///
    /// # Errors
    /// The process is gone.
    pub fn scan(
        &mut self,
        context: &Context,
        memory: &Memory,
        addresses: Range<u64>,
        mut page: impl FnMut(u64, u64),
    ) -> Result<Tally, Stopped> {
        let size = context.page_size;
        let mut tally = Tally::default();
        let mut first = addresses.start / size;
        let end = addresses.end / size;
        while first < end {
            let count = Self::LOOKED_UP.min(end - first);
            let found = self.look_up(&memory.pagemap, first, count)?;
            self.find_frames(context, found);
            let mut at = 0;
            while at < found {
                let run = self.run(context, at, found, &mut tally);
                if run > 0 {
                    let from = (first + at as u64) * size;
                    self.read(context, &memory.mem, from, run, at, &mut tally, &mut page)?;
                }
                at += run.max(1);
            }
            first += count;
        }
        Ok(tally)
    }

    /// Reads what pagemap says about `count` pages from page number `first` on. Gives the number of pages told.
    fn look_up(&mut self, pagemap: &File, first: u64, count: u64) -> Result<usize, Stopped> {
        self.entries.resize(count as usize * 8, 0);
        // A mapping may have been taken away: no entries then, which is no reason to stop. A process that is gone
        // has no entries anywhere.
        match pagemap.read_at(&mut self.entries, first * 8) {
            Ok(0) => Err(Stopped::Exited),
            Ok(bytes) => Ok(bytes / 8),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(Stopped::Exited),
            Err(_) => Ok(0),
        }
    }

    fn entry(&self, at: usize) -> PageEntry {
        let word = self.entries.get(at * 8..).and_then(<[u8]>::first_chunk::<8>);
        word.map_or(PageEntry::default(), |word| PageEntry::from_bytes(*word))
    }

    /// Looks up the frames of all pages that others may map as well.
    fn find_frames(&mut self, context: &Context, found: usize) {
        let entries = (0..found).map(|at| self.entry(at));
        let shared = entries.filter(|entry| entry.is_anonymous() && !entry.is_exclusive() && entry.frame() > 0);
        let shared: Vec<u64> = shared.map(PageEntry::frame).collect();
        self.frames.clear();
        self.frames.extend(shared);
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

    /// The number of pages from `at` on that can be read in one go; 0 if this one is not to be read.
    fn run(&self, context: &Context, at: usize, found: usize, tally: &mut Tally) -> usize {
        let most = Self::READ / context.page_size as usize;
        let mut run = 0;
        while at + run < found && run < most {
            let entry = self.entry(at + run);
            if !entry.is_anonymous() {
                break;
            }
            let flags = self.flags_of(entry);
            if flags.is_zero_page() {
                tally.zero_mapped += u64::from(run == 0);
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
        context: &Context,
        mem: &File,
        from: u64,
        pages: usize,
        at: usize,
        tally: &mut Tally,
        page: &mut impl FnMut(u64, u64),
    ) -> Result<(), Stopped> {
        let size = context.page_size as usize;
        let wanted = pages * size;
        context.pace.wait_for(wanted as u64);
        let got = match mem.read_at(&mut self.buffer[..wanted], from) {
            // The memory of a process that ended reads as empty.
            Ok(0) => return Err(Stopped::Exited),
            Ok(got) => got,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(Stopped::Exited),
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

    /// Looks at one page: its fingerprint, or `None` if there is nothing to read.
    ///
    /// # Errors
    /// The process is gone.
    pub fn look(&mut self, context: &Context, memory: &Memory, address: u64) -> Result<Option<u64>, Stopped> {
        let mut look = None;
        self.scan(context, memory, address..address + context.page_size, |_, fingerprint| {
            look = Some(fingerprint)
        })?;
        Ok(look)
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// The size of a page.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// CPU time that this process has used, in seconds.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Maps an I/O error that should not happen.
pub fn unexpected(what: &'static str) -> impl FnOnce(io::Error) -> super::error::EstimateError {
    move |why| super::error::EstimateError::System { what, why }
}
