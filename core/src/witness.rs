//! Witnesses: some hundred pages, drawn at random from all memory that KSM may merge, that are looked at now and then.
//!
//! A page that is rewritten in place tells nobody: there is no fault, and nothing grows. ksmd would have to visit
//! all memory to see it, which takes seconds of CPU time; a look at the witnesses takes a millisecond or two and says
//! how much memory has changed since ksmd visited it, and how much of that has come to rest again.
//!
//! The [`Ledger`] decides when to look and keeps the books. Reading memory is up to its owner.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::kernel::Run;
use crate::sample::Sample;

/// What the witnesses say, in pages. A share of them stands for the same share of all mergeable memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Witnesses {
    /// Pages that were looked at.
    pub pages: u32,
    /// Of these, pages that were written to since ksmd last set out to visit all memory.
    pub changed: u32,
    /// Of the changed, pages that held the same at the look before: they have come to rest.
    pub rested: u32,
    /// Of the rested, pages with a content that was merged before, there or elsewhere: they will merge again.
    pub familiar: u32,
    /// Of the familiar, pages that hold what they held when ksmd visited them last: one more visit merges them.
    pub returned: u32,
    /// Of the familiar, pages that find a merged one: others hold the same, or there is as much room as they have left, or
    /// they hold zeros.
    pub seated: u32,
    /// Of the other familiar, pages that may meet one of another guest. The rest have nobody to merge with as long as
    /// those who shared with them hold something else.
    pub paired: u32,
    /// Of the paired, pages that can only meet each other: of two one is left.
    pub mutual: u32,
    /// Pages that rested with a familiar content when ksmd was sent out last, and hold it still.
    pub relied: u32,
    /// Of the relied on, pages that are merged.
    pub found: u32,
    /// Pages that rested with a content of which nobody knew whether it would merge, when ksmd was sent out last, and hold
    /// it still.
    pub tried: u32,
    /// Of the tried, pages that are merged.
    pub met: u32,
    /// Looks taken so far: when this moves, there is something new.
    pub looks: u64,
}

impl Witnesses {
    /// The share of memory that has come to rest with a content that was merged before and that a revisit would save, 0
    /// to 1: of two pages that meet one is left.
    pub fn familiar_part(&self) -> f64 {
        let saved = f64::from(self.seated) + f64::from(self.paired) - f64::from(self.mutual) / 2.0;
        saved / f64::from(self.pages.max(1))
    }

