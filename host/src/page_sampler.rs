//! Draws and reads the page samples of the live host (see [`ksmith_core::page_sample`]).
//!
//! Pages are read through `/proc/PID/mem`, which leaves merged pages merged, and only where pagemap says that they are
//! present. Reading costs some microseconds per page. A child reads them ([`crate::reader`]): a process may hold its
//! reader up.

mod background;

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use ksmith_core::kernel::{FrameFlags, PageEntry};
use ksmith_core::page_sample::{Fingerprint, Frame, PART_STEP, PageSampler, Request};
use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessId, Sample};
use tracing::info;
use twox_hash::XxHash3_64;

pub use self::background::BackgroundSampler;
use crate::memory::frames;
use crate::memory::process::{Process, Stretch};
use crate::proc_file::Unanswered;
use crate::process::is_alive;
use crate::reader::{Patience, Reader, SUSPECTS, Want};
use crate::root::Root;

/// Pages that are sampled, over all guests.
const PAGES: u64 = 512;

/// Places tried for each page: parts of a guest's memory may not be present.
const TRIES: u64 = 4;

/// The longest wait for a page, and for all of them.
const STALL: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// The page samples of all guests.
#[derive(Debug)]
pub struct LiveSampler {
    sampler: PageSampler,
    /// The sampled pages, those of a process one after the other.
    places: Vec<Place>,
    frames: Frames,
    pages: Pages,
}

/// The place of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    id: ProcessId,
    address: u64,
}

/// Reads pages of processes in a child, since a process may hold its reader up.
#[derive(Debug)]
struct Pages {
    reader: Reader,
    page_size: u64,
}

/// The kernel's tables of frames, if they may be read.
#[derive(Debug, Default)]
struct Frames {
    /// `/proc/kpageflags`
    flags: Option<File>,
    /// `/proc/kpagecount`
    mappings: Option<File>,
}

impl Default for LiveSampler {
    fn default() -> Self {
        let page_size = rustix::param::page_size();
        let mut sampler = PageSampler::default();
        sampler.add_always_merging(XxHash3_64::oneshot(&vec![0; page_size]));
        if !frames::are_numbered() {
            info!(
                "without CAP_SYS_ADMIN the kernel hides how many pages share a frame: page samples count every shared page \
                 as one that others can merge with"
            );
        }
        let [flags, mappings] = ["/proc/kpageflags", "/proc/kpagecount"].map(|path| File::open(path).ok());
        let pages = Pages { reader: Reader::default(), page_size: page_size as u64 };
        Self { sampler, places: Vec::new(), frames: Frames { flags, mappings }, pages }
    }
}

