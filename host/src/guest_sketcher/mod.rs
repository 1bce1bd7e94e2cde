//! Reads guests for their sketches (see [`ksmith_core::guest_sketch`]).
//!
//! A thread of the lowest priority reads, and no tick waits for it, except briefly where ksmd has just ended a pass.
//! Pages are read like page samples: through `/proc/PID/mem`, which leaves merged pages merged, only where pagemap says
//! that they are present, and in a child, since a process may block its reader. A process that may not be read has no
//! sketch. Fingerprints never leave this process.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::{Duration, Instant};

use ksmith_core::guest_sketch::{SketchKeeper, SketchRequest};
use ksmith_core::kernel::PageEntry;
use ksmith_core::page_sample::FrameKind;
use ksmith_core::sample::{GuestSketch, ProcessId, ReadPage, Sample};
use ksmith_core::sketch::mix;
use rustc_hash::FxHashMap;
use twox_hash::XxHash3_64;

use crate::memory::pace::lower_priority;
use crate::memory::process::{AddressRange, OpenProcess};
use crate::own_use::thread_cpu;
use crate::page_sampler::{FrameTables, SampledPageReader, nth_page};
use crate::reader;
use crate::worker_thread::WorkerThread;

/// Time for which a tick waits for the pages that a pass merged. They arrive in time unless a process blocks the
/// reader.
const PATIENCE: Duration = Duration::from_millis(30);

/// Pages per read request.
const AT_ONCE: usize = 4096;

/// The deadline of a read request: on a busy host the lowest priority gets little CPU time, and nothing waits for it.
const LONGEST: Duration = Duration::from_secs(30);

/// Assumed number of pages that share a merged frame, where the kernel does not report it: the minimum.
const FEWEST: u64 = 2;

/// Pages by guest and page number, with their present content.
type Looked = Vec<(ProcessId, FxHashMap<u64, Option<ReadPage>>)>;

/// A result of the thread, with its CPU time in seconds.
#[derive(Debug)]
enum SketcherResult {
    Read(ProcessId, Option<GuestSketch>, f64),
    Looked(Looked, f64),
}

/// Keeps sketches of guests with a thread that reads them.
#[derive(Debug)]
pub struct GuestSketcher {
    keeper: SketchKeeper,
    worker: WorkerThread<SketchRequest, SketcherResult>,
    is_busy: bool,
}

impl GuestSketcher {
    /// Starts the thread. It ends when this is dropped.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start() -> io::Result<Self> {
        let worker = WorkerThread::start("guest-sketch", 1, |requests, results| {
            lower_priority();
            let mut reader = GuestReader::default();
            requests
                .iter()
                .filter_map(|request| reader.carry_out(request))
                .all(|found| results.send(found).is_ok());
        })?;
        Ok(Self { keeper: SketchKeeper::default(), worker, is_busy: false })
    }

    /// Fills the newest sketches into `sample`, and requests those that are due from the thread.
    pub fn read(&mut self, sample: &mut Sample) {
        let before = thread_cpu();
        self.accept_result(self.worker.poll_reply().ok());
        self.keeper.follow(sample);
        while !self.is_busy {
            let request = self.keeper.next_request();
            let is_look = matches!(request, SketchRequest::Look(_));
            if request == SketchRequest::Nothing || self.worker.queue_request(request).is_err() {
                break;
            }
            self.is_busy = true;
            if !is_look {
                break;
            }
            self.accept_result(self.worker.await_reply(PATIENCE).ok());
        }
        sample.sketches = self.keeper.sketches();
        self.keeper.charge(thread_cpu().saturating_sub(before).as_secs_f64());
    }

    fn accept_result(&mut self, found: Option<SketcherResult>) {
        match found {
            None => return,
            Some(SketcherResult::Read(id, sketch, seconds)) => self.keeper.record_sketch(id, sketch, seconds),
            Some(SketcherResult::Looked(pages, seconds)) => self.keeper.record_pages(&pages, seconds),
        }
        self.is_busy = false;
    }

    /// Returns an upper bound of the CPU time that sketches have taken so far, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        self.keeper.cpu_seconds()
    }
}

/// Measures the CPU time of a thread and of the child that reads for it.
#[derive(Debug)]
struct CpuStopwatch {
    began: Instant,
    cpu: Duration,
}

impl CpuStopwatch {
    fn start() -> Self {
        Self { began: Instant::now(), cpu: Self::cpu() }
    }

    /// Returns the CPU time since the start, at most the elapsed time: children that read for other threads count too.
    /// The child works while the thread waits. A thread of the lowest priority may wait much longer for a CPU than it
    /// works.
    fn cpu_seconds(&self) -> f64 {
        Self::cpu().saturating_sub(self.cpu).min(self.began.elapsed()).as_secs_f64()
    }

    fn cpu() -> Duration {
        thread_cpu().saturating_add(reader::cpu())
    }
}

/// Samples the pages of guests and fingerprints them.
#[derive(Debug)]
struct GuestReader {
    pages: SampledPageReader,
    frames: FrameTables,
    random: RandomState,
    /// Hash of an empty page.
    empty: u64,
    page_size: u64,
}