    /// The share of memory that has come to rest and of which nobody knows whether a revisit would save it, 0 to 1.
    pub fn unfamiliar_part(&self) -> f64 {
        let known = self.seated.saturating_add(self.paired);
        f64::from(self.rested.saturating_sub(known)) / f64::from(self.pages.max(1))
    }
}

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
    changed: bool,
    rested: bool,
    familiar: bool,
    returned: bool,
    /// What it rested with when ksmd was sent out, if that was not familiar.
    trial: Option<u64>,
    is_met: bool,
    /// What it rested with when ksmd was sent out, if that was familiar.
    reliance: Option<u64>,
    is_found: bool,
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
            entry.is_met = entry.trial.is_some() && is_merged;
            entry.reliance = match self.at {
                None => print.filter(|_| entry.familiar && !is_merged),
                Some(_) => entry.reliance.filter(|content| print == Some(*content)),
            };
            entry.is_found = entry.reliance.is_some() && is_merged;
        }
        self.finish(at);
    }

    fn finish(&mut self, at: Duration) {
        self.looked_at = at;
        let before = self.said;
        self.said = Witnesses { looks: before.looks + 1, ..self.counts() };
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

    fn counts(&self) -> Witnesses {
        let count = |is: fn(&Entry) -> bool| self.entries.iter().filter(|entry| is(entry)).count() as u32;
        let (seated, paired, mutual) = self.seats();
        Witnesses {
            pages: count(|entry| entry.last.is_some()),
            changed: count(|entry| entry.changed),
            rested: count(|entry| entry.rested),
            familiar: count(|entry| entry.familiar),
            returned: count(|entry| entry.returned),
            seated,
            paired,
            mutual,
            relied: count(|entry| entry.reliance.is_some()),
            found: count(|entry| entry.is_found),
            tried: count(|entry| entry.trial.is_some()),
            met: count(|entry| entry.is_met),
            looks: 0,
        }
    }

    /// Of the familiar pages, those that find a merged one, those that may meet one that is not, and of these those that can
    /// only meet each other.
    ///
    /// A page that leaves those that it shared with leaves room behind, and when it comes back there is room for
    /// it; but room that nobody comes back to stays, so that only a part of it counts. If all have left, those that
    /// come back can only meet each other: the copies that one guest has of its own are too few to count on.
    fn seats(&self) -> (u32, u32, u32) {
        let is_always = |entry: &&Entry| entry.last.is_some_and(|content| self.always.contains(&content));
        let others = || self.entries.iter().filter(|entry| !is_always(entry));
        let is_merged = |entry: &&Entry| entry.frame.is_some_and(Frame::is_merged);
        let merged: FxHashSet<u64> = others().filter(is_merged).filter_map(|entry| entry.last).collect();
        let is_at_home =
            |entry: &&Entry| is_always(entry) || entry.last.is_some_and(|content| merged.contains(&content));
        let familiar = || self.entries.iter().filter(|entry| entry.familiar);
        let at_home = familiar().filter(is_at_home).count() as u32;

        let away = || familiar().filter(|entry| !is_at_home(entry));
        let all = away().count();
        let left = others().filter(|entry| entry.has_left).count().max(all).max(1);
        let room: f64 = others().map(Entry::room).sum();
        let seated = all as f64 * (room / left as f64).min(1.0);

        // By guest: who is away, and who holds alone what was merged, in all and without those who are away.
        let mut guests = FxHashMap::<u32, [f64; 3]>::default();
        let mut count = |entry: &Entry, place: usize| guests.entry(entry.guest).or_default()[place] += 1.0;
        away().for_each(|entry| count(entry, 0));
        let holds_alone = |entry: &&Entry| {
            entry.frame == Some(Frame::Own) && entry.last.is_some_and(|content| self.merged.contains(&content))
        };
        for entry in others().filter(holds_alone) {
            count(entry, 1);
            if !entry.familiar {
                count(entry, 2);
            }
        }
        let of_all = |place: usize| guests.values().map(|of| of[place]).sum::<f64>();
        let (alone, settled) = (of_all(1), of_all(2));
        let part = 1.0 - seated / all.max(1) as f64;
        let (mut paired, mut mutual) = (0.0, 0.0);
        for [away, own_alone, own_settled] in guests.values() {
            let meet = (away * part).min(alone - own_alone);
            paired += meet;
            mutual += (meet - (settled - own_settled)).max(0.0);
        }
        let [seated, paired, mutual] = [seated, paired, mutual].map(|pages| pages.round() as u32);
        (at_home.saturating_add(seated), paired, mutual)
    }
}

impl Entry {
    /// Takes in where the page lies; before what it holds is taken for what it held last.
    fn lies(&mut self, print: Option<Print>) {
        let Some(Print { guest, content, frame }) = print else {
            self.frame = None;
            return;
        };
        self.has_left = frame == Frame::Own && (self.has_left || self.frame.is_some_and(Frame::is_merged));
        let mappings = if let Frame::Merged { mappings } = frame { mappings } else { 0 };
        let before = if self.last == Some(content) { self.most } else { 0 };
        (self.guest, self.frame, self.most) = (guest, Some(frame), before.max(mappings));
    }

