//! Witnesses: some hundred pages, drawn at random from all memory that KSM may merge, that are looked at now and then.
//!
//! A page that is rewritten in place tells nobody: there is no fault, and nothing grows. ksmd would have to visit
//! all memory to see it, which takes seconds of CPU time; a look at the witnesses takes a millisecond or two and says
//! how much memory has changed since ksmd visited it, and how much of that has come to rest again.
//!
//! The [`Ledger`] decides when to look and keeps the books. Reading memory is up to its owner.

mod ages;
mod said;
mod seats;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use ages::LASTING;
pub use said::Witnesses;

use rustc_hash::FxHashSet;

use self::seats::Seats;
use crate::kernel::Run;
use crate::sample::Sample;

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Print {
    /// Whose page it is: different for different guests.
    pub guest: u32,
    /// Equal for equal contents, different for different ones.
    pub content: u64,
    /// Where it lies.
    pub frame: Frame,
}

/// The memory that a page lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// Its own.
    Own,
    /// A merged one, which so many pages map: 1 when all others that shared it have been written to.
    Merged {
        /// Pages that map it, this one included.
        mappings: u32,
    },
    /// One that others map too, nobody can say how many; or the kernel's page of zeros.
    Shared,
}

impl Frame {
    fn is_merged(self) -> bool {
        self != Self::Own
    }
}

/// What the owner of a [`Ledger`] is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    Nothing,
    /// Look at the same witnesses again.
    Look,
    /// Look at every so many of them, from the `offset`th on.
    Glance {
        /// The first one.
        offset: usize,
    },
    /// Draw new witnesses and look at them.
    Draw,
}

/// What one witness held, as fingerprints. `None` where it could not be read.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// When the last complete clean pass began.
    baseline: Option<u64>,
    /// At the last end of a pass, or when ksmd was last sent out.
    boundary: Option<u64>,
    last: Option<u64>,
    /// Whether it was merged at the last end of a clean pass.
    merged: bool,
    /// Whose it is.
    guest: u32,
    /// Where it lies. `None` if it could not be read.
    frame: Option<Frame>,
    /// The most pages that were seen to share what it holds.
    most: u32,
    /// Whether it was merged and has been written to since.
    has_left: bool,
    /// Since when it holds what it holds. `None` if it held that when it was drawn.
    since: Option<Duration>,
    /// How long it held what was worth merging, the last time. `None` if nobody saw that.
    lived: Option<Duration>,
    changed: bool,
    rested: bool,
    familiar: bool,
    returned: bool,
    /// What it rested with when ksmd was sent out, if that was not familiar.
    trial: Option<u64>,
    /// What it rested with when ksmd was sent out, if that was familiar.
    reliance: Option<u64>,
}

/// When to look, and what was seen.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    entries: Vec<Entry>,
    /// Contents that were merged at the end of a clean pass.
    merged: FxHashSet<u64>,
    /// Of these, contents that never lack a page to merge with.
    always: FxHashSet<u64>,
    full_scans: u64,
    ran: bool,
    /// What was wished for is for the end of a clean pass, or for any other boundary.
    at: Option<Boundary>,
    /// Who was there when the witnesses were drawn, and how much memory they had.
    drawn: Population,
    drawn_at: Duration,
    looked_at: Duration,
    interval: Duration,
    glanced_at: Duration,
    glances: usize,
    /// Whether the look that is due was called for by a glance.
    has_news: bool,
    said: Witnesses,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Boundary {
    /// A pass that visited every page has ended.
    CleanEnd,
    /// Another pass has ended, or ksmd was sent out.
    Other,
}

/// Who has mergeable memory, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Population {
    /// Sum over the processes' ids: differs when one comes or goes.
    ids: u64,
    bytes: u64,
}

/// Time between looks while ksmd is parked: so long at first, and so long when nothing changes any more.
const SOONEST: Duration = Duration::from_millis(900);
const LATEST: Duration = Duration::from_secs(8);

/// Time between glances: the policy sets how often there is a sample.
const GLANCE: Duration = Duration::from_millis(900);

