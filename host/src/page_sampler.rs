//! Draws and reads the page samples of the live host (see [`ksmith_core::page_sample`]).
//!
//! Pages are read through `/proc/PID/mem`, which leaves merged pages merged, and only where pagemap says that they are
//! present. Reading costs some microseconds per page.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::FileExt;

use ksmith_core::kernel::{FrameFlags, PageEntry};
use ksmith_core::page_sample::{Fingerprint, Frame, PART_STEP, PageSampler, Request};
use ksmith_core::reading::Reading;
use ksmith_core::sample::Sample;
use tracing::info;
use twox_hash::XxHash3_64;

use crate::memory::frames;
use crate::memory::process::{Detail, Memory, Process};

/// Pages that are sampled, over all guests.
const PAGES: u64 = 512;

/// Places tried for each page: parts of a guest's memory may not be present.
const TRIES: u64 = 4;

/// The page samples of all guests.
#[derive(Debug)]
pub struct LiveSampler {
    sampler: PageSampler,
    guests: Vec<Guest>,
    frames: Frames,
    buffer: Vec<u8>,
}

/// The kernel's tables of frames, if they may be read.
#[derive(Debug, Default)]
struct Frames {
    /// `/proc/kpageflags`
    flags: Option<File>,
    /// `/proc/kpagecount`
    mappings: Option<File>,
}

/// The page samples of one process.
#[derive(Debug)]
struct Guest {
    pid: u32,
    mem: File,
    pagemap: File,
    addresses: Vec<u64>,
}

impl Default for LiveSampler {
    fn default() -> Self {
        let mut sampler = PageSampler::default();
        sampler.add_always_merging(XxHash3_64::oneshot(&vec![0; rustix::param::page_size()]));
        if !frames::are_numbered() {
            info!(
                "without CAP_SYS_ADMIN the kernel hides how many pages share a frame: page samples count every shared page \
                 as one that others can merge with"
            );
        }
        let [flags, mappings] = ["/proc/kpageflags", "/proc/kpagecount"].map(|path| File::open(path).ok());
        Self { sampler, guests: Vec::new(), frames: Frames { flags, mappings }, buffer: Vec::new() }
    }
}

impl LiveSampler {
    /// Reads the sampled pages if it is time to, and fills the newest counts into `sample`.
    pub fn read(&mut self, sample: &mut Sample) {
        match self.sampler.next(sample) {
            Request::Nothing => {}
            Request::Read => self.read_all(sample),
            Request::ReadPart { offset } => {
                let fingerprints = self.fingerprints(offset, PART_STEP, sample.page_size);
                if self.sampler.read_part(offset, fingerprints, sample.at) {
                    self.read_all(sample);
                }
            }
            Request::Draw => {
                self.draw(sample);
                let fingerprints = self.fingerprints(0, 1, sample.page_size);
                self.sampler.drawn(fingerprints, sample.at);
            }
        }
        sample.page_samples = self.sampler.page_samples().map_or(Reading::Absent, Reading::Value);
    }

    /// Draws as many pages from each process as its part of all memory. Processes with memory that may not be read have
    /// none.
    fn draw(&mut self, sample: &Sample) {
        let mergeable = || sample.processes.iter().filter(|process| process.may_merge());
        let bytes = |process: &ksmith_core::sample::Process| {
            process.rss_bytes.saturating_add(process.zero_pages().saturating_mul(sample.page_size))
        };
        let all: u64 = mergeable().map(bytes).sum();
        let random = RandomState::new();
        self.guests.clear();
        for process in mergeable() {
            let count = (u128::from(PAGES) * u128::from(bytes(process))).div_ceil(u128::from(all.max(1))) as u64;
            let memory = Process::open(process.id.pid).and_then(|process| process.memory(Detail::Headings));
            if let Ok(memory) = memory {
                let addresses = places(&memory, count.min(PAGES), sample.page_size, &random);
                let pid = process.id.pid;
                self.guests.push(Guest { pid, mem: memory.mem, pagemap: memory.pagemap, addresses });
            }
        }
    }

    fn read_all(&mut self, sample: &Sample) {
        let fingerprints = self.fingerprints(0, 1, sample.page_size);
        self.sampler.read(fingerprints, sample.at);
    }

    /// The fingerprints of every `step`th page, from the `offset`th on.
    fn fingerprints(&mut self, offset: usize, step: usize, page_size: u64) -> Vec<Option<Fingerprint>> {
        self.buffer.resize(page_size as usize, 0);
        let (buffer, frames) = (&mut self.buffer, &self.frames);
        let places = self.guests.iter().flat_map(|guest| guest.addresses.iter().map(move |at| (guest, *at)));
        let places = places.skip(offset).step_by(step);
        places.map(|(guest, at)| guest.print(at, page_size, frames, buffer)).collect()
    }
}

