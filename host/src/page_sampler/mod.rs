//! Draws and reads the page samples of the live host (see [`ksmith_core::page_sample`]).
//!
//! Pages are read through `/proc/PID/mem`, which leaves merged pages merged, and only where pagemap says that they are
//! present. A read costs some microseconds per page. A child reads them ([`crate::reader`]): a process may block its
//! reader.

mod background;
mod sampled_pages;

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use ksmith_core::kernel::{FrameFlags, PageEntry};
use ksmith_core::page_sample::{FrameKind, PageFingerprint, PageSampleRequest, PageSampler};
use ksmith_core::reading::Reading;
use ksmith_core::sample::{PageSamples, ProcessId, Sample};
use tracing::info;
use twox_hash::XxHash3_64;

pub use self::background::BackgroundSampler;
pub(crate) use self::sampled_pages::{SampledAddress, SampledPageReader, nth_page};
use crate::memory::frames;
use crate::reader::{SampledPage, SilentAccounts};

/// Sampled pages of all guests together.
const PAGES: u64 = 512;

/// The page samples of all guests.
#[derive(Debug)]
pub struct LiveSampler {
    sampler: PageSampler,
    /// Locations of the sampled pages, grouped by process.
    places: Vec<SampledAddress>,
    frames: FrameTables,
    pages: SampledPageReader,
}

/// The kernel's tables of frames, if readable.
#[derive(Debug, Default)]
pub(crate) struct FrameTables {
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
        Self { sampler, places: Vec::new(), frames: FrameTables::open(), pages: SampledPageReader::default() }
    }
}

impl LiveSampler {
    /// Reads the sampled pages if they are due, and fills the newest counts into `sample`.
    pub fn read(&mut self, sample: &mut Sample) {
        let request = self.next(sample);
        self.carry_out(request, sample);
        sample.page_samples = self.counts();
    }

    /// Returns the request that is due at this sample.
    fn next(&mut self, sample: &Sample) -> PageSampleRequest {
        self.sampler.next_request(sample)
    }

    fn counts(&self) -> Reading<PageSamples> {
        self.sampler.page_samples().map_or(Reading::Absent, Reading::Value)
    }

    fn carry_out(&mut self, request: PageSampleRequest, sample: &Sample) {
        let mut shares = SampledPageReader::begin_shares();
        match request {
            PageSampleRequest::Nothing => {}
            PageSampleRequest::Read => self.read_all(sample, &mut shares),
            PageSampleRequest::ReadPart(part) => {
                let places = part.select(&self.places).copied().collect();
                let fingerprints = self.fingerprints(sample, places, &mut shares);
                if self.sampler.read_part(part, fingerprints, sample.at) {
                    self.read_all(sample, &mut shares);
                }
            }
            PageSampleRequest::Draw => {
                let fingerprints = self.draw(sample, &mut shares);
                self.sampler.record_drawn(fingerprints, sample.at);
            }
        }
    }

    /// Draws pages from each process in proportion to its memory, and returns their fingerprints. Processes with
    /// unreadable memory are left out.
    fn draw(&mut self, sample: &Sample, shares: &mut SilentAccounts) -> Vec<Option<PageFingerprint>> {
        let mergeable = || sample.processes.iter().filter(|process| process.may_merge());
        let bytes = |process: &ksmith_core::sample::ProcessSample| {
            process.known_rss_bytes().saturating_add(process.zero_pages().saturating_mul(sample.page_size))
        };
        let all: u64 = mergeable().map(bytes).sum();
        let wanted = mergeable().map(|process| {
            let pages = (u128::from(PAGES) * u128::from(bytes(process))).div_ceil(u128::from(all.max(1))) as u64;
            (process.id, pages.min(PAGES))
        });
        let drawn = self.pages.draw(wanted, sample.page_size, shares);
        self.places = drawn.iter().map(|(place, _)| *place).collect();
        drawn.into_iter().map(|(place, page)| Some(self.frames.fingerprint(place, page))).collect()
    }

