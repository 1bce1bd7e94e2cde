//! A scan in progress: it ends when every page has been visited often enough, and reports its outcome.

use std::time::Duration;

use super::count::{KsmdProgress, PassCount};
use super::marginal::MarginalYield;
use super::pass_end::{KsmdGlimpse, PassEnd, ScanBoundary};
use super::{KsmdState, ScanCoverage, ScanJob, ScanOutcome, ScanReport, ScanStatus, duty};
use crate::sample::BoundaryPause;

/// The cost of skipping an old page, in nanoseconds.
const SKIP_NS: f64 = 150.0;

/// Upper bound on old pages skipped per sample interval plus write latency.
const SKIPPED_AT_ONCE: u64 = 50_000;

/// The shortest interval between two looks, but for [`ScanProgress::skipping`].
pub(super) const CLOSE: Duration = Duration::from_millis(20);

/// The time before its expected end at which a pass is given its last batch.
const APPROACH: Duration = Duration::from_millis(60);

/// The least merged part that is told from none.
const LEAST_PART: f64 = 1e-3;

/// A scan that a [`super::KsmScanner`] has started.
#[derive(Debug, Clone, Copy)]
pub struct ScanProgress {
    pub(super) job: ScanJob,
    began: Duration,
    cpu_ns: Option<u64>,
    /// Bytes saved when it began, freed zeros included.
    saved_bytes: u64,
    visited: u64,
    splits: u64,
    count: PassCount,
    moved: KsmdProgress,
    seen: KsmdGlimpse,
    /// The first pass for which `smart_scan` is off from beginning to end.
    clean_from: Option<u64>,
    /// The last end of a pass, and the one before.
    end: PassEnd,
    before: PassEnd,
    /// True if the scan may end with the first pass that leaves little.
    may_be_shorter: bool,
    /// A pass after which little seems to be left.
    early: Option<u64>,
    marginal: MarginalYield,
    /// The end of a pass at which ksmd was to rest, by the last sample's decision.
    asked: Option<u64>,
    /// True if ksmd has come to that end, and the thread that wakes it has yet to see it there.
    awaits_rest: bool,
}

impl ScanProgress {
    /// Starts a scan. `is_aligned`: ksmd stands between two passes.
    pub(super) fn begin(job: ScanJob, is_aligned: bool, now: &KsmdState) -> Self {
        let seen = KsmdGlimpse::from_ksmd(now);
        // ksmd is not started before everything is set.
        let is_set = !now.runs || !now.is_smart;
        let is_clean = job.coverage == ScanCoverage::All && is_set;
        let end = PassEnd::from_ksmd(now, false, seen.passed);
        let scan = Self {
            job,
            began: now.at,
            cpu_ns: now.cpu_ns,
            saved_bytes: now.saved_bytes.saturating_add(now.freed_bytes),
            visited: now.visited.unwrap_or(0),
            splits: now.splits,
            count: PassCount::begin(is_aligned, job.new_pages, now),
            moved: KsmdProgress::from_ksmd(now),
            seen,
            clean_from: is_clean.then(|| seen.full_scans.saturating_add(u64::from(!is_aligned))),
            end,
            before: end,
            may_be_shorter: false,
            early: None,
            marginal: MarginalYield::begin(now.saved_bytes),
            asked: None,
            awaits_rest: false,
        };
        Self { asked: scan.rest_after(now), ..scan }
    }

    /// The job that is carried out.
    pub fn job(&self) -> &ScanJob {
        &self.job
    }

    /// Replaces the job and begins the counting of passes anew, as when memory has grown. Outcome and cost go on.
    pub fn extend(&mut self, job: ScanJob, now: &KsmdState) {
        self.job = job;
        self.count = PassCount::begin(false, job.new_pages, now);
        self.early = None;
        // If `full_scans` was reset, what was known of passes is void.
        self.clean_from = self.clean_from.filter(|from| *from <= self.count.full_scans.saturating_add(1));
    }

