//! Page samples: some hundred pages, drawn at random from all memory that KSM may merge, that are read now and then.
//!
//! A page that is rewritten in place gives no sign: there is no fault, and nothing grows. ksmd would have to visit all
//! memory to see it, which takes seconds of CPU time. Reading the sampled pages takes a millisecond or two, and
//! estimates how much memory has changed since ksmd visited it, and how much of that is stable again.
//!
//! The [`PageSampler`] decides when to read and counts. Reading memory is up to its owner.

mod lifetimes;
mod part;
mod population;
mod slots;
#[cfg(test)]
mod tests;

use std::time::Duration;

use rustc_hash::FxHashSet;

pub use self::part::SamplePart;
pub(crate) use self::population::MergeablePopulation;
use self::slots::RecurringMatches;
use crate::kernel::RunState;
use crate::sample::{PageSamples, Sample};

/// The fingerprint of a page: its content and its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFingerprint {
    /// The guest, by a number that differs for different guests.
    pub guest: u32,
    /// Equal for equal contents, different for different ones.
    pub content: u64,
    /// The frame that it lies in.
    pub frame: FrameKind,
}

/// The kind of frame that a page lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A frame of its own.
    Own,
    /// A merged frame.
    Merged {
        /// Pages that map it, this one included: 1 when all others have been written to.
        mappings: u32,
    },
    /// A frame that an unknown number of others map too, or the kernel's zero page.
    Shared,
}

impl FrameKind {
    fn is_merged(self) -> bool {
        self != Self::Own
    }
}

/// A request of a [`PageSampler`] to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageSampleRequest {
    /// Do nothing now.
    Nothing,
    /// Read all sampled pages again.
    Read,
    /// Read this part of the sampled pages.
    ReadPart(SamplePart),
    /// Draw new pages and read them.
    Draw,
}

/// One sampled page. A content is `None` where it could not be read.
#[derive(Debug, Clone, Copy, Default)]
struct SampleEntry {
    /// Content when the last complete clean pass began.
    baseline: Option<u64>,
    /// Content at the last end of a pass, or when ksmd was last started.
    boundary: Option<u64>,
    last: Option<u64>,
    /// True if it was merged at the last end of a clean pass.
    merged: bool,
    /// The guest that it belongs to.
    guest: u32,
    /// The frame that it lies in. `None` if it could not be read.
    frame: Option<FrameKind>,
    /// The most pages that were seen to share its content.
    most: u32,
    /// True if it was merged and has been written to since.
    has_left: bool,
    /// The time since which it holds its content; `None` if it held that when it was drawn.
    since: Option<Duration>,
    /// The time for which it last held a content that was worth merging; `None` if that was not seen.
    lived: Option<Duration>,
    changed: bool,
    /// True if it changed during the last pass, and was not merged at its end.
    differed: bool,
    /// Content in the middle of the pass under way, if it had changed since the boundary and was not merged.
    midway: Option<u64>,
    /// True if it changed during the last two passes, or in both halves of the last one.
    changing: bool,
    stable: bool,
    recurring: bool,
    reverted: bool,
    /// Its stable content when ksmd was started, if that was not recurring.
    unknown_at_start: Option<u64>,
    /// True if it held such a content, and has changed since.
    unknown_has_gone: bool,
    /// Its stable content when ksmd was started, if that was recurring.
    recurring_at_start: Option<u64>,
}

