//! Reading of one guest, a few pages at each step, and a second look at the sampled pages after a delay.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use ksmith_core::kernel::IneligibleReason;
use ksmith_host::memory::error::UnreadableProcess;
use ksmith_host::memory::frames::FrameTable;
use ksmith_host::memory::pace::ReadPace;
use ksmith_host::memory::pinned::PinningCheck;
use ksmith_host::memory::process::{LargestMapping, MappingDetail, OpenProcess, ProcessMemory};
use ksmith_host::memory::scan::{ScanBuffers, ScanContext, page_size};

use crate::clock::ClockTime;
use crate::contents::{FinishedSketch, SketchBuilder};
use crate::key::FleetKey;
use crate::rate::SamplingRate;
use crate::subject::SketchSubject;

/// Bytes of addresses read in one step: 1 MiB, some 0.3 ms.
const CHUNK: u64 = 1 << 20;

/// Limit of pages in one step of the second look.
const LOOKS: usize = 256;

/// The reason for leaving a guest out of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// Its memory can't be read.
    #[error(transparent)]
    Unreadable(#[from] UnreadableProcess),
    /// Its memory can be read, but KSM never merges it.
    #[error("KSM can't merge its memory: {bytes} bytes are {}", .reason.words())]
    NeverMerged {
        /// The reason.
        reason: IneligibleReason,
        /// The number of bytes to which it applies.
        bytes: u64,
    },
}

/// A guest with the opened memory of its processes.
#[derive(Debug)]
pub struct OpenedGuest {
    subject: SketchSubject,
    memories: Vec<ProcessMemory>,
}

impl OpenedGuest {
    /// Opens the memory of a guest. Skips processes that have ended, as long as one is left.
    ///
    /// # Errors
    /// None of its processes can be read: the reason of the first. Or KSM never merges the guest's memory.
    pub fn open(mut subject: SketchSubject) -> Result<Self, LeftOut> {
        let (mut memories, mut why, mut is_vm) = (Vec::new(), None, false);
        for id in &subject.processes {
            let opened = OpenProcess::open(id.pid).and_then(|process| {
                is_vm |= process.is_vm;
                if process.start_ticks != id.start_ticks {
                    return Err(UnreadableProcess::Exited);
                }
                subject.vcpus = subject.vcpus.or(process.size.vcpus);
                subject.configured_bytes = subject.configured_bytes.or(process.size.memory_bytes);
                process.memory(MappingDetail::Figures)
            });
            match opened {
                Ok(memory) => memories.push(memory),
                Err(error) => why = why.or(Some(error)),
            }
        }
        if memories.is_empty() {
            return Err(why.unwrap_or(UnreadableProcess::Exited).into());
        }
        subject.swap_bytes = Some(memories.iter().map(|memory| memory.swapped_bytes).sum());
        let opened = Self { subject, memories };
        match opened.never_merged(is_vm) {
            Some((reason, bytes)) => Err(LeftOut::NeverMerged { reason, bytes }),
            None => Ok(opened),
        }
    }

    /// Returns the reason for which KSM never merges the guest, and the bytes to which it applies.
    ///
    /// The RAM of a virtual machine is its largest mapping. If that is shared, in huge pages or locked for a device,
    /// the rest is the emulator's own memory, and a sample of it does not represent the guest. Any other guest is left
    /// out if it has no page that may be merged.
    fn never_merged(&self, is_vm: bool) -> Option<(IneligibleReason, u64)> {
        let lost = |reason| self.memories.iter().filter_map(|memory| memory.ineligible.get(&reason)).sum::<u64>();
        let of = |reason| Some((reason, lost(reason))).filter(|(_, bytes)| *bytes > 0);
        let largest =
            self.memories.iter().map(|memory| memory.largest).fold(LargestMapping::default(), LargestMapping::max);
        let ram = largest.ineligible.filter(|_| is_vm).and_then(of);
        let is_none_left = self.memories.iter().all(|memory| memory.stretches.is_empty());
        ram.or_else(|| {
            let candidates = IneligibleReason::ALL.into_iter().filter(|_| is_none_left).filter_map(of);
            candidates.max_by_key(|(_, bytes)| *bytes)
        })
    }

    /// Returns the number of pages that KSM could merge, by the kernel's count.
    pub fn pages(&self) -> u64 {
        let bytes: u64 = self.memories.iter().map(|memory| memory.anonymous_bytes).sum();
        bytes / page_size()
    }