    /// Returns true if all passes for memory that is new by now are still ahead. Either ksmd is in the rest of a pass
    /// that had begun before. Or it is in the first and has not reached the processes that were new when that began,
    /// which are last in it. `is_of_last`: only these have grown.
    pub fn has_all_ahead(&self, is_of_last: bool, now: &KsmdState) -> bool {
        let is_unreached = || is_of_last && !self.count.has_reached_new(now);
        self.count.ends(now) == 0 && (!self.count.is_aligned || is_unreached())
    }

    /// Records that the passes are also for so many pages more, which are ahead of ksmd. `is_of_new_guests`: as in
    /// [`ScanJob`].
    pub fn expect(&mut self, new_pages: u64, is_of_new_guests: bool) {
        self.job.new_pages = self.job.new_pages.saturating_add(new_pages);
        self.job.is_of_new_guests |= is_of_new_guests;
        self.count.expect(new_pages);
    }

    /// Records the next sample, and reports.
    pub fn observe(&mut self, now: &KsmdState) -> ScanReport {
        self.follow(now);
        if let Some(least_yield) =
            self.job.least_yield.filter(|_| self.job.coverage.is_clean() && !self.awaits_rest)
        {
            self.may_end_early(least_yield, now);
        }
        let status = match () {
            () if now.full_scans < self.count.full_scans => ScanStatus::Lost,
            () if self.awaits_rest => ScanStatus::Running,
            () if self.is_done(now) => ScanStatus::Done,
            () if self.moved.is_stalled(now) => ScanStatus::Stalled,
            () => ScanStatus::Running,
        };
        self.asked = self.rest_after(now);
        ScanReport {
            status,
            outcome: self.outcome(now),
            split_huge_pages: now.splits.saturating_sub(self.splits),
            ends_midway: !self.is_past_last_pass(now),
            left_pages: self.before.leaves(0, now),
            is_cut_short: status == ScanStatus::Done && self.is_cut_short(now),
        }
    }

    fn follow(&mut self, now: &KsmdState) {
        let (before, seen) = (self.seen, KsmdGlimpse::from_ksmd(now));
        // When exactly the setting took hold is not known, and passes may be short: only what samples show counts.
        self.clean_from = match self.clean_from {
            _ if now.is_smart => None,
            None => Some(seen.full_scans.saturating_add(1)),
            known => known,
        };
        if seen.full_scans != before.full_scans {
            // A pass that began with the new memory would have reached it.
            if self.count.is_aligned && self.count.expects_new && self.count.ends(now) == 1 {
                self.count.is_aligned = self.count.has_reached_new(now);
            }
            let mut end = PassEnd::from_ksmd(now, seen.is_at_end(&before), before.passed);
            if self.count.counts(before.full_scans) {
                // The sample came late, but a pass passes each page once.
                end.passed = end.passed.min(self.end.passed.saturating_add(now.tracked));
            }
            self.before = std::mem::replace(&mut self.end, end);
            let is_whole = self.is_whole(before.full_scans);
            self.marginal.record_end(self.before.leaves_stable(0, now), is_whole, now);
        } else if self.awaits_rest && now.rest == BoundaryPause::Resting {
            self.end = PassEnd::from_ksmd(now, true, before.passed);
        }
        let has_come_there = seen.full_scans != before.full_scans && self.asked == Some(seen.full_scans);
        self.awaits_rest = has_come_there && now.rest == BoundaryPause::Possible;
        self.seen = seen;
    }

    /// Returns true if a pass counts and visits every page.
    fn is_whole(&self, pass: u64) -> bool {
        self.count.counts(pass) && self.clean_from.is_some_and(|from| from <= pass)
    }