/// Decides when pages are read, and counts what they show.
#[derive(Debug, Clone, Default)]
pub struct PageSampler {
    entries: Vec<SampleEntry>,
    /// Contents that were merged at the end of a clean pass.
    merged: FxHashSet<u64>,
    /// Of these, contents that always find a page to merge with.
    always: FxHashSet<u64>,
    full_scans: u64,
    ran: bool,
    /// The time at which the pass under way began, or ksmd was started, and the pages that it had passed by then.
    /// `None` once the middle is read, and where the kernel does not tell.
    began: Option<(Duration, u64)>,
    /// The boundary that the next reading is for.
    at: Option<PassBoundary>,
    /// The processes when the pages were drawn.
    drawn: MergeablePopulation,
    drawn_at: Duration,
    read_at: Duration,
    interval: Duration,
    part_read_at: Duration,
    parts_read: usize,
    /// True if reading a part has called for reading all.
    has_news: bool,
    counts_now: PageSamples,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassBoundary {
    /// A pass that visited every page has ended.
    CleanEnd,
    /// Another pass has ended.
    OtherEnd,
    /// ksmd was started.
    Start,
    /// Half of a long pass is over: what changes all the time shows at its end, and not only at the end of the next.
    Middle,
}

/// The shortest and the longest time between readings while ksmd is parked: at first, and once nothing changes.
const SOONEST: Duration = Duration::from_millis(900);
const LATEST: Duration = Duration::from_secs(8);

/// Least time between readings of a part.
const PART_PAUSE: Duration = Duration::from_millis(900);

/// The least time from the beginning of a pass to the reading in its middle: guests write to many of their pages once
/// a second.
const LONG_HALF: Duration = Duration::from_secs(2);

/// The number of changed pages in a part from which all are read.
const NEWS: usize = 2;

/// The most contents that are remembered.
const REMEMBERED: usize = 8192;

/// Least time between drawings.
const DRAW_PAUSE: Duration = Duration::from_secs(1);

/// The inverse of the change in memory from which new pages are drawn.
const OUTGROWN: u64 = 8;

impl PageSampler {
    /// Declares a content that always merges, such as a page of zeros.
    pub fn add_always_merging(&mut self, content: u64) {
        self.merged.insert(content);
        self.always.insert(content);
    }

    /// Returns the next request, given the rest of this sample.
    pub fn next_request(&mut self, sample: &Sample) -> PageSampleRequest {
        let full_scans = sample.ksm.full_scans.get().unwrap_or(0);
        let runs = sample.ksm.run_state() == Some(RunState::Running);
        let has_ended = full_scans != self.full_scans;
        let starts = runs && !self.ran;
        (self.full_scans, self.ran) = (full_scans, runs);
        let is_clean = sample.ksm.smart_scan.get().unwrap_or(0) == 0;
        if has_ended || starts {
            self.began = sample.ksm.passed_pages().map(|passed| (sample.at, passed));
            self.at = Some(match () {
                () if !has_ended => PassBoundary::Start,
                () if is_clean => PassBoundary::CleanEnd,
                () => PassBoundary::OtherEnd,
            });
            self.interval = SOONEST;
        } else if runs && is_clean && self.is_middle(sample) {
            self.began = None;
            self.at = Some(PassBoundary::Middle);
            return PageSampleRequest::Read;
        }
        let is_due = !runs && sample.at.saturating_sub(self.read_at) >= self.interval.max(SOONEST);
        if self.at.is_none() && !is_due {
            let may_read_part =
                !runs && sample.at.saturating_sub(self.read_at.max(self.part_read_at)) >= PART_PAUSE;
            return if may_read_part && !self.entries.is_empty() {
                PageSampleRequest::ReadPart(SamplePart::nth(self.parts_read, self.entries.len()))
            } else {
                PageSampleRequest::Nothing
            };
        }
        let population = MergeablePopulation::from_sample(sample);
        let is_outgrown = population.ids != self.drawn.ids
            || population.bytes.abs_diff(self.drawn.bytes) > self.drawn.bytes / OUTGROWN;
        let may_draw = self.drawn_at.is_zero() || sample.at.saturating_sub(self.drawn_at) >= DRAW_PAUSE;
        if is_outgrown && may_draw && population.bytes > 0 {
            self.drawn = population;
            self.drawn_at = sample.at;
            return PageSampleRequest::Draw;
        }
        if self.entries.is_empty() { PageSampleRequest::Nothing } else { PageSampleRequest::Read }
    }

