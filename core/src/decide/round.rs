//! One round of scanning: where it began, when everything has been looked at often enough, what it brought.

use std::time::Duration;

use super::{History, View, duty};
use crate::kernel::Run;
use crate::sample::Sample;
use crate::units::Bytes;

/// A round of scanning in progress.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// When it began.
    pub began: Duration,
    cpu_ns: Option<u64>,
    saved_bytes: u64,
    visited: u64,
    count: Count,
    moved: Moved,
    /// What was seen of ksmd at the last look.
    looked: Looked,
    /// The first pass that `smart_scan` is off for from its beginning to its end.
    clean_from: Option<u64>,
    /// The end of a pass that was seen last.
    end: End,
    /// The one before that.
    before: End,
    /// Whether equal pages that nobody shares yet are to meet: they do only if a pass visits both.
    needs_whole_pass: bool,
    /// Whether it ends with the first pass that leaves little.
    may_be_shorter: bool,
    /// A pass after which little seems to be left.
    early: Option<u64>,
}

/// ksmd at a look.
#[derive(Debug, Clone, Copy)]
struct Looked {
    /// When it was looked at: not before the first, nor after the second.
    at: (Duration, Duration),
    full_scans: u64,
    /// Pages that it had come by since boot.
    passed: u64,
    /// How long it sleeps after each batch.
    sleep: Duration,
}

impl Looked {
    fn at(now: &Sample) -> Self {
        let (full_scans, sleep) = (now.ksm.full_scans.get(), now.ksm.sleep_millisecs.get());
        let sleep = Duration::from_millis(sleep.unwrap_or(0));
        let at = (now.at, now.at.saturating_add(now.took));
        Self { at, full_scans: full_scans.unwrap_or(0), passed: passed(now).unwrap_or(0), sleep }
    }
}

/// Which pages the passes of a round visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// What `smart_scan` does not skip.
    Smart,
    /// The same until new memory is met, and from there on all.
    CleanInTheEnd,
    /// All.
    Clean,
}

/// The end of a pass, as far as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    visited: u64,
    /// Pages that ksmd came by until then, visited or skipped.
    passed: u64,
    /// The same, but so many at least: as far as it had come at the look before.
    after: u64,
    /// Whether ksmd still slept where it had stopped: no page of the next pass was visited yet.
    exact: bool,
    /// Pages that were merged with the zero page until then.
    zero_pages: u64,
}

/// Where ksmd stopped between two passes. New processes are put behind its cursor, so only from there does the next
/// pass visit them all, and old memory before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary {
    full_scans: u64,
    visited: u64,
}

impl End {
    /// An end that is seen `now`. `before`: what ksmd had come by at the look before.
    fn of(now: &Sample, exact: bool, before: u64) -> Self {
        let visited = now.ksm.pages_scanned.get().unwrap_or(0);
        let zero_pages = now.ksm.zero_pages();
        let passed = passed(now).unwrap_or(0);
        let after = if exact { passed } else { before };
        Self { visited, passed, after, exact, zero_pages }
    }

    /// Pages that the pass which began here leaves to another when it has come by all but `left`: what it has visited for the
    /// first time and what it found changed, as guests that fill their memory change it. Both are in none of
    /// ksmd's trees, as are pages that it has merged with the zero page, until the next pass is rid of them.
    fn leaves(&self, left: u64, now: &Sample) -> u64 {
        let zero_pages = now.ksm.zero_pages().saturating_sub(self.zero_pages);
        let in_no_tree = now.ksm.pages_volatile.get().unwrap_or(u64::MAX);
        in_no_tree.saturating_sub(zero_pages).saturating_sub(left)
    }
}

/// Pages that ksmd has come by since boot. `None` before Linux 6.6.
fn passed(now: &Sample) -> Option<u64> {
    Some(now.ksm.pages_scanned.get()?.saturating_add(now.ksm.pages_skipped.get().unwrap_or(0)))
}

impl Boundary {
    /// Whether ksmd is still there.
    pub fn holds(boundary: Option<Self>, now: &Sample) -> bool {
        let full_scans = now.ksm.full_scans.get().unwrap_or(0);
        let visited = now.ksm.pages_scanned.get();
        let has_begun = full_scans > 0 || now.ksm.tracked_pages() > 0;
        !has_begun || boundary.is_some_and(|at| Some(at.visited) == visited && at.full_scans == full_scans)
    }
}

/// When ksmd last got anywhere, and where it was then.
#[derive(Debug, Clone, Copy)]
struct Moved {
    at: Duration,
    full_scans: u64,
    worked: u64,
    tracked: u64,
}