    /// Determines if the pass under way is the last one because it leaves little to another.
    ///
    /// After growth the count begins anew in the middle of a pass, often when most new pages have been visited. If the
    /// first whole pass from there finds nearly all pages in a tree, another pass would not merge more. Nor would it if
    /// this pass merged little of what was left to it.
    fn may_end_early(&mut self, least_yield: f64, now: &KsmdState) {
        let part = if self.job.is_of_new_guests { 1.0 } else { self.marginal.merged_part() };
        let few = few_pages(least_yield, part, now);
        self.may_be_shorter = true;
        if now.rest == BoundaryPause::Resting {
            // What the pass that has ended leaves is known.
            let ended = now.full_scans.checked_sub(1);
            self.early = ended.filter(|ended| self.is_whole(*ended) && self.before.leaves_stable(0, now) <= few);
            return;
        }
        let pass = now.full_scans;
        if self.early.is_some_and(|early| self.count.counts(early) && early < pass) {
            // What the pass that has begun since has passed may be in a tree for that alone.
            let done = now.passed.map_or(u64::MAX, |passed| passed.saturating_sub(self.end.passed_at_least));
            if self.before.leaves_stable(0, now).saturating_add(done) <= few {
                return;
            }
        }
        let may = self.is_whole(pass)
            && self.left_in_pass(now).is_some_and(|left| self.end.leaves_stable(left, now) <= few);
        self.early = may.then_some(pass);
    }

    /// Returns true if the scan has ended early although another pass would pay if all that is left merged.
    fn is_cut_short(&self, now: &KsmdState) -> bool {
        let few = self.job.least_yield.map(|least_yield| few_pages(least_yield, 1.0, now));
        self.early.is_some() && few.is_some_and(|few| self.before.leaves_stable(0, now) > few)
    }

    /// The place where ksmd stands, if it stands between two passes.
    pub(super) fn boundary(&self) -> Option<ScanBoundary> {
        self.end.boundary(self.seen.full_scans)
    }

    /// Returns true if `smart_scan` may skip old pages: in the first pass, until ksmd reaches memory that it did not
    /// track when the scan began, or may do so before the next sample. New processes are last in a pass that begins
    /// after they came.
    pub(super) fn may_skip(&self, now: &KsmdState) -> bool {
        let reaches_new = self.count.is_aligned && self.left_in_pass(now).is_none_or(|left| left < SKIPPED_AT_ONCE);
        self.count.ends(now) == 0 && !reaches_new && !self.count.has_reached_new(now)
    }

    /// The time to the next look while it may skip: before ksmd can have reached where it may not.
    ///
    /// In the rest of a pass that had begun before, it is not known when that is. Then old pages are skipped for a
    /// small part of a pass at most.
    pub(super) fn skipping(&self, share: f64, now: &KsmdState) -> Duration {
        const SOONEST: Duration = Duration::from_millis(5);
        const LATEST: Duration = Duration::from_millis(250);
        const PART_OF_PASS: f64 = 1.0 / 8.0;
        let Some(left) = self.left_in_pass(now).filter(|_| self.count.is_aligned) else {
            let part = Duration::from_nanos((now.clean_pass_seconds * 1e9 * PART_OF_PASS) as u64);
            return part.clamp(CLOSE, CLOSE * 5);
        };
        let ns = left.saturating_sub(SKIPPED_AT_ONCE) as f64 * SKIP_NS / share.max(0.01);
        Duration::from_nanos(ns as u64).clamp(SOONEST, LATEST)
    }

    /// Returns true if `smart_scan` was still on at the last sample, although no page is to be skipped any more.
    pub(super) fn skips(&self, now: &KsmdState) -> bool {
        now.is_smart && self.began != now.at
    }

    fn is_last_pass(&self, now: &KsmdState) -> bool {
        self.last_pass().is_some_and(|last| now.full_scans >= last)
    }

    /// The last pass: the scan ends with it. `None` while no pass is known to visit every page.
    ///
    /// If ksmd stood in the middle of a pass when the count began, the rest of that pass comes on top, since new
    /// processes are put behind its cursor. Stopping where it stood would not do: equal pages before and behind that
    /// place would never be visited in one pass, and two unmerged pages merge only there.
    fn last_pass(&self) -> Option<u64> {
        let passes = self.job.passes.saturating_sub(u64::from(self.count.is_aligned));
        let enough = self.count.full_scans.saturating_add(passes);
        let last = if self.job.coverage.is_clean() { enough.max(self.clean_from?) } else { enough };
        Some(self.early.map_or(last, |early| early.min(last)))
    }