    /// Returns true if half of a long pass is over for the first time.
    fn is_middle(&self, sample: &Sample) -> bool {
        let is_half = |(at, before): (Duration, u64)| {
            let passed = sample.ksm.passed_pages().unwrap_or(0).saturating_sub(before);
            sample.at.saturating_sub(at) >= LONG_HALF && passed >= sample.ksm.tracked_pages() / 2
        };
        self.at.is_none() && !self.entries.is_empty() && self.began.is_some_and(is_half)
    }

    /// Records the fingerprints of newly drawn pages.
    pub fn record_drawn(&mut self, fingerprints: impl IntoIterator<Item = Option<PageFingerprint>>, at: Duration) {
        let entry = |fingerprint: Option<PageFingerprint>| {
            let content = fingerprint.map(|fingerprint| fingerprint.content);
            let merged = fingerprint.is_some_and(|fingerprint| fingerprint.frame.is_merged());
            let mut entry = SampleEntry {
                baseline: content,
                boundary: content,
                last: content,
                merged,
                ..SampleEntry::default()
            };
            entry.follow_frame(fingerprint);
            entry
        };
        let fingerprints: Vec<_> = fingerprints.into_iter().collect();
        if self.at == Some(PassBoundary::CleanEnd) {
            fingerprints.iter().for_each(|fingerprint| remember(&mut self.merged, *fingerprint));
        }
        self.entries = fingerprints.into_iter().map(entry).collect();
        self.finish(at);
    }

    /// Records the fingerprints of a part. Returns true if all pages are to be read: some that had not changed, or were
    /// stable, have changed, or some that were changing are stable.
    pub fn read_part(
        &mut self,
        part: SamplePart,
        fingerprints: impl IntoIterator<Item = Option<PageFingerprint>>,
        at: Duration,
    ) -> bool {
        let entries = part.select(&self.entries);
        let is_news = |(entry, fingerprint): &(&SampleEntry, Option<PageFingerprint>)| {
            let is_same = fingerprint.map(|fingerprint| fingerprint.content) == entry.last;
            if is_same { entry.changed && !entry.stable } else { !entry.changed || entry.stable }
        };
        let news = entries.zip(fingerprints).filter(is_news).count();
        (self.part_read_at, self.parts_read) = (at, self.parts_read.wrapping_add(1));
        self.has_news |= news >= NEWS;
        news >= NEWS
    }

    /// Records the fingerprints of all pages, in the order in which they were drawn.
    pub fn record_read(&mut self, fingerprints: impl IntoIterator<Item = Option<PageFingerprint>>, at: Duration) {
        if self.at == Some(PassBoundary::Middle) {
            self.at = None;
            let entries = self.entries.iter_mut().zip(fingerprints);
            return entries
                .for_each(|(entry, fingerprint)| entry.midway = change_since(entry.boundary, fingerprint));
        }
        for (entry, fingerprint) in self.entries.iter_mut().zip(fingerprints) {
            if self.at == Some(PassBoundary::CleanEnd) {
                remember(&mut self.merged, fingerprint);
            }
            let is_merged = fingerprint.is_some_and(|fingerprint| fingerprint.frame.is_merged());
            if let Some(boundary) = self.at {
                entry.follow_changes(fingerprint.filter(|_| boundary != PassBoundary::Start));
            }
            entry.follow_content(fingerprint, at);
            entry.follow_frame(fingerprint);
            let fingerprint = fingerprint.map(|fingerprint| fingerprint.content);
            match self.at {
                Some(PassBoundary::CleanEnd) => {
                    (entry.baseline, entry.boundary) = (entry.boundary, fingerprint);
                    entry.merged = is_merged;
                }
                Some(PassBoundary::OtherEnd | PassBoundary::Start) => entry.boundary = fingerprint,
                Some(PassBoundary::Middle) | None => {}
            }
            // A page that was written to is unmerged even if it holds the same again.
            let is_other =
                fingerprint != entry.boundary || entry.boundary != entry.baseline || entry.merged && !is_merged;
            entry.changed =
                fingerprint.is_some() && entry.baseline.is_some() && entry.boundary.is_some() && is_other;
            entry.stable = entry.changed && fingerprint == entry.last;
            entry.recurring = entry.stable && fingerprint.is_some_and(|content| self.merged.contains(&content));
            entry.reverted = entry.recurring && fingerprint == entry.boundary && fingerprint == entry.baseline;
            entry.last = fingerprint;
            let has_gone = |content: u64| fingerprint.is_some_and(|now| now != content);
            entry.unknown_has_gone =
                self.at.is_some() && (entry.unknown_has_gone || entry.unknown_at_start.is_some_and(has_gone));
            entry.unknown_at_start = match self.at {
                None => fingerprint.filter(|_| entry.stable && !entry.recurring && !is_merged),
                Some(_) => entry.unknown_at_start.filter(|content| fingerprint == Some(*content)),
            };
            entry.recurring_at_start = match self.at {
                None => fingerprint.filter(|_| entry.recurring && !is_merged),
                Some(_) => entry.recurring_at_start.filter(|content| fingerprint == Some(*content)),
            };
        }
        self.finish(at);
    }