/// A ksmd that gets nowhere for so long, over its sleep, has nothing to scan.
const STALLED: Duration = Duration::from_secs(5);

/// CPU time that ksmd does not use by waking up alone: that takes it some microseconds.
const WORK_NS: u64 = 1_000_000;

/// Pages by which ksmd's knowledge must have grown for it to have come to new memory.
const MET: u64 = 64;

/// What it takes ksmd to skip an old page, in nanoseconds.
const SKIP_NS: f64 = 150.0;

/// Old pages that ksmd may skip from one look to the next, and until the setting that ends it has taken hold.
const SKIPPED_AT_ONCE: u64 = 50_000;

/// From deciding to stop ksmd until it is stopped.
const REACTION: Duration = Duration::from_millis(25);

/// How long before its foreseen end a pass is given its last batch.
const APPROACH: Duration = Duration::from_millis(60);

/// The counting of looks, from when memory last grew.
#[derive(Debug, Clone, Copy)]
struct Count {
    passes: u64,
    /// Whether at least the last pass is to visit every page.
    clean: bool,
    /// Whether ksmd stood between two passes when the count began.
    aligned: bool,
    full_scans: u64,
    visited: u64,
    zero_pages: u64,
    /// Pages of living processes that ksmd knew when the count began.
    known: u64,
    /// Pages that a pass visits, as far as known when it began.
    pages: u64,
    /// Whether it is for so much new memory that ksmd's knowledge must grow.
    expects_new: bool,
}

/// What a round brought and cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Outcome {
    /// Bytes newly saved; negative when more diverged.
    pub saved_bytes: i64,
    /// ksmd's CPU, in seconds.
    pub cpu_seconds: f64,
}

impl Outcome {
    /// Bytes newly saved per second of ksmd's CPU.
    pub fn yield_per_cpu_second(&self) -> f64 {
        self.saved_bytes as f64 / self.cpu_seconds.max(1e-6)
    }

    /// The sentence for a round in progress.
    pub fn so_far(&self) -> String {
        format!("saved {} so far in {:.2} CPU-s", Bytes::from(self.saved_bytes), self.cpu_seconds)
    }
}

impl Round {
    /// Begins a round in which every page is to be visited `passes` times, as far as `sight` says. `grown_pages` is the
    /// memory that was not there at the last one. `aligned`: ksmd stands between two passes ([`Boundary::holds`]).
    pub fn begin(passes: u64, sight: Sight, aligned: bool, grown_pages: u64, now: &Sample) -> Self {
        let looked = Looked::at(now);
        // A ksmd that stands still is not sent out before everything is set.
        let is_set = now.ksm.run_state() != Some(Run::Running) || !is_smart(now);
        let clean_from =
            (sight == Sight::Clean && is_set).then(|| looked.full_scans.saturating_add(u64::from(!aligned)));
        Self {
            began: now.at,
            cpu_ns: now.ksmd_cpu_ns.get(),
            saved_bytes: saved(now),
            visited: now.ksm.pages_scanned.get().unwrap_or(0),
            count: Count::begin(passes, sight != Sight::Smart, aligned, grown_pages, now),
            moved: Moved::of(now),
            looked,
            clean_from,
            end: End::of(now, false, looked.passed),
            before: End::of(now, false, looked.passed),
            needs_whole_pass: false,
            may_be_shorter: false,
            early: None,
        }
    }

    /// The same, in which equal pages are to meet that nobody shares yet: a pass from its middle to the middle of the
    /// next does not do.
    pub fn needing_whole_pass(self, needs_whole_pass: bool) -> Self {
        Self { needs_whole_pass, ..self }
    }

    /// Takes note that the pass under way, if it visits everything, is the last one if it leaves no more than `few` pages to
    /// another.
    ///
    /// After growth the count of passes begins anew in the middle of one, often when most of what is new has been visited.
    /// If the first whole pass from there finds nearly all in a tree, it has met all that it can.
    pub fn may_end_early(&mut self, few: u64, now: &Sample) {
        self.may_be_shorter = true;
        let pass = now.ksm.full_scans.get().unwrap_or(0);
        let first = self.count.full_scans.saturating_add(u64::from(!self.count.aligned));
        if self.early.is_some_and(|early| first <= early && early < pass) {
            // What the pass that has begun since has come by may be in a tree for that alone.
            let done = passed(now).map_or(u64::MAX, |passed| passed.saturating_sub(self.end.after));
            if self.leaves(now).saturating_add(done) <= few {
                return;
            }
        }
        let is_whole = self.clean_from.is_some_and(|clean_from| clean_from <= pass) && pass >= first;
        let may = is_whole && self.left_in_pass(now).is_some_and(|left| self.end.leaves(left, now) <= few);
        self.early = may.then_some(pass);
    }