    /// For how many pages there is room in the frame that it lies in, seen from one of those that map it.
    fn room(&self) -> f64 {
        match self.frame {
            Some(Frame::Merged { mappings }) => {
                // A merged page that nobody shares any more has been shared.
                let most = self.most.max(2);
                f64::from(most.saturating_sub(mappings)) / f64::from(mappings.max(1))
            }
            // Nobody can say.
            Some(Frame::Shared) => f64::INFINITY,
            Some(Frame::Own) | None => 0.0,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KsmStat;
    use crate::reading::Reading;
    use crate::sample::{Process, ProcessId};

    fn sample(seconds: u64, run: u64, full_scans: u64) -> Sample {
        let mut sample = Sample { at: Duration::from_secs(seconds), page_size: 4096, ..Sample::default() };
        sample.ksm.run = Reading::Value(run);
        sample.ksm.full_scans = Reading::Value(full_scans);
        sample.ksm.smart_scan = Reading::Value(0);
        sample.processes.push(Process {
            id: ProcessId { pid: 1, start_ticks: 1 },
            name: "guest".into(),
            is_vm: true,
            rss_bytes: 1 << 30,
            cpu_ticks: 0,
            minor_faults: 0,
            ksm: KsmStat::default(),
        });
        sample
    }

    /// Contents over 100 are merged.
    fn print(content: u64) -> Option<Print> {
        lying(content, content > 100)
    }

    fn lying(content: u64, is_merged: bool) -> Option<Print> {
        Some(Print { guest: 1, content, frame: if is_merged { Frame::Shared } else { Frame::Own } })
    }

    /// One turn in which four witnesses hold this.
    fn turn(ledger: &mut Ledger, sample: &Sample, prints: [u64; 4]) -> Wish {
        let wish = ledger.wish(sample);
        match wish {
            Wish::Nothing | Wish::Glance { .. } => {}
            Wish::Look => ledger.looked(prints.map(print), sample.at),
            Wish::Draw => ledger.drawn(prints.map(print), sample.at),
        }
        wish
    }

    fn counts(ledger: &Ledger) -> (u32, u32) {
        ledger.witnesses().map(|it| (it.changed, it.rested)).unwrap()
    }

    #[test]
    fn what_changed_during_the_last_clean_pass_or_after_it_counts_and_rests_when_seen_twice() {
        let mut ledger = Ledger::default();
        assert_eq!(turn(&mut ledger, &sample(10, 1, 0), [1, 2, 3, 4]), Wish::Draw);
        assert_eq!(turn(&mut ledger, &sample(11, 1, 0), [0; 4]), Wish::Nothing, "nothing has ended");
        // The first page changed in the first pass, the second in the last: only that was perhaps not visited since.
        assert_eq!(turn(&mut ledger, &sample(12, 1, 1), [9, 2, 3, 4]), Wish::Look);
        turn(&mut ledger, &sample(14, 1, 2), [9, 8, 3, 4]);
        assert_eq!(counts(&ledger), (1, 0));
        assert_eq!(turn(&mut ledger, &sample(14, 0, 2), [0; 4]), Wish::Nothing, "too soon");
        turn(&mut ledger, &sample(16, 0, 2), [9, 8, 7, 4]);
        assert_eq!(counts(&ledger), (2, 1));
        turn(&mut ledger, &sample(22, 0, 2), [9, 8, 7, 4]);
        assert_eq!(counts(&ledger), (2, 2));
        turn(&mut ledger, &sample(30, 0, 2), [9, 8, 6, 4]);
        assert_eq!(counts(&ledger), (2, 1));
    }

    #[test]
    fn a_glance_calls_for_a_look_when_something_changes_and_when_it_comes_to_rest() {
        let mut ledger = Ledger::default();
        ledger.wish(&sample(10, 1, 0));
        ledger.drawn((0..64).map(print), Duration::from_secs(10));
        let mut seconds = 10;
        // Nothing changes, so looks are ever farther apart.
        while ledger.interval < LATEST {
            seconds += 10;
            assert_eq!(ledger.wish(&sample(seconds, 0, 0)), Wish::Look);
            ledger.looked((0..64).map(print), Duration::from_secs(seconds));
        }
        let mut glance = |ledger: &mut Ledger, changed: u64| {
            seconds += 1;
            let Wish::Glance { offset } = ledger.wish(&sample(seconds, 0, 0)) else { panic!("no glance") };
            let prints = (0..64).map(|page| print(page + changed * 100));
            let some = prints.clone().skip(offset).step_by(GLANCE_STEP);
            let is_time = ledger.glanced(offset, some, Duration::from_secs(seconds));
            if is_time {
                ledger.looked(prints, Duration::from_secs(seconds));
            }
            is_time
        };
        assert!(!glance(&mut ledger, 0) && glance(&mut ledger, 2));
        assert_eq!(counts(&ledger), (64, 0));
        assert_eq!(ledger.interval, SOONEST, "it is looked at again at once");
        ledger.interval = LATEST;
        assert!(!glance(&mut ledger, 3), "what changes all the time is no news");
        assert!(!glance(&mut ledger, 4) && glance(&mut ledger, 2));
        assert_eq!(counts(&ledger), (64, 64));
        ledger.interval = LATEST;
        assert!(!glance(&mut ledger, 2));
        assert!(glance(&mut ledger, 5), "what rested and changes again is news");
    }

    #[test]
    fn a_smart_pass_leaves_what_has_changed_as_changed() {
        let mut ledger = Ledger::default();
        turn(&mut ledger, &sample(10, 0, 0), [1, 2, 3, 4]);
        turn(&mut ledger, &sample(20, 0, 0), [5, 2, 3, 4]);
        let mut smart = sample(30, 1, 1);
        smart.ksm.smart_scan = Reading::Value(1);
        turn(&mut ledger, &smart, [5, 2, 3, 4]);
        assert_eq!(counts(&ledger), (1, 1));
        turn(&mut ledger, &sample(31, 1, 2), [5, 2, 3, 4]);
        assert_eq!(counts(&ledger), (0, 0), "a clean one has visited it");
    }

    #[test]
    fn a_content_that_was_merged_before_is_familiar_when_it_comes_back() {
        let mut ledger = Ledger::default();
        ledger.know(77);
        turn(&mut ledger, &sample(10, 1, 0), [101, 102, 3, 4]);
        turn(&mut ledger, &sample(12, 1, 1), [101, 102, 3, 4]);
        turn(&mut ledger, &sample(14, 1, 2), [101, 102, 3, 4]);
        turn(&mut ledger, &sample(20, 1, 3), [5, 6, 7, 8]);
        turn(&mut ledger, &sample(22, 1, 4), [5, 6, 7, 8]);
        for seconds in [30, 40] {
            turn(&mut ledger, &sample(seconds, 0, 4), [101, 9, 102, 77]);
        }
        let seen = ledger.witnesses().unwrap();
        assert_eq!((seen.rested, seen.familiar), (4, 3), "wherever it is now");
        assert_eq!((seen.familiar_part(), seen.unfamiliar_part(), seen.returned), (0.75, 0.25, 0));
    }

    #[test]
    fn what_is_merged_when_witnesses_are_drawn_after_a_clean_pass_is_known() {
        let mut ledger = Ledger::default();
        turn(&mut ledger, &sample(10, 1, 0), [1, 2, 3, 4]);
        // The guest has grown during the pass.
        let grown = |seconds, run| {
            let mut sample = sample(seconds, run, 1);
            sample.processes[0].rss_bytes *= 2;
            sample
        };
        assert_eq!(turn(&mut ledger, &grown(12, 1), [101, 2, 3, 4]), Wish::Draw);
        turn(&mut ledger, &grown(20, 0), [5, 101, 3, 4]);
        turn(&mut ledger, &grown(30, 0), [5, 101, 3, 4]);
        let seen = ledger.witnesses().unwrap();
        assert_eq!((seen.rested, seen.familiar), (2, 1));
    }

    #[test]
    fn a_page_that_was_written_to_and_holds_the_same_again_has_returned() {
        let mut ledger = Ledger::default();
        ledger.know(1);
        turn(&mut ledger, &sample(10, 1, 0), [101, 102, 1, 4]);
        turn(&mut ledger, &sample(12, 1, 1), [101, 102, 1, 4]);
        turn(&mut ledger, &sample(14, 1, 2), [101, 102, 1, 4]);
        assert_eq!(counts(&ledger), (0, 0));
        for at in [20, 30].map(Duration::from_secs) {
            ledger.wish(&Sample { at, ..sample(0, 0, 2) });
            let apart = lying(101, false);
            ledger.looked([apart, print(102), print(1), print(4)], at);
        }
        let seen = ledger.witnesses().unwrap();
        assert_eq!((seen.changed, seen.rested, seen.familiar, seen.returned), (1, 1, 1, 1));
    }

    /// What is expected of six pages, three of each of two guests, which shared them two by two, once they hold this.
    fn seats(frames: [(u64, Frame); 6]) -> (u32, u32, u32, u32) {
        let mut ledger = Ledger::default();
        let all = |pages: [(u64, Frame); 6]| {
            let guests = [1, 1, 1, 2, 2, 2].into_iter().zip(pages);
            guests.map(|(guest, (content, frame))| Some(Print { guest, content, frame })).collect::<Vec<_>>()
        };
        let shared = [101, 102, 103, 101, 102, 103].map(|content| (content, Frame::Merged { mappings: 2 }));
        ledger.wish(&sample(10, 1, 0));
        ledger.drawn(all(shared), Duration::from_secs(10));
        for (seconds, full_scans) in [(12, 1), (14, 2)] {
            ledger.wish(&sample(seconds, 1, full_scans));
            ledger.looked(all(shared), Duration::from_secs(seconds));
        }
        for seconds in [20, 30] {
            ledger.wish(&sample(seconds, 0, 2));
            ledger.looked(all(frames), Duration::from_secs(seconds));
        }
        ledger.witnesses().map(|it| (it.familiar, it.seated, it.paired, it.mutual)).unwrap()
    }

    #[test]
    fn pages_that_come_back_find_room_where_others_have_stayed_or_meet_each_other_or_nobody() {
        let own = |content| (content, Frame::Own);
        let lone = |content| (content, Frame::Merged { mappings: 1 });
        let both = |content| (content, Frame::Merged { mappings: 2 });
        let stayed = [own(101), own(102), own(103), lone(101), lone(102), lone(103)];
        assert_eq!(seats(stayed), (3, 3, 0, 0));
        let is_away = [own(101), own(102), own(103), own(7), own(8), own(9)];
        assert_eq!(seats(is_away), (3, 0, 0, 0), "the others hold something else");
        let are_back = [own(101), own(102), own(103), own(101), own(102), own(103)];
        assert_eq!(seats(are_back), (6, 0, 6, 6));
        let one_of_each = [own(101), own(102), both(103), lone(104), own(8), both(103)];
        assert_eq!(seats(one_of_each), (2, 1, 0, 0));
    }

    #[test]
    fn of_three_that_shared_a_page_two_show_that_one_has_left_as_far_as_they_have_been_seen_together() {
        let mut entry = Entry::default();
        let mut lies = |content, mappings| {
            entry.lies(Some(Print { guest: 1, content, frame: Frame::Merged { mappings } }));
            entry.last = Some(content);
            entry.room()
        };
        assert_eq!(lies(101, 3), 0.0);
        assert_eq!(lies(101, 2), 0.5);
        assert_eq!(lies(101, 1), 2.0);
        assert_eq!(lies(102, 2), 0.0);
        assert_eq!(lies(102, 1), 1.0);
    }

    #[test]
    fn zeros_find_room_always_and_so_does_everything_where_the_kernel_does_not_tell_how_many_share_a_page() {
        let mut ledger = Ledger::default();
        ledger.know(77);
        for (seconds, full_scans) in [(10, 0), (12, 1), (14, 2)] {
            turn(&mut ledger, &sample(seconds, 1, full_scans), [101, 102, 103, 4]);
        }
        let seen = |ledger: &mut Ledger, now: u64, prints: [Option<Print>; 4]| {
            for seconds in [now, now + 10] {
                ledger.wish(&sample(seconds, 0, 2));
                ledger.looked(prints, Duration::from_secs(seconds));
            }
            ledger.witnesses().map(|it| (it.familiar, it.seated)).unwrap()
        };
        let apart = [lying(77, false), lying(102, false), lying(3, false), lying(4, false)];
        assert_eq!(seen(&mut ledger, 20, apart), (2, 1));
        let apart = [lying(77, false), lying(102, false), lying(103, true), lying(4, false)];
        assert_eq!(seen(&mut ledger, 40, apart), (2, 2));
    }

    #[test]
    fn what_came_of_contents_that_nobody_knew_is_told() {
        let mut ledger = Ledger::default();
        for (seconds, full_scans) in [(10, 0), (12, 1), (14, 2)] {
            turn(&mut ledger, &sample(seconds, 1, full_scans), [1, 2, 3, 104]);
        }
        for seconds in [20, 30] {
            turn(&mut ledger, &sample(seconds, 0, 2), [5, 6, 7, 104]);
        }
        let look = |ledger: &mut Ledger, seconds, full_scans, is_merged: [bool; 4]| {
            ledger.wish(&sample(seconds, 1, full_scans));
            let prints = [5, 6, 8, 104].into_iter().zip(is_merged);
            let prints = prints.map(|(content, is_merged)| lying(content, is_merged));
            ledger.looked(prints, Duration::from_secs(seconds));
            ledger.witnesses().map(|it| (it.tried, it.met)).unwrap()
        };
        assert_eq!(look(&mut ledger, 31, 2, [false, false, false, true]), (2, 0), "the third has changed again");
        assert_eq!(look(&mut ledger, 32, 3, [false, false, false, true]), (2, 0));
        assert_eq!(look(&mut ledger, 33, 4, [true, false, false, true]), (2, 1));
    }

    #[test]
    fn another_population_has_other_witnesses() {
        let mut ledger = Ledger::default();
        turn(&mut ledger, &sample(10, 0, 0), [1, 2, 3, 4]);
        let mut grown = sample(20, 0, 0);
        grown.processes[0].rss_bytes = (1 << 30) + (1 << 28);
        assert_eq!(turn(&mut ledger, &grown, [1, 2, 3, 4]), Wish::Draw);
        grown.at = Duration::from_secs(30);
        assert_eq!(turn(&mut ledger, &grown, [1, 2, 3, 4]), Wish::Look);
        grown.at = Duration::from_secs(40);
        grown.processes[0].id.start_ticks = 2;
        assert_eq!(turn(&mut ledger, &grown, [1, 2, 3, 4]), Wish::Draw);
    }

    #[test]
    fn what_cannot_be_read_is_no_witness() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.witnesses(), None);
        ledger.wish(&sample(10, 0, 0));
        ledger.drawn([print(1), None, print(3)], Duration::from_secs(10));
        ledger.wish(&sample(20, 0, 0));
        ledger.looked([None, print(2), print(4)], Duration::from_secs(20));
        let seen = ledger.witnesses().unwrap();
        assert_eq!((seen.pages, seen.changed, seen.rested), (2, 1, 0));
    }
}