/// A glance is at one witness of so many.
pub const GLANCE_STEP: usize = 8;

/// News of so many of them is worth a look at all.
const NEWS: usize = 2;

/// Contents that are remembered, at most.
const REMEMBERED: usize = 8192;

/// New witnesses are not drawn more often than this.
const DRAW_PAUSE: Duration = Duration::from_secs(1);

/// Witnesses stand for the memory as long as it differs by less than one part in so many.
const OUTGROWN: u64 = 8;

impl Ledger {
    /// Takes a content for one that will merge, as a page of zeros is.
    pub fn know(&mut self, content: u64) {
        self.merged.insert(content);
        self.always.insert(content);
    }

    /// What to do, given what else was seen in this sample.
    pub fn wish(&mut self, sample: &Sample) -> Wish {
        let full_scans = sample.ksm.full_scans.get().unwrap_or(0);
        let runs = sample.ksm.run_state() == Some(Run::Running);
        let has_ended = full_scans != self.full_scans;
        let sets_out = runs && !self.ran;
        (self.full_scans, self.ran) = (full_scans, runs);
        if has_ended || sets_out {
            let is_clean = sample.ksm.smart_scan.get().unwrap_or(0) == 0;
            self.at = Some(if has_ended && is_clean { Boundary::CleanEnd } else { Boundary::Other });
            self.interval = SOONEST;
        }
        let is_due = !runs && sample.at.saturating_sub(self.looked_at) >= self.interval.max(SOONEST);
        if self.at.is_none() && !is_due {
            let may_glance = !runs && sample.at.saturating_sub(self.looked_at.max(self.glanced_at)) >= GLANCE;
            let offset = self.glances % GLANCE_STEP;
            return if may_glance && !self.entries.is_empty() { Wish::Glance { offset } } else { Wish::Nothing };
        }
        let population = Population::of(sample);
        let is_outgrown = population.ids != self.drawn.ids
            || population.bytes.abs_diff(self.drawn.bytes) > self.drawn.bytes / OUTGROWN;
        let may_draw = self.drawn_at.is_zero() || sample.at.saturating_sub(self.drawn_at) >= DRAW_PAUSE;
        if is_outgrown && may_draw && population.bytes > 0 {
            self.drawn = population;
            self.drawn_at = sample.at;
            return Wish::Draw;
        }
        if self.entries.is_empty() { Wish::Nothing } else { Wish::Look }
    }

    /// Takes in what newly drawn witnesses hold.
    pub fn drawn(&mut self, prints: impl IntoIterator<Item = Option<Print>>, at: Duration) {
        let entry = |print: Option<Print>| {
            let content = print.map(|print| print.content);
            let merged = print.is_some_and(|print| print.frame.is_merged());
            let mut entry =
                Entry { baseline: content, boundary: content, last: content, merged, ..Entry::default() };
            entry.lies(print);
            entry
        };
        let prints: Vec<_> = prints.into_iter().collect();
        if self.at == Some(Boundary::CleanEnd) {
            prints.iter().for_each(|print| remember(&mut self.merged, *print));
        }
        self.entries = prints.into_iter().map(entry).collect();
        self.finish(at);
    }

    /// Takes in what every so many witnesses hold now, from the `offset`th on. Returns whether it is time to look at all of
    /// them: some that had not changed, or rested, have changed, or some that were changing have come to rest.
    pub fn glanced(
        &mut self,
        offset: usize,
        prints: impl IntoIterator<Item = Option<Print>>,
        at: Duration,
    ) -> bool {
        let entries = self.entries.iter().skip(offset).step_by(GLANCE_STEP);
        let is_news = |(entry, print): &(&Entry, Option<Print>)| {
            let is_same = print.map(|print| print.content) == entry.last;
            if is_same { entry.changed && !entry.rested } else { !entry.changed || entry.rested }
        };
        let news = entries.zip(prints).filter(is_news).count();
        (self.glanced_at, self.glances) = (at, self.glances.wrapping_add(1));
        self.has_news |= news >= NEWS;
        news >= NEWS
    }