    /// Pages that the pass which has just ended leaves to another.
    pub fn leaves(&self, now: &Sample) -> u64 {
        self.before.leaves(0, now)
    }

    /// Whether it has ended where it had begun, in the middle of a pass.
    pub fn ends_midway(&self, now: &Sample) -> bool {
        !self.is_past_last_pass(now)
    }

    /// Takes in the next sample.
    pub fn look(&mut self, now: &Sample) {
        let (before, looked) = (self.looked, Looked::at(now));
        // Nobody knows when exactly the setting took hold, and passes may be short: what counts is what was seen.
        self.clean_from = match self.clean_from {
            _ if is_smart(now) => None,
            None => Some(looked.full_scans.saturating_add(1)),
            known => known,
        };
        if looked.full_scans != before.full_scans {
            // A pass to whose beginning new memory belonged would have met it.
            if self.count.aligned && self.count.expects_new && self.ends(now) == 1 {
                self.count.aligned = self.knows_more(now);
            }
            let mut end = End::of(now, is_at_end(before, looked), before.passed);
            if self.count.aligned || before.full_scans > self.count.full_scans {
                // It was seen late; but a pass comes by each page once.
                end.passed = end.passed.min(self.end.passed.saturating_add(now.ksm.tracked_pages()));
            }
            self.before = std::mem::replace(&mut self.end, end);
        }
        self.looked = looked;
    }

    /// Where ksmd stands, if it stands between two passes.
    pub fn boundary(&self) -> Option<Boundary> {
        self.end.exact.then_some(Boundary { full_scans: self.looked.full_scans, visited: self.end.visited })
    }

    /// Whether `smart_scan` may skip old pages: in the first pass, until ksmd comes to memory that it had not seen when the
    /// round began, or may do so before it is looked at again. New processes are last in a pass that begins after they
    /// came.
    pub fn may_skip(&self, now: &Sample) -> bool {
        let comes_to_new = self.count.aligned && self.left_in_pass(now).is_none_or(|left| left < SKIPPED_AT_ONCE);
        self.ends(now) == 0 && !comes_to_new && !self.knows_more(now)
    }

    /// When to look next while it may: before ksmd can have come to where it may not.
    pub fn skipping(&self, share: f64, now: &Sample) -> Duration {
        const SOONEST: Duration = Duration::from_millis(5);
        const UNKNOWN: Duration = Duration::from_millis(20);
        const LATEST: Duration = Duration::from_millis(250);
        let Some(left) = self.left_in_pass(now).filter(|_| self.count.aligned) else { return UNKNOWN };
        let ns = left.saturating_sub(SKIPPED_AT_ONCE) as f64 * SKIP_NS / share.max(0.01);
        Duration::from_nanos(ns as u64).clamp(SOONEST, LATEST)
    }

    /// Whether `smart_scan` was still on at the last look, although the round is not to skip anything any more.
    pub fn skips(&self, now: &Sample) -> bool {
        is_smart(now) && self.began != now.at
    }

    fn knows_more(&self, now: &Sample) -> bool {
        known_of_the_living(now) > self.count.known.saturating_add(MET)
    }

    /// Whether the pass under way is the last one.
    fn is_last_pass(&self, now: &Sample) -> bool {
        self.last_pass().is_some_and(|last| now.ksm.full_scans.get().unwrap_or(0) >= last)
    }

    /// The pass with whose end everything has been looked at. `None` while no pass is known to visit every page.
    ///
    /// ksmd may have stood in the middle of a pass when the count began, and new processes are put right behind its
    /// cursor (`__ksm_enter` in `mm/ksm.c`): what is left of that pass then comes on top. To stop it where it
    /// stood would not do either. By then each page has been visited often enough, but equal pages before and behind
    /// that place never in the same pass, and those that nobody shares yet meet only there.
    fn last_pass(&self) -> Option<u64> {
        let passes = self.count.passes.saturating_sub(u64::from(self.count.aligned));
        let enough = self.count.full_scans.saturating_add(passes);
        let last = if self.count.clean { enough.max(self.clean_from?) } else { enough };
        Some(self.early.map_or(last, |early| early.min(last)))
    }

    fn ends(&self, now: &Sample) -> u64 {
        now.ksm.full_scans.get().unwrap_or(0).saturating_sub(self.count.full_scans)
    }