    /// Passes that ksmd will have completed when it is to rest: with the last pass, or with the next one that may be
    /// the last.
    pub(super) fn rest_after(&self, now: &KsmdState) -> Option<u64> {
        if self.awaits_rest {
            return Some(now.full_scans);
        }
        let next = now.full_scans.saturating_add(1);
        if self.may_be_shorter { Some(next) } else { self.last_pass().map(|last| last.saturating_add(1).max(next)) }
    }

    /// Visits left in the last pass where that is about to end, and ksmd does not rest there: it is to be stopped right
    /// there.
    pub(super) fn approach(&self, share: f64, now: &KsmdState) -> Option<u64> {
        if now.rest != BoundaryPause::Unavailable || !self.is_last_pass(now) || self.is_done(now) {
            return None;
        }
        let left = self.left_in_pass(now)?;
        let soon = APPROACH.as_nanos() as f64 * share;
        (left as f64 * self.least_ns_per_page(now) <= soon).then_some(left)
    }

    /// The least cost of passing a page: in smart passes all pages that are left may be skipped.
    fn least_ns_per_page(&self, now: &KsmdState) -> f64 {
        if self.job.coverage.is_clean() { now.ns_per_page } else { SKIP_NS.min(now.ns_per_page) }
    }

    /// Pages that ksmd has yet to pass in the pass under way. `None` before Linux 6.6.
    fn left_in_pass(&self, now: &KsmdState) -> Option<u64> {
        let done = now.passed?.saturating_sub(self.end.passed);
        Some(now.tracked.saturating_sub(done))
    }

    fn is_done(&self, now: &KsmdState) -> bool {
        let is_single = self.job.passes == 1;
        self.is_past_last_pass(now) || self.count.ends(now) == 1 && is_single && self.has_gone_round(now)
    }

    fn is_past_last_pass(&self, now: &KsmdState) -> bool {
        self.last_pass().is_some_and(|last| now.full_scans > last)
    }

    /// Returns true if ksmd is back where the count began, having visited every page on the way.
    fn has_gone_round(&self, now: &KsmdState) -> bool {
        let is_clean = self.clean_from.is_some_and(|from| from <= self.count.full_scans.saturating_add(1));
        is_clean && self.count.visits_left(self.job.passes, now) == Some(0)
    }

    /// Returns the outcome so far. If the CPU time of ksmd cannot be read it is `visits * ns_per_page`, and before
    /// Linux 6.6 the whole time.
    fn outcome(&self, now: &KsmdState) -> ScanOutcome {
        let gained = i128::from(now.saved_bytes) + i128::from(now.freed_bytes) - i128::from(self.saved_bytes);
        let visits = now.visited.map(|visited| visited.saturating_sub(self.visited));
        let cpu_ns = match (self.cpu_ns, now.cpu_ns, visits) {
            (Some(before), Some(cpu_ns), _) => cpu_ns.saturating_sub(before) as f64,
            (_, _, Some(visits)) => visits as f64 * now.ns_per_page,
            _ => now.at.saturating_sub(self.began).as_nanos() as f64,
        };
        ScanOutcome { saved_bytes: i64::try_from(gained).unwrap_or(i64::MAX), cpu_seconds: cpu_ns / 1e9 }
    }