impl Guest {
    fn print(&self, address: u64, page_size: u64, frames: &Frames, buffer: &mut [u8]) -> Option<Fingerprint> {
        let entry = present(&self.pagemap, address, page_size)?;
        self.mem.read_exact_at(buffer, address).ok()?;
        Some(Fingerprint { guest: self.pid, content: XxHash3_64::oneshot(buffer), frame: frames.of(entry) })
    }
}

impl Frames {
    /// The kind of frame of a page. When all others that shared a frame have written to it, the last page maps it alone.
    fn of(&self, entry: PageEntry) -> Frame {
        let is_merged = || word(self.flags.as_ref(), entry).is_some_and(|flags| FrameFlags(flags).is_merged());
        if entry.is_exclusive() && !is_merged() {
            return Frame::Own;
        }
        // Mappings of the zero page are not counted.
        let mappings = word(self.mappings.as_ref(), entry).filter(|mappings| *mappings > 0);
        mappings.map_or(Frame::Shared, |mappings| Frame::Merged {
            mappings: u32::try_from(mappings).unwrap_or(u32::MAX),
        })
    }
}

/// A frame's 64 bits in one of these files.
fn word(file: Option<&File>, entry: PageEntry) -> Option<u64> {
    let mut word = [0; 8];
    let frame = entry.frame();
    let is_read = frame > 0 && file?.read_exact_at(&mut word, frame.checked_mul(8)?).is_ok();
    is_read.then(|| u64::from_ne_bytes(word))
}

/// The pagemap entry of a page that is present. Reading an absent page would bring it in.
fn present(pagemap: &File, address: u64, page_size: u64) -> Option<PageEntry> {
    let mut entry = [0; 8];
    pagemap.read_exact_at(&mut entry, address / page_size * 8).ok()?;
    let entry = PageEntry::from_bytes(entry);
    // A page that KSM has merged with the zero page counts as of a file.
    (entry.is_anonymous() || entry.is_of_file()).then_some(entry)
}

/// `count` places in a process's memory, one in each of as many equal parts of it, at random within the part.
fn places(memory: &Memory, count: u64, page_size: u64, random: &RandomState) -> Vec<u64> {
    let pages: u64 = memory.stretches.iter().map(|stretch| (stretch.end - stretch.start) / page_size).sum();
    let width = pages.div_ceil(count.max(1)).max(1);
    let place = |part: u64| {
        let mut tries = (0..TRIES).map(|turn| {
            let within = random.hash_one((memory.pid, part, turn)) % width;
            nth_page(memory, part * width + within, page_size)
        });
        tries.find_map(|address| address.filter(|at| present(&memory.pagemap, *at, page_size).is_some()))
    };
    (0..count).filter_map(place).collect()
}

/// The address of a page, counted through all stretches.
fn nth_page(memory: &Memory, mut number: u64, page_size: u64) -> Option<u64> {
    for stretch in &memory.stretches {
        let pages = (stretch.end - stretch.start) / page_size;
        if number < pages {
            return Some(stretch.start + number * page_size);
        }
        number -= pages;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ksmith_core::kernel::KsmStat;
    use ksmith_core::sample::ProcessId;

    use super::*;

    /// This process, as if KSM had to do with it.
    fn sample(seconds: u64) -> Sample {
        let page_size = rustix::param::page_size() as u64;
        let mut sample = Sample { at: Duration::from_secs(seconds), page_size, ..Sample::default() };
        sample.ksm.run = Reading::Value(0);
        sample.processes.push(ksmith_core::sample::Process {
            rss_bytes: 1 << 26,
            ksm: KsmStat { mergeable: Some(true), ..KsmStat::default() },
            ..ksmith_core::sample::Process::new(
                ProcessId { pid: std::process::id(), start_ticks: 0 },
                "self".into(),
                false,
            )
        });
        sample
    }

    #[test]
    fn pages_that_are_rewritten_in_place_are_noticed_and_become_stable() {
        let mut memory = vec![1_u8; 64 << 20];
        let mut watch = LiveSampler::default();
        let mut look = |seconds| {
            let mut sample = sample(seconds);
            watch.read(&mut sample);
            sample.page_samples.get().unwrap()
        };
        let drawn = look(10);
        assert!(drawn.pages > 100, "{drawn:?}");
        let quiet = look(20);
        assert!(quiet.stable < drawn.pages / 10, "{quiet:?}");
        memory.fill(2);
        let changed = look(30);
        assert!(changed.changed > drawn.pages / 4, "{changed:?}");
        let rested = look(40);
        assert!(rested.stable > drawn.pages / 4, "{rested:?} {}", memory[0]);
    }

    #[test]
    fn an_ended_process_has_no_page_samples() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let mut sample = sample(10);
        sample.processes[0].id.pid = child.id();
        child.wait().unwrap();
        let mut watch = LiveSampler::default();
        watch.read(&mut sample);
        assert_eq!(sample.page_samples, Reading::Absent);
    }
}