    /// Visits left in the last pass, where that is the one under way and it is about to end: then ksmd is to
    /// stop right there. `share` is the part of a CPU that ksmd was given.
    pub fn approach(&self, share: f64, view: &View<'_>) -> Option<u64> {
        let now = view.now;
        if !self.is_last_pass(now) || self.is_done(now) {
            return None;
        }
        let left = self.left_in_pass(now)?;
        let soon = APPROACH.as_nanos() as f64 * share;
        (left as f64 * view.history.ns_per_page() <= soon).then_some(left)
    }

    /// Notes whether ksmd got anywhere, and returns whether it has not for too long: nobody offers it memory.
    pub fn is_stalled(&mut self, now: &Sample) -> bool {
        let here = Moved::of(now);
        if (here.full_scans, here.worked, here.tracked)
            != (self.moved.full_scans, self.moved.worked, self.moved.tracked)
        {
            self.moved = here;
        }
        let sleep = Duration::from_millis(now.ksm.sleep_millisecs.get().unwrap_or(0));
        now.at.saturating_sub(self.moved.at) > STALLED.saturating_add(sleep * 2)
    }

    /// Pages that ksmd has yet to come by in the pass under way. `None` before Linux 6.6.
    fn left_in_pass(&self, now: &Sample) -> Option<u64> {
        let done = passed(now)?.saturating_sub(self.end.passed);
        Some(now.ksm.tracked_pages().saturating_sub(done))
    }

    /// Begins the counting of looks anew, as when memory grew meanwhile; cost and gain run on.
    pub fn extend(&mut self, passes: u64, sight: Sight, grown_pages: u64, now: &Sample) {
        self.count = Count::begin(passes, sight != Sight::Smart, false, grown_pages, now);
        self.early = None;
        // If `full_scans` was reset, what was known of passes is void.
        self.clean_from = self.clean_from.filter(|from| *from <= self.count.full_scans.saturating_add(1));
    }

    /// Whether everything has been looked at.
    pub fn is_done(&self, now: &Sample) -> bool {
        self.is_past_last_pass(now)
            || self.ends(now) == 1 && self.count.passes == 1 && !self.needs_whole_pass && self.has_gone_round(now)
    }

    fn is_past_last_pass(&self, now: &Sample) -> bool {
        self.last_pass().is_some_and(|last| now.ksm.full_scans.get().unwrap_or(0) > last)
    }

    /// Whether ksmd is back where it stood when the count began, having visited every page on the way.
    fn has_gone_round(&self, now: &Sample) -> bool {
        let is_clean = self.clean_from.is_some_and(|from| from <= self.count.full_scans.saturating_add(1));
        is_clean && self.visits_left(now) == Some(0)
    }

    /// Visits until every page has been visited often enough. `None` before Linux 6.6.
    fn visits_left(&self, now: &Sample) -> Option<u64> {
        let Count { passes, visited, zero_pages, pages, .. } = self.count;
        let done = now.ksm.pages_scanned.get()?.saturating_sub(visited);
        // Empty pages that went over to the kernel's zero page were visited for that, and are tracked no more.
        let zero = now.ksm.zero_pages().saturating_sub(zero_pages);
        let pages = match now.ksm.full_scans.get() {
            // In the first pass most new pages are not tracked yet.
            Some(full_scans) if full_scans == self.count.full_scans => pages,
            _ => now.ksm.tracked_pages().saturating_add(zero),
        };
        Some(passes.saturating_mul(pages).saturating_sub(done))
    }

    /// Whether `full_scans` was reset (`run` = 2 does that): the end would be far away.
    pub fn is_lost(&self, now: &Sample) -> bool {
        now.ksm.full_scans.get().unwrap_or(0) < self.count.full_scans
    }

    /// What it brought so far. Where ksmd's CPU time can't be read (in a PID namespace of our own, say) it is
    /// reckoned from the visits, or is taken for the whole time before Linux 6.6.
    pub fn outcome(&self, view: &View<'_>) -> Outcome {
        let now = view.now;
        let gained = i128::from(saved(now)) - i128::from(self.saved_bytes);
        let visits = now.ksm.pages_scanned.get().map(|visited| visited.saturating_sub(self.visited));
        let cpu = match (self.cpu_ns, now.ksmd_cpu_ns.get(), visits) {
            (Some(before), Some(cpu_ns), _) => cpu_ns.saturating_sub(before) as f64,
            (_, _, Some(visits)) => visits as f64 * view.history.ns_per_page(),
            _ => now.at.saturating_sub(self.began).as_nanos() as f64,
        };
        Outcome { saved_bytes: i64::try_from(gained).unwrap_or(i64::MAX), cpu_seconds: cpu / 1e9 }
    }

