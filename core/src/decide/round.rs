//! One round of scanning: where it began, when everything has been looked at often enough, what it brought.

use std::time::Duration;

use super::{History, View};
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
    /// When ksmd was looked at last, and the ends of passes then.
    looked: (Duration, u64),
    /// The end of a pass that was seen last.
    end: End,
}

/// The end of a pass, as far as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    visited: u64,
    /// Pages that ksmd came by until then, visited or skipped.
    passed: u64,
    /// Whether ksmd still slept where it had stopped: no page of the next pass was visited yet.
    exact: bool,
}

/// Where ksmd stopped between two passes. New processes are put behind its cursor, so only from there does the next
/// pass visit them all, and old memory before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary {
    full_scans: u64,
    visited: u64,
}

impl End {
    fn of(now: &Sample, exact: bool) -> Self {
        let visited = now.ksm.pages_scanned.get().unwrap_or(0);
        Self { visited, passed: passed(now).unwrap_or(0), exact }
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

/// From deciding to stop ksmd until it is stopped.
const REACTION: Duration = Duration::from_millis(25);

/// How long before its foreseen end a pass is given its last batch.
const APPROACH: Duration = Duration::from_millis(60);

/// The counting of looks, from when memory last grew.
#[derive(Debug, Clone, Copy)]
struct Count {
    passes: u64,
    /// Whether every page is visited in each pass.
    clean: bool,
    /// Whether ksmd stood between two passes when the count began.
    aligned: bool,
    full_scans: u64,
    visited: u64,
    zero_pages: u64,
    /// Pages that ksmd knew when the count began.
    tracked: u64,
    /// Pages that a pass visits, as far as known when it began.
    pages: u64,
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
    /// Begins a round in which every page is to be visited `passes` times, if it is `clean`; else `smart_scan` skips
    /// old pages. `grown_pages` is the memory that was not there at the last one. `aligned`: ksmd stands between
    /// two passes ([`Boundary::holds`]).
    pub fn begin(passes: u64, clean: bool, aligned: bool, grown_pages: u64, now: &Sample) -> Self {
        Self {
            began: now.at,
            cpu_ns: now.ksmd_cpu_ns.get(),
            saved_bytes: saved(now),
            visited: now.ksm.pages_scanned.get().unwrap_or(0),
            count: Count::begin(passes, clean, aligned, grown_pages, now),
            moved: Moved::of(now),
            looked: (now.at, now.ksm.full_scans.get().unwrap_or(0)),
            end: End::of(now, false),
        }
    }

    /// Takes in the next sample.
    pub fn look(&mut self, now: &Sample) {
        let full_scans = now.ksm.full_scans.get().unwrap_or(0);
        let (before, ends_before) = self.looked;
        if full_scans != ends_before {
            // ksmd sleeps after the last batch of a pass as after any.
            let sleep = Duration::from_millis(now.ksm.sleep_millisecs.get().unwrap_or(0));
            let exact = now.at.saturating_sub(before).saturating_add(REACTION) < sleep;
            let mut end = End::of(now, exact);
            if self.count.aligned || ends_before > self.count.full_scans {
                // It was seen late; but a pass comes by each page once.
                end.passed = end.passed.min(self.end.passed.saturating_add(now.ksm.tracked_pages()));
            }
            self.end = end;
        }
        self.looked = (now.at, full_scans);
    }

    /// Where ksmd stands, if it stands between two passes.
    pub fn boundary(&self) -> Option<Boundary> {
        self.end.exact.then_some(Boundary { full_scans: self.looked.1, visited: self.end.visited })
    }

    /// Whether ksmd has come to memory that it had not seen when the round began, or has ended a pass. New processes
    /// are last in a pass that begins after they came.
    pub fn has_met_new(&self, now: &Sample) -> bool {
        self.ends(now) > 0 || now.ksm.tracked_pages() > self.count.tracked.saturating_add(MET)
    }

    /// Whether the pass under way is the last one.
    fn is_last_pass(&self, now: &Sample) -> bool {
        self.ends(now) + 1 >= self.ends_needed()
    }

    fn ends(&self, now: &Sample) -> u64 {
        now.ksm.full_scans.get().unwrap_or(0).saturating_sub(self.count.full_scans)
    }

    fn ends_needed(&self) -> u64 {
        self.count.passes + u64::from(!self.count.aligned)
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
    pub fn extend(&mut self, passes: u64, clean: bool, grown_pages: u64, now: &Sample) {
        self.count = Count::begin(passes, clean, false, grown_pages, now);
    }

    /// Whether everything has been looked at.
    ///
    /// ksmd may have stood in the middle of a pass when the count began, and new processes are put right behind its
    /// cursor (`__ksm_enter` in `mm/ksm.c`), so that so many ends of passes do not yet mean as many looks at every
    /// page. One more end does. Before that, as many visits as there are pages, times the passes, do too, since
    /// ksmd goes round and in a clean pass skips nothing.
    pub fn is_done(&self, now: &Sample) -> bool {
        let ends = self.ends(now);
        ends >= self.ends_needed()
            || ends == self.count.passes && self.count.clean && self.visits_left(now) == Some(0)
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
        const LATEST: Duration = Duration::from_millis(250);
        let Some(visits) = self.visits_left(view.now) else { return LATEST };
        let span = |visits: u64| {
            Duration::from_nanos((visits as f64 * view.history.ns_per_page() / share.max(0.01)) as u64)
        };
        let left = match self.left_in_pass(view.now) {
            Some(left) if self.is_last_pass(view.now) => span(left).saturating_sub(APPROACH).min(span(visits)),
            _ => span(visits),
        };
        left.clamp(SOONEST, LATEST)
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
            tracked: now.ksm.tracked_pages(),
            pages: now.ksm.tracked_pages().saturating_add(grown_pages),
        }
    }
}

/// CPU-seconds that a clean pass would cost now. Pages that are merged already are only looked at in passing.
pub fn clean_pass_seconds(sample: &Sample, history: &History) -> f64 {
    let ksm = &sample.ksm;
    let pages = ksm.pages_unshared.get().unwrap_or(0).saturating_add(ksm.pages_volatile.get().unwrap_or(0));
    pages as f64 * history.ns_per_page() / 1e9
}

fn saved(sample: &Sample) -> u64 {
    sample.ksm.saved_pages().saturating_mul(sample.page_size)
}