impl Default for GuestReader {
    fn default() -> Self {
        let page_size = rustix::param::page_size();
        let empty = XxHash3_64::oneshot(&vec![0; page_size]);
        let (pages, frames) = (SampledPageReader::default(), FrameTables::open());
        Self { pages, frames, random: RandomState::new(), empty, page_size: page_size as u64 }
    }
}

impl GuestReader {
    /// Executes a request and measures its CPU time.
    fn carry_out(&mut self, request: SketchRequest) -> Option<SketcherResult> {
        let stopwatch = CpuStopwatch::start();
        match request {
            SketchRequest::Nothing => None,
            SketchRequest::Read(id) => {
                let sketch = self.sketch(id);
                Some(SketcherResult::Read(id, sketch, stopwatch.cpu_seconds()))
            }
            SketchRequest::Look(guests) => {
                let looked = self.reread_pages(&guests);
                Some(SketcherResult::Looked(looked, stopwatch.cpu_seconds()))
            }
        }
    }

    /// Builds the sketch of a guest from a sample of its pages; `None` if it can't be read.
    fn sketch(&mut self, id: ProcessId) -> Option<GuestSketch> {
        let stretches = opened(id)?.stretches().ok()?;
        let addresses = self.draw(id, &stretches);
        let mut found = Vec::new();
        for addresses in addresses.chunks(AT_ONCE) {
            // Pages that did not come would look as if they were not there.
            found.extend(self.read(id, addresses)?.into_iter().flatten());
        }
        // Else all that was read may be another process's.
        opened(id)?;
        // Of all addresses the same part is present as of those that were tried.
        let pages = u128::from(self.pages_of(&stretches)) * found.len() as u128 / addresses.len().max(1) as u128;
        let mut sketch = GuestSketch::new(id, u64::try_from(pages).unwrap_or(u64::MAX));
        for (page, entry) in found {
            // Of most pages nothing is kept, and their frames need not be looked up.
            let mappings = if sketch.keeps(page.fingerprint) { self.mappings(entry) } else { 0 };
            sketch.add(ReadPage { mappings, ..page });
        }
        sketch.shrink();
        (sketch.read > 0).then_some(sketch)
    }

    fn pages_of(&self, stretches: &[AddressRange]) -> u64 {
        stretches.iter().map(|stretch| (stretch.end - stretch.start) / self.page_size).sum()
    }

    /// Draws a stratified random sample of addresses: one in each of equal parts of a guest's memory.
    fn draw(&self, id: ProcessId, stretches: &[AddressRange]) -> Vec<u64> {
        let all = self.pages_of(stretches);
        let width = all.div_ceil(GuestSketch::pages_to_read(all)).max(1);
        let place = |part: u64| part * width + self.random.hash_one((id, part)) % width;
        (0..all.div_ceil(width)).filter_map(|part| nth_page(stretches, place(part), self.page_size)).collect()
    }

    fn reread_pages(&mut self, guests: &[(ProcessId, Vec<u64>)]) -> Looked {
        let mut looked = Vec::new();
        for (id, places) in guests.iter().filter(|(id, _)| opened(*id).is_some()) {
            let addresses: Vec<u64> = places.iter().map(|place| place * self.page_size).collect();
            // They stay as they were.
            let Some(pages) = self.read(*id, &addresses) else { continue };
            let pages = pages
                .into_iter()
                .map(|page| page.map(|(page, entry)| ReadPage { mappings: self.mappings(entry), ..page }));
            looked.push((*id, places.iter().copied().zip(pages).collect()));
        }
        looked
    }

    /// Reads the present pages of a guest at these addresses; `None` if the read failed. The entry has the frame, and
    /// `mappings` is not filled in yet.
    fn read(&mut self, id: ProcessId, addresses: &[u64]) -> Option<Vec<Option<(ReadPage, PageEntry)>>> {
        let pages = self.pages.read_of(id, addresses, LONGEST)?;
        let read = |(address, page): (&u64, Option<reader::SampledPage>)| {
            let page = page?;
            let fingerprint = match page.content {
                content if content == self.empty => 0,
                // No guest can choose which of its contents are kept.
                content => mix(content ^ self.random.hash_one(0)).max(1),
            };
            Some((ReadPage { place: address / self.page_size, fingerprint, mappings: 0 }, page.entry))
        };
        Some(addresses.iter().zip(pages).map(read).collect())
    }

    /// Returns the number of pages that share the frame of this one; 0 if the frame is its own.
    fn mappings(&self, entry: PageEntry) -> u64 {
        match self.frames.classify_frame(entry) {
            FrameKind::Own => 0,
            FrameKind::Merged { mappings } => u64::from(mappings.max(1)),
            FrameKind::Shared => FEWEST,
        }
    }
}

/// Opens the process if it still exists: its PID may have been reused.
fn opened(id: ProcessId) -> Option<OpenProcess> {
    OpenProcess::open(id.pid).ok().filter(|process| process.start_ticks == id.start_ticks)
}

#[cfg(test)]
mod tests;