    /// Takes in what the witnesses hold now, in the order in which they were drawn.
    pub fn looked(&mut self, prints: impl IntoIterator<Item = Option<Print>>, at: Duration) {
        for (entry, print) in self.entries.iter_mut().zip(prints) {
            if self.at == Some(Boundary::CleanEnd) {
                remember(&mut self.merged, print);
            }
            let is_merged = print.is_some_and(|print| print.frame.is_merged());
            entry.ages(print, at);
            entry.lies(print);
            let print = print.map(|print| print.content);
            match self.at {
                Some(Boundary::CleanEnd) => {
                    (entry.baseline, entry.boundary) = (entry.boundary, print);
                    entry.merged = is_merged;
                }
                Some(Boundary::Other) => entry.boundary = print,
                None => {}
            }
            // Written to, it is apart even if it holds again what it held.
            let is_other =
                print != entry.boundary || entry.boundary != entry.baseline || entry.merged && !is_merged;
            entry.changed = print.is_some() && entry.baseline.is_some() && entry.boundary.is_some() && is_other;
            entry.rested = entry.changed && print == entry.last;
            entry.familiar = entry.rested && print.is_some_and(|content| self.merged.contains(&content));
            entry.returned = entry.familiar && print == entry.boundary && print == entry.baseline;
            entry.last = print;
            entry.trial = match self.at {
                None => print.filter(|_| entry.rested && !entry.familiar && !is_merged),
                Some(_) => entry.trial.filter(|content| print == Some(*content)),
            };
            entry.reliance = match self.at {
                None => print.filter(|_| entry.familiar && !is_merged),
                Some(_) => entry.reliance.filter(|content| print == Some(*content)),
            };
        }
        self.finish(at);
    }

    fn finish(&mut self, at: Duration) {
        self.looked_at = at;
        let before = self.said;
        self.said = Witnesses { looks: before.looks + 1, ..self.counts(at) };
        let has_news = std::mem::take(&mut self.has_news);
        let is_boundary = self.at.take().is_some() || has_news;
        // Nothing has come to rest since: look again later.
        self.interval = match is_boundary || self.said.rested > before.rested {
            true => SOONEST,
            false => (self.interval * 3 / 2).clamp(SOONEST, LATEST),
        };
    }

    /// What the witnesses say. `None` before they were looked at.
    pub fn witnesses(&self) -> Option<Witnesses> {
        (!self.entries.is_empty()).then_some(self.said)
    }

    fn counts(&self, at: Duration) -> Witnesses {
        let count = |is: fn(&Entry) -> bool| self.entries.iter().filter(|entry| is(entry)).count() as u32;
        let Seats { seated, paired, mutual, lasts } = self.seats(at);
        Witnesses {
            pages: count(|entry| entry.last.is_some()),
            changed: count(|entry| entry.changed),
            rested: count(|entry| entry.rested),
            familiar: count(|entry| entry.familiar),
            returned: count(|entry| entry.returned),
            seated,
            paired,
            mutual,
            lasts,
            relied: count(|entry| entry.reliance.is_some()),
            found: count(|entry| entry.reliance.is_some() && entry.is_merged()),
            tried: count(|entry| entry.trial.is_some()),
            met: count(|entry| entry.trial.is_some() && entry.is_merged()),
            looks: 0,
        }
    }
}

/// Takes in a content that is merged.
fn remember(merged: &mut FxHashSet<u64>, print: Option<Print>) {
    if let Some(Print { content, frame, .. }) = print
        && frame.is_merged()
        && merged.len() < REMEMBERED
    {
        merged.insert(content);
    }
}

impl Population {
    fn of(sample: &Sample) -> Self {
        let processes = sample.processes.iter().filter(|process| process.may_merge());
        processes.fold(Self::default(), |sum, process| Self {
            ids: sum.ids.wrapping_add(u64::from(process.id.pid) << 32 ^ process.id.start_ticks),
            // KSM's zero pages are nobody's resident memory, but the guest's all the same.
            bytes: sum
                .bytes
                .saturating_add(process.rss_bytes)
                .saturating_add(process.zero_pages().saturating_mul(sample.page_size)),
        })
    }
}