    fn read_all(&mut self, sample: &Sample, shares: &mut SilentAccounts) {
        let fingerprints = self.fingerprints(sample, self.places.clone(), shares);
        self.sampler.record_read(fingerprints, sample.at);
    }

    /// Reads the fingerprints of these pages. A process that is not in the sample is skipped: its PID may have been
    /// reused.
    fn fingerprints(
        &mut self,
        sample: &Sample,
        places: Vec<SampledAddress>,
        shares: &mut SilentAccounts,
    ) -> Vec<Option<PageFingerprint>> {
        let there: HashSet<ProcessId> = sample.processes.iter().map(|process| process.id).collect();
        let places: Vec<Option<SampledAddress>> =
            places.into_iter().map(|place| Some(place).filter(|place| there.contains(&place.id))).collect();
        let pages = self.pages.read(&places, shares);
        let fingerprint = |(place, page): (Option<SampledAddress>, Option<SampledPage>)| {
            Some(self.frames.fingerprint(place?, page?))
        };
        places.into_iter().zip(pages).map(fingerprint).collect()
    }
}

impl FrameTables {
    /// Opens the tables that are readable.
    pub fn open() -> Self {
        let [flags, mappings] = ["/proc/kpageflags", "/proc/kpagecount"].map(|path| File::open(path).ok());
        Self { flags, mappings }
    }

    /// Returns true if the flags of frames can be read.
    pub fn show_flags(&self) -> bool {
        self.flags.is_some() && frames::are_numbered()
    }

    /// Returns the flags of a page's frame; none where they can't be read.
    pub fn flags(&self, entry: PageEntry) -> FrameFlags {
        word(self.flags.as_ref(), entry).map_or(FrameFlags::default(), FrameFlags)
    }

    fn fingerprint(&self, place: SampledAddress, page: SampledPage) -> PageFingerprint {
        PageFingerprint { guest: place.id.pid, content: page.content, frame: self.classify_frame(page.entry) }
    }

    /// Classifies the frame of a page. When all others that shared a frame have written to it, the last page maps it
    /// alone.
    pub fn classify_frame(&self, entry: PageEntry) -> FrameKind {
        let is_merged = || word(self.flags.as_ref(), entry).is_some_and(|flags| FrameFlags(flags).is_merged());
        if entry.is_exclusive() && !is_merged() {
            return FrameKind::Own;
        }
        // Mappings of the zero page are not counted.
        let mappings = word(self.mappings.as_ref(), entry).filter(|mappings| *mappings > 0);
        mappings.map_or(FrameKind::Shared, |mappings| FrameKind::Merged {
            mappings: u32::try_from(mappings).unwrap_or(u32::MAX),
        })
    }
}

/// Reads the 64 bits of a frame in one of these files.
fn word(file: Option<&File>, entry: PageEntry) -> Option<u64> {
    let mut word = [0; 8];
    let frame = entry.frame();
    let is_read = frame > 0 && file?.read_exact_at(&mut word, frame.checked_mul(8)?).is_ok();
    is_read.then(|| u64::from_ne_bytes(word))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ksmith_core::kernel::{KsmStat, PidStat};

    use super::*;
    use crate::root::Root;

    /// Returns a sample with this process, as if KSM scanned it.
    fn sample(seconds: u64) -> Sample {
        let page_size = rustix::param::page_size() as u64;
        let stat = Root::host().text("proc/self/stat").and_then(|text| PidStat::parse(&text));
        let start_ticks = stat.value().unwrap().start_ticks;
        let mut sample = Sample { at: Duration::from_secs(seconds), page_size, ..Sample::default() };
        sample.ksm.run = Reading::Value(0);
        sample.processes.push(ksmith_core::sample::ProcessSample {
            rss_bytes: Some(1 << 26),
            ksm: KsmStat { mergeable: Some(true), ..KsmStat::default() },
            ..ksmith_core::sample::ProcessSample::new(
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