    /// When to look next: at the foreseen end, so that ksmd does not run on into another pass, but often enough to
    /// hold the CPU budget. `share` is the part of a CPU that ksmd was given.
    pub fn check_after(&self, share: f64, view: &View<'_>) -> Duration {
        const SOONEST: Duration = Duration::from_millis(20);
        let latest = duty::look_after(share);
        let Some(visits) = self.visits_left(view.now) else { return latest };
        let span = |visits: u64| {
            Duration::from_nanos((visits as f64 * view.history.ns_per_page() / share.max(0.01)) as u64)
        };
        let left = match self.left_in_pass(view.now) {
            Some(left) if self.is_last_pass(view.now) => span(left).saturating_sub(APPROACH).min(span(visits)),
            // Where the next pass ends, which may be the last, is foreseen from where this one does: that is to be seen soon.
            Some(_) if self.may_be_shorter => span(visits).min(often(view.now)),
            _ => span(visits),
        };
        left.clamp(SOONEST, latest)
    }
}

impl Moved {
    fn of(now: &Sample) -> Self {
        Self {
            at: now.at,
            full_scans: now.ksm.full_scans.get().unwrap_or(0),
            // Before Linux 6.6, which counts no visits, its CPU time stands for them.
            worked: match (now.ksm.pages_scanned.get(), now.ksmd_cpu_ns.get()) {
                (Some(visits), _) => visits,
                (None, cpu_ns) => cpu_ns.unwrap_or(0) / WORK_NS,
            },
            tracked: now.ksm.tracked_pages(),
        }
    }
}

impl Count {
    fn begin(passes: u64, clean: bool, aligned: bool, grown_pages: u64, now: &Sample) -> Self {
        Self {
            passes,
            clean,
            aligned,
            full_scans: now.ksm.full_scans.get().unwrap_or(0),
            visited: now.ksm.pages_scanned.get().unwrap_or(0),
            zero_pages: now.ksm.zero_pages(),
            known: known_of_the_living(now),
            pages: now.ksm.tracked_pages().saturating_add(grown_pages),
            expects_new: grown_pages > 2 * MET,
        }
    }
}

/// Pages of living processes that ksmd knows. Before Linux 6.1 those of processes that have ended are among them until it
/// comes by.
fn known_of_the_living(now: &Sample) -> u64 {
    let of_each = now.processes.iter().map(|process| process.ksm.rmap_items);
    let sum = of_each.sum::<Option<u64>>().filter(|_| now.hidden_processes == 0);
    sum.unwrap_or_else(|| now.ksm.tracked_pages())
}

/// As often as costs little, where looking takes as long as it took now: until an end of a pass can be seen before the last
/// batch of the next ([`APPROACH`]).
fn often(now: &Sample) -> Duration {
    const PART: u32 = 20;
    now.took.saturating_mul(PART).max(APPROACH * 3 / 4)
}

fn is_smart(now: &Sample) -> bool {
    now.ksm.smart_scan.get().unwrap_or(0) != 0
}

/// Whether ksmd, which has ended a pass between two looks, still sleeps there and has visited nothing of the next.
///
/// It sleeps after the last batch of a pass as after any. But a setting that was written meanwhile may have woken it, or
/// have come when it was in the next pass already: so the sleep has to have been as long at the look before.
fn is_at_end(before: Looked, looked: Looked) -> bool {
    let sleeps = looked.at.1.saturating_sub(before.at.0).saturating_add(REACTION) < looked.sleep;
    sleeps && looked.sleep == before.sleep
}

/// CPU-seconds that a clean pass would cost now: for each page as much as in the last clean passes. What visits cost just
/// now says little, since those to merged pages cost a twentieth of those to others, and each kind comes in long runs. Where
/// there was no such pass yet: as much as a visit costs now, for each page that is not merged.
pub fn clean_pass_seconds(sample: &Sample, history: &History) -> f64 {
    const ENOUGH: usize = 4;
    let ksm = &sample.ksm;
    let clean = history.passes().rev().filter(|pass| pass.clean).take(ENOUGH);
    let (seconds, visited) = clean.fold((0.0, 0.0), |(seconds, visited), pass| {
        (seconds + pass.ksmd_cpu.as_secs_f64(), visited + pass.visited.unwrap_or(0) as f64)
    });
    if visited > 0.0 && seconds > 0.0 {
        return ksm.tracked_pages() as f64 * seconds / visited;
    }
    let pages = ksm.pages_unshared.get().unwrap_or(0).saturating_add(ksm.pages_volatile.get().unwrap_or(0));
    pages as f64 * history.ns_per_page() / 1e9
}

fn saved(sample: &Sample) -> u64 {
    sample.ksm.saved_pages().saturating_mul(sample.page_size)
}