impl LiveSampler {
    /// Reads the sampled pages if it is time to, and fills the newest counts into `sample`.
    pub fn read(&mut self, sample: &mut Sample) {
        match self.sampler.next(sample) {
            Request::Nothing => {}
            Request::Read => self.read_all(sample),
            Request::ReadPart { offset } => {
                let fingerprints = self.fingerprints(offset, PART_STEP);
                if self.sampler.read_part(offset, fingerprints, sample.at) {
                    self.read_all(sample);
                }
            }
            Request::Draw => {
                self.draw(sample);
                let fingerprints = self.fingerprints(0, 1);
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
        self.places.clear();
        for process in mergeable() {
            let count = (u128::from(PAGES) * u128::from(bytes(process))).div_ceil(u128::from(all.max(1))) as u64;
            let stretches = Process::open(process.id.pid).and_then(|process| process.stretches());
            if let Ok(stretches) = stretches {
                self.places.extend(self.pages.draw(process.id, &stretches, count.min(PAGES), &random));
            }
        }
    }

    fn read_all(&mut self, sample: &Sample) {
        let fingerprints = self.fingerprints(0, 1);
        self.sampler.read(fingerprints, sample.at);
    }

    /// The fingerprints of every `step`th page, from the `offset`th on.
    fn fingerprints(&mut self, offset: usize, step: usize) -> Vec<Option<Fingerprint>> {
        let places: Vec<Place> = self.places.iter().skip(offset).step_by(step).copied().collect();
        let entries = self.pages.entries(&places);
        let present: Vec<Place> =
            places.iter().zip(&entries).filter(|(_, entry)| entry.is_some()).map(|(place, _)| *place).collect();
        let mut contents = self.pages.contents(&present).into_iter();
        let fingerprint = |(place, entry): (&Place, Option<PageEntry>)| {
            let entry = entry?;
            let content = contents.next()??;
            Some(Fingerprint { guest: place.id.pid, content, frame: self.frames.of(entry) })
        };
        places.iter().zip(entries).map(fingerprint).collect()
    }
}

impl Pages {
    /// The pagemap entries of these pages, where they are present. Reading an absent page would bring it in. They may be of
    /// another process with the same PID, which [`contents`](Self::contents) tells.
    fn entries(&mut self, places: &[Place]) -> Vec<Option<PageEntry>> {
        let page_size = self.page_size;
        let entries = self.read(places, "pagemap", 8, |address| address / page_size * 8);
        let entry = |bytes: Option<Vec<u8>>| {
            let entry = PageEntry::from_bytes(*bytes?.first_chunk()?);
            // A page that KSM has merged with the zero page counts as of a file.
            (entry.is_anonymous() || entry.is_of_file()).then_some(entry)
        };
        entries.into_iter().map(entry).collect()
    }

    /// The hashes of the contents of these pages, of processes that are there.
    fn contents(&mut self, places: &[Place]) -> Vec<Option<u64>> {
        let page_size = self.page_size;
        let mut pages = self.read(places, "mem", page_size, |address| address);
        // What was read by PID, the entries before it too, belongs to the process only if that is still there.
        let mut last: Option<(ProcessId, bool)> = None;
        for (slot, place) in pages.iter_mut().zip(places) {
            let is_there = match last {
                Some((id, is_there)) if id == place.id => is_there,
                _ => is_alive(&Root::host(), place.id),
            };
            last = Some((place.id, is_there));
            slot.take_if(|_| !is_there);
        }
        let hash = |page: Option<Vec<u8>>| {
            page.filter(|page| page.len() as u64 == page_size).map(|page| XxHash3_64::oneshot(&page))
        };
        pages.into_iter().map(hash).collect()
    }

    fn read(
        &mut self,
        places: &[Place],
        file: &str,
        most: u64,
        offset: impl Fn(u64) -> u64,
    ) -> Vec<Option<Vec<u8>>> {
        let want = |place: &Place| Want { pid: place.id.pid, file, offset: offset(place.address), most };
        let now = Instant::now();
        let (asked, wants): (Vec<usize>, Vec<Want<'_>>) = places
            .iter()
            .enumerate()
            .filter(|(_, place)| !SUSPECTS.rests(place.id.pid, now))
            .map(|(at, place)| (at, want(place)))
            .unzip();
        let mut read = vec![None; places.len()];
        for (at, answer) in asked.into_iter().zip(self.reader.read_all(&wants, Patience::new(STALL, LONGEST))) {
            let place = places.get(at).map(|place| place.id.pid);
            match (answer, read.get_mut(at)) {
                (Some(Ok(bytes)), Some(slot)) => *slot = Some(bytes),
                (Some(Err(error)), _) if Unanswered::of(&error).is_some() => {
                    place.filter(|pid| !SUSPECTS.rests(*pid, now)).inspect(|pid| SUSPECTS.note(*pid, now));
                }
                _ => {}
            }
        }
        read
    }

    /// `count` places in a process's memory, one in each of as many equal parts of it, at random within the part.
    fn draw(&mut self, id: ProcessId, stretches: &[Stretch], count: u64, random: &RandomState) -> Vec<Place> {
        let page_size = self.page_size;
        let pages: u64 = stretches.iter().map(|stretch| (stretch.end - stretch.start) / page_size).sum();
        let width = pages.div_ceil(count.max(1)).max(1);
        let mut found: Vec<Option<Place>> = vec![None; count as usize];
        for turn in 0..TRIES {
            let open = (0..count).zip(&found).filter(|(_, found)| found.is_none());
            let tries: Vec<(usize, Place)> = open
                .filter_map(|(part, _)| {
                    let within = random.hash_one((id.pid, part, turn)) % width;
                    let address = nth_page(stretches, part * width + within, page_size)?;
                    Some((part as usize, Place { id, address }))
                })
                .collect();
            let places: Vec<Place> = tries.iter().map(|(_, place)| *place).collect();
            for ((part, place), entry) in tries.into_iter().zip(self.entries(&places)) {
                if let Some(slot) = found.get_mut(part).filter(|_| entry.is_some()) {
                    *slot = Some(place);
                }
            }
        }
        found.into_iter().flatten().collect()
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

/// The address of a page, counted through all stretches.
fn nth_page(stretches: &[Stretch], mut number: u64, page_size: u64) -> Option<u64> {
    for stretch in stretches {
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
    use ksmith_core::kernel::{KsmStat, PidStat};

    use super::*;

    /// This process, as if KSM had to do with it.
    fn sample(seconds: u64) -> Sample {
        let page_size = rustix::param::page_size() as u64;
        let stat = Root::host().text("proc/self/stat").and_then(|text| PidStat::parse(&text));
        let start_ticks = stat.value().unwrap().start_ticks;
        let mut sample = Sample { at: Duration::from_secs(seconds), page_size, ..Sample::default() };
        sample.ksm.run = Reading::Value(0);
        sample.processes.push(ksmith_core::sample::Process {
            rss_bytes: 1 << 26,
            ksm: KsmStat { mergeable: Some(true), ..KsmStat::default() },
            ..ksmith_core::sample::Process::new(
                ProcessId { pid: std::process::id(), start_ticks },
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