    fn finish(&mut self, at: Duration) {
        self.read_at = at;
        let before = self.counts_now;
        self.counts_now = PageSamples { reads: before.reads + 1, ..self.counts(at) };
        let has_news = std::mem::take(&mut self.has_news);
        let is_boundary = self.at.take().is_some() || has_news;
        // No page has become stable since: read again later.
        self.interval = match is_boundary || self.counts_now.stable > before.stable {
            true => SOONEST,
            false => (self.interval * 3 / 2).clamp(SOONEST, LATEST),
        };
    }

    /// Returns the counts of the last reading; `None` before pages were read.
    pub fn page_samples(&self) -> Option<PageSamples> {
        (!self.entries.is_empty()).then_some(self.counts_now)
    }

    fn counts(&self, at: Duration) -> PageSamples {
        let count = |is: fn(&SampleEntry) -> bool| self.entries.iter().filter(|entry| is(entry)).count() as u32;
        let RecurringMatches { matches_merged, matches_unmerged, mutual, lifetime } = self.slots(at);
        PageSamples {
            pages: count(|entry| entry.last.is_some()),
            changed: count(|entry| entry.changed),
            changing: count(|entry| entry.changing && entry.last.is_some()),
            stable: count(|entry| entry.stable),
            recurring: count(|entry| entry.recurring),
            reverted: count(|entry| entry.reverted),
            matches_merged,
            matches_unmerged,
            mutual,
            lifetime,
            recurring_tried: count(|entry| entry.recurring_at_start.is_some()),
            recurring_merged: count(|entry| entry.recurring_at_start.is_some() && entry.is_merged()),
            unknown_tried: count(|entry| entry.unknown_at_start.is_some()),
            unknown_gone: count(|entry| entry.unknown_has_gone),
            unknown_merged: count(|entry| entry.unknown_at_start.is_some() && entry.is_merged()),
            reads: 0,
        }
    }
}

impl SampleEntry {
    /// Records at the end of a pass whether the page changes all the time. Before ksmd was started no pass was under
    /// way, and the last one may have ended hours ago: then `fingerprint` is `None`.
    fn follow_changes(&mut self, fingerprint: Option<PageFingerprint>) {
        let midway = self.midway.take();
        let differs = change_since(self.boundary, fingerprint).is_some();
        let differed = std::mem::replace(&mut self.differed, differs);
        self.changing = differs && differed || change_since(midway, fingerprint).is_some();
    }
}

/// Returns the content of an unmerged page, if that was another before.
fn change_since(before: Option<u64>, now: Option<PageFingerprint>) -> Option<u64> {
    let now = now.filter(|now| !now.frame.is_merged())?;
    before.filter(|before| *before != now.content).map(|_| now.content)
}

/// Remembers a content that is merged.
fn remember(merged: &mut FxHashSet<u64>, fingerprint: Option<PageFingerprint>) {
    if let Some(PageFingerprint { content, frame, .. }) = fingerprint
        && frame.is_merged()
        && merged.len() < REMEMBERED
    {
        merged.insert(content);
    }
}