    /// Returns the time to the next look: at the expected end, so that ksmd does not run on into another pass, but
    /// often enough to hold the CPU share.
    pub(super) fn check_after(&self, share: f64, now: &KsmdState) -> Duration {
        if self.awaits_rest {
            return CLOSE;
        }
        let latest = duty::look_after(share);
        let Some(visits) = self.count.visits_left(self.job.passes, now) else { return latest };
        let span = |visits: u64| passing_time(visits, now.ns_per_page, share);
        let left = match self.left_in_pass(now) {
            // ksmd waits there.
            Some(left)
                if now.rest != BoundaryPause::Unavailable && (self.may_be_shorter || self.is_last_pass(now)) =>
            {
                span(left).max(often(now))
            }
            Some(left) if self.is_last_pass(now) => {
                passing_time(left, self.least_ns_per_page(now), share).saturating_sub(APPROACH).min(span(visits))
            }
            // The end of this pass has to be seen soon: the end of the next, which may be the last, is foreseen from it.
            Some(left) if self.may_be_shorter => {
                // Merged pages cost hardly more than skipped ones.
                let least = if self.knows_end() { passing_time(left, SKIP_NS, share) } else { Duration::ZERO };
                span(visits).min(least.max(often(now)))
            }
            _ => span(visits),
        };
        left.clamp(CLOSE, latest)
    }

    /// Returns true if the pass under way is known to have begun at the end that was seen last.
    fn knows_end(&self) -> bool {
        self.count.is_aligned || self.end != self.before
    }
}

/// The most pages for which a pass does not pay if it merges `part` of them, 0 to 1.
fn few_pages(least_yield: f64, part: f64, now: &KsmdState) -> u64 {
    (now.clean_pass_seconds * least_yield / part.max(LEAST_PART)) as u64 / now.page_size.max(1)
}

/// The time in which ksmd passes so many pages with this share of a CPU.
fn passing_time(pages: u64, ns_per_page: f64, share: f64) -> Duration {
    Duration::from_nanos((pages as f64 * ns_per_page / share.max(0.01)) as u64)
}