    /// Starts the reading. `again` is the delay before the second look at each sampled page.
    pub fn begin(self, key: &FleetKey, rate: SamplingRate, again: Option<Duration>) -> GuestReading {
        let mut chunks = VecDeque::new();
        for (at, memory) in self.memories.iter().enumerate() {
            for stretch in &memory.stretches {
                let starts = (stretch.start..stretch.end).step_by(CHUNK as usize);
                chunks.extend(starts.map(|start| (at, start..(start + CHUNK).min(stretch.end))));
            }
        }
        let mut sketch = SketchBuilder::new(rate);
        sketch.count_heavy(self.pages());
        if again.is_some() {
            sketch.look_twice();
        }
        GuestReading {
            subject: self.subject,
            has_exited: vec![false; self.memories.len()],
            memories: self.memories,
            chunks,
            places: VecDeque::new(),
            again,
            sketch,
            context: ScanContext {
                salt: key.salt(),
                pace: ReadPace::new(None),
                frames: FrameTable::open(),
                quiet: PinningCheck::new(),
                page_size: page_size(),
            },
            times: None,
        }
    }
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadingStep {
    /// The step read pages, or found none at these addresses.
    Read,
    /// There is no work until this time.
    Wait(Duration),
    /// The reading is complete.
    Done,
    /// The guest has ended.
    Gone,
}

/// A page that is due for a second look.
#[derive(Debug, Clone, Copy)]
struct PendingLook {
    due: Duration,
    memory: u32,
    address: u64,
    fingerprint: u64,
}

/// A reading in progress.
#[derive(Debug)]
pub struct GuestReading {
    subject: SketchSubject,
    memories: Vec<ProcessMemory>,
    has_exited: Vec<bool>,
    chunks: VecDeque<(usize, Range<u64>)>,
    places: VecDeque<PendingLook>,
    again: Option<Duration>,
    sketch: SketchBuilder,
    context: ScanContext,
    /// The times of the first and the last step, in milliseconds since 1970.
    times: Option<(i64, i64)>,
}

/// The buffers of a reading thread.
#[derive(Debug, Default)]
pub struct ReadingBuffers {
    first: ScanBuffers,
    again: ScanBuffers,
}

impl ReadingBuffers {
    /// Creates the buffers for one thread.
    pub fn new() -> Self {
        let mut buffers = Self::default();
        buffers.again.look_again();
        buffers
    }
}

impl GuestReading {
    /// Performs one step of the remaining work.
    pub fn step(&mut self, buffers: &mut ReadingBuffers, now: ClockTime) -> ReadingStep {
        if self.places.front().is_some_and(|place| place.due <= now.at) {
            return self.look_again(buffers, now);
        }
        let Some((at, addresses)) = self.chunks.pop_front() else {
            self.sketch.close();
            return self.places.front().map_or(ReadingStep::Done, |place| ReadingStep::Wait(place.due));
        };
        let (Some(memory), Some(has_exited)) = (self.memories.get(at), self.has_exited.get_mut(at)) else {
            return ReadingStep::Read;
        };
        if *has_exited {
            return ReadingStep::Read;
        }
        let (sketch, places, again) = (&mut self.sketch, &mut self.places, self.again);
        let scanned = buffers.first.scan(&self.context, memory, addresses, |address, fingerprint| {
            if let (true, Some(again)) = (sketch.add(fingerprint), again) {
                places.push_back(PendingLook { due: now.at + again, memory: at as u32, address, fingerprint });
            }
        });
        if scanned.is_err() {
            *has_exited = true;
            if self.has_exited.iter().all(|exited| *exited) {
                return ReadingStep::Gone;
            }
        }
        let first = self.times.map_or(now.day_clock, |(first, _)| first);
        self.times = Some((first, now.day_clock));
        ReadingStep::Read
    }

    fn look_again(&mut self, buffers: &mut ReadingBuffers, now: ClockTime) -> ReadingStep {
        for _ in 0..LOOKS {
            let Some(place) = self.places.front().copied().filter(|place| place.due <= now.at) else { break };
            self.places.pop_front();
            // A lower rate may have dropped it meanwhile.
            if !self.sketch.holds(place.fingerprint) {
                continue;
            }
            let memory = self.memories.get(place.memory as usize);
            let look = memory.map(|memory| buffers.again.read_page(&self.context, memory, place.address));
            let content = match look {
                Some(Ok((content, _))) => content,
                _ => None,
            };
            self.sketch.look_again(place.fingerprint, content);
        }
        ReadingStep::Read
    }

    /// Returns true if all pages were read once, and only second looks remain.
    pub fn is_read(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Completes the reading.
    pub fn finish(mut self, now: ClockTime) -> FinishedReading {
        let merged: u64 = self.memories.iter().map(|memory| memory.ksm.zero_pages.unwrap_or(0)).sum();
        self.sketch.add_merged_zero_pages(merged);
        let (first_ms, last_ms) = self.times.unwrap_or((now.day_clock, now.day_clock));
        FinishedReading { subject: self.subject, sketch: self.sketch.finish(), first_ms, last_ms }
    }

    /// Returns the guest.
    pub fn subject(&self) -> &SketchSubject {
        &self.subject
    }

    /// Drops contents that a lower rate does not keep.
    pub fn lower(&mut self, rate: SamplingRate) {
        self.sketch.lower(rate);
    }
}

/// A completed reading of a guest.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedReading {
    /// The guest.
    pub subject: SketchSubject,
    /// The sketch of its contents.
    pub sketch: FinishedSketch,
    /// Time of the first step, in milliseconds since 1970.
    pub first_ms: i64,
    /// Time of the last step, in milliseconds since 1970.
    pub last_ms: i64,
}