/// The shortest interval that costs little, given how long a sample takes. It lets the end of a pass be seen before the
/// last batch of the next.
fn often(now: &KsmdState) -> Duration {
    const PART: u32 = 20;
    now.took.saturating_mul(PART).max(APPROACH * 3 / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{PassHistory, PolicyLimits};
    use crate::sample::Sample;

    #[test]
    fn all_passes_for_new_memory_are_ahead_until_ksmd_may_have_passed_where_it_is() {
        let now = KsmdState::from_sample(&Sample::default(), &PassHistory::default(), &PolicyLimits::default());
        let job = ScanJob {
            coverage: ScanCoverage::Smart,
            passes: 2,
            new_pages: 1000,
            is_of_new_guests: false,
            busy_share: 1.0,
            extra_passes: 0,
            least_yield: None,
        };
        let next_pass = KsmdState { full_scans: now.full_scans + 1, ..now };
        let reached = KsmdState { tracked_of_living: now.tracked_of_living + 1000, ..now };
        let is_ahead = |is_aligned, is_of_last, later: &KsmdState| {
            ScanProgress::begin(job, is_aligned, &now).has_all_ahead(is_of_last, later)
        };
        for (is_of_last, later) in [(false, &now), (false, &reached), (true, &reached)] {
            assert!(is_ahead(false, is_of_last, later), "the passes have not begun");
        }
        assert!(!is_ahead(false, true, &next_pass));
        assert!(is_ahead(true, true, &now), "they are last");
        assert!(!is_ahead(true, false, &now), "others may be behind");
        assert!(!is_ahead(true, true, &reached));
        let mut scan = ScanProgress::begin(job, false, &now);
        scan.expect(500, false);
        assert_eq!(scan.job().new_pages, 1500);
    }

    /// A clean job of so many passes over 10,000 pages, and ksmd in the middle of its first pass.
    fn under_way(passes: u64, least_yield: Option<f64>) -> (ScanProgress, KsmdState) {
        let now = KsmdState {
            full_scans: 7,
            visited: Some(0),
            passed: Some(0),
            tracked: 10_000,
            page_size: 4096,
            clean_pass_seconds: 0.1,
            ..KsmdState::from_sample(&Sample::default(), &PassHistory::default(), &PolicyLimits::default())
        };
        let job = ScanJob {
            coverage: ScanCoverage::All,
            passes,
            new_pages: 0,
            is_of_new_guests: false,
            busy_share: 1.0,
            extra_passes: 0,
            least_yield,
        };
        let mut scan = ScanProgress::begin(job, true, &now);
        let middle = at(&now, 7, 5_000, BoundaryPause::Possible);
        assert_eq!(scan.observe(&middle).status, ScanStatus::Running);
        (scan, middle)
    }

    /// ksmd a little later, after so many visits.
    fn at(now: &KsmdState, full_scans: u64, visited: u64, rest: BoundaryPause) -> KsmdState {
        let at = now.at + Duration::from_millis(100);
        KsmdState { at, runs: true, full_scans, visited: Some(visited), passed: Some(visited), rest, ..*now }
    }

    #[test]
    fn an_end_where_ksmd_rests_is_exact_however_late_it_is_seen() {
        let (mut scan, now) = under_way(1, None);
        assert_eq!((scan.rest_after(&now), scan.approach(1.0, &now)), (Some(8), None), "no close look is needed");
        let late =
            KsmdState { at: now.at + Duration::from_secs(60), ..at(&now, 8, 10_000, BoundaryPause::Resting) };
        assert_eq!(scan.observe(&late).status, ScanStatus::Done);
        assert!(scan.boundary().is_some());
    }

    #[test]
    fn an_end_that_the_waking_thread_has_yet_to_see_is_waited_for_once() {
        for comes_to_rest in [true, false] {
            let (mut scan, now) = under_way(1, None);
            let ended = at(&now, 8, 10_000, BoundaryPause::Possible);
            assert_eq!(scan.observe(&ended).status, ScanStatus::Running);
            assert_eq!(
                (scan.rest_after(&ended), scan.check_after(1.0, &ended)),
                (Some(8), CLOSE),
                "asked for once more"
            );
            let rest = if comes_to_rest { BoundaryPause::Resting } else { BoundaryPause::Possible };
            assert_eq!(scan.observe(&at(&ended, 8, 10_000, rest)).status, ScanStatus::Done);
            assert_eq!(scan.boundary().is_some(), comes_to_rest);
        }
    }

    #[test]
    fn a_scan_ends_once_a_pass_has_merged_little_of_what_was_left_to_it() {
        let price = Some(8.0 * 1024.0 * 1024.0);
        // Another pass pays from 204 merged pages on.
        for (merged_pages, is_of_new_guests, status) in
            [(10, false, ScanStatus::Done), (10, true, ScanStatus::Running), (1000, false, ScanStatus::Running)]
        {
            let (mut scan, now) = under_way(4, price);
            scan.expect(0, is_of_new_guests);
            let left = KsmdState { in_no_tree: Some(5_000), ..at(&now, 8, 10_000, BoundaryPause::Resting) };
            assert_eq!(scan.observe(&left).status, ScanStatus::Running, "a first pass merges nothing");
            let saved_bytes = left.saved_bytes + merged_pages * 4096;
            let report = scan.observe(&KsmdState { saved_bytes, ..at(&left, 9, 20_000, BoundaryPause::Resting) });
            assert_eq!(report.status, status, "{merged_pages} pages, new guests: {is_of_new_guests}");
            assert_eq!(report.is_cut_short, status == ScanStatus::Done);
        }
    }

    #[test]
    fn a_scan_that_may_be_shorter_has_ksmd_rest_at_each_end_and_is_over_once_little_is_left() {
        let left = [(5_000, 0, ScanStatus::Running), (0, 0, ScanStatus::Done), (5_000, 4_500, ScanStatus::Running)];
        // What changes all the time is not left to another pass.
        for (in_no_tree, changing, status) in left.into_iter().chain([(5_000, 4_900, ScanStatus::Done)]) {
            let (mut scan, now) = under_way(3, Some(8.0 * 1024.0 * 1024.0));
            assert_eq!(scan.rest_after(&now), Some(8));
            let ended =
                KsmdState { in_no_tree: Some(in_no_tree), changing, ..at(&now, 8, 10_000, BoundaryPause::Resting) };
            assert_eq!(scan.observe(&ended).status, status);
            assert_eq!(scan.rest_after(&ended), Some(9));
        }
    }
}
