//! `profit`: ksmd works when, and only when, that pays.
//!
//! The policy decides which [`ScanJob`] to start, or none, and why ([`ScanReason`]):
//! * **Burst** when memory appears that ksmd has not visited: new memory is visited twice and old memory once. The last
//!   pass has `smart_scan` off, since smart scanning can keep equal pages apart for ever. Beside much old memory both
//!   passes are smart, arrivals share them, and a clean pass follows where it is expected to pay (`arrivals`).
//! * **Finish** after a burst during which memory went on growing, and **retry** after one that has likely missed
//!   pages.
//! * **Revisit** when the page samples ([`crate::page_sample`]) show memory that changed and is stable again, and the
//!   expected savings are worth more than the price.
//! * **Tidy** when guests with merged pages have ended: one cheap pass frees what KSM still keeps for them.
//! * **Probe** now and then where memory changes and a revisit is not expected to pay. The less probes pay, the longer
//!   the interval.
//! * **Sustain**, without page samples: one more pass while the pages that changed may bring more than the price.
//!
//! Beliefs about each class of pages are in `beliefs`, `growth` and `arrivals`, and learned probabilities in
//! `probability`. The scans with their worth are in `actions`, trials that are not expected to pay in `exploration`,
//! and all constants in `constants`.
//!
//! Otherwise ksmd is parked: `run` is 0, it costs nothing, and merged pages stay merged. The price is in bytes newly
//! saved per CPU-second of ksmd and falls as the host runs short of memory. How a scan is carried out is up to
//! [`crate::scan`].

mod actions;
mod arrivals;
mod beliefs;
mod config;
mod constants;
mod exploration;
mod growth;
mod guests;
#[cfg(test)]
mod late;
mod probability;
#[cfg(test)]
mod properties;
mod scan_reason;
#[cfg(test)]
mod scenarios;
mod settle;
mod situation;
mod sketched;
#[cfg(test)]
mod tests;
mod text;
mod unfinished;

use std::time::Duration;

pub use config::ProfitConfig;
pub use constants::Constants;

use self::arrivals::ArrivalModel;
use self::beliefs::{MergeExperience, ScanBeliefs, expects_pairs};
use self::constants::{CALM_WATCH, QUIET, SOONEST_LOOK, WATCH};
use self::exploration::ExplorationAccount;
use self::growth::GrowthModel;
use self::guests::{GuestChanges, GuestMarks};
use self::probability::MergeProbability;
use self::scan_reason::ScanReason;
use self::situation::HostSituation;
use self::unfinished::UnfinishedMemory;
use super::{DecisionReason, Policy, PolicyDecision, PolicyView};
use crate::knobs::{Knob, KnobSettings};
use crate::scan::{KsmScanner, ScanCoverage, ScanJob, ScanProgress, ScanReport, ScanStatus};
use crate::units::TimeSpan;

#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
enum ProfitPhase {
    Scanning(RunningScan),
    Parked(ParkedPhase),
}

/// ksmd is parked, and why.
#[derive(Debug, Clone)]
struct ParkedPhase {
    since: Duration,
    /// The time at which `next` is due.
    until: Duration,
    next: ScanReason,
    why: String,
}

/// A scan in progress and its reason.
#[derive(Debug, Clone, Copy)]
struct RunningScan {
    reason: ScanReason,
    scan: ScanProgress,
    /// True if old memory is skipped until ksmd reaches the new.
    is_new_first: bool,
    /// New memory that it is for, in bytes.
    new_bytes: u64,
}

/// The policy; see the module's documentation.
#[derive(Debug, Clone)]
pub struct ProfitPolicy {
    config: ProfitConfig,
    phase: Option<ProfitPhase>,
    scanner: KsmScanner,
    guests: GuestMarks,
    /// The model of the growth that is worth a burst.
    growth: GrowthModel,
    arrivals: ArrivalModel,
    /// True if old memory was ever worth skipping. If it was not, sketches decide nothing.
    may_skip: bool,
    experience: MergeExperience,
    /// The probability that a probe pays.
    probes: MergeProbability,
    /// CPU-seconds of the most expensive clean pass since the last burst.
    dearest_pass: f64,
    exploration: ExplorationAccount,
    /// The beliefs when the scan in progress was started.
    promised: ScanBeliefs,
    /// Merged pages that had been copied on write when ksmd last visited all of them. Those copied since still count as
    /// saved.
    copied_pages: u64,
    unfinished: UnfinishedMemory,
    /// Ends of passes at the last sample.
    full_scans: u64,
}

impl ProfitPolicy {
    /// Creates the policy with these settings.
    pub fn new(config: ProfitConfig) -> Self {
        let experience = MergeExperience::new(config.constants.unknown_at_first);
        Self {
            config,
            phase: None,
            scanner: KsmScanner::default(),
            guests: GuestMarks::default(),
            growth: GrowthModel::default(),
            arrivals: ArrivalModel::default(),
            may_skip: false,
            experience,
            probes: MergeProbability::expecting(1.0),
            dearest_pass: 0.0,
            exploration: ExplorationAccount::default(),
            promised: ScanBeliefs::none(&experience),
            copied_pages: 0,
            unfinished: UnfinishedMemory::default(),
            full_scans: 0,
        }
    }

    /// Decides how a scan in progress goes on.
    fn go_on(
        &mut self,
        mut running: RunningScan,
        has_grown: bool,
        changes: GuestChanges,
        now: &HostSituation,
    ) -> PolicyDecision {
        let report = running.scan.observe(&now.ksmd);
        let changes = self.take_ahead(&mut running, changes, now);
        let has_grown = has_grown && changes.grown_bytes > 0;
        if self.is_new(&running, &report, has_grown, changes, now) || report.status == ScanStatus::Lost {
            self.growth.note_burst(changes);
            running.reason = ScanReason::Burst;
            running.new_bytes = running.new_bytes.saturating_add(changes.grown_bytes);
            let job = *running.scan.job();
            let is_clean = job.coverage.is_clean() || self.clean_burst_pays(changes.grown_bytes, now);
            let job = ScanJob {
                coverage: coverage(is_clean, running.is_new_first),
                passes: ScanReason::Burst.passes(),
                new_pages: changes.grown_bytes / now.ksmd.page_size.max(1),
                least_yield: Some(now.price),
                ..job
            };
            running.scan.extend(job, &now.ksmd);
            self.mark(now);
            return self.carry_on(running, &text::growth(changes), now);
        }
        match report.status {
            ScanStatus::Done => self.settle(&running, &report, changes, now),
            ScanStatus::Stalled => {
                self.probes.learn(0.0, 1.0);
                self.unfinished.note_stalled();
                self.mark(now);
                self.scanner.give_up();
                let wait = self.probe_interval(now);
                self.park(ScanReason::Probe, wait, "ksmd found nothing to scan".to_owned(), now)
            }
            ScanStatus::Running | ScanStatus::Lost => self.carry_on(running, &report.outcome.so_far(), now),
        }
    }

    /// Lets a burst count what has grown since as its own, where ksmd has yet to make all passes for it. Returns what
    /// else has changed.
    fn take_ahead(
        &mut self,
        running: &mut RunningScan,
        changes: GuestChanges,
        now: &HostSituation,
    ) -> GuestChanges {
        let job = running.scan.job();
        let is_meant = job.coverage.is_clean() || ArrivalModel::skips_old(changes, now);
        // A process that starts during a pass is put behind ksmd's cursor, and that pass does not visit it.
        let is_of_last = changes.settled_bytes == 0 && changes.new_guests == 0;
        let is_ahead = running.scan.has_all_ahead(is_of_last, &now.ksmd);
        if running.reason != ScanReason::Burst || changes.grown_bytes == 0 || !is_meant || !is_ahead {
            return changes;
        }
        self.growth.note_burst(changes);
        running.new_bytes = running.new_bytes.saturating_add(changes.grown_bytes);
        running.scan.expect(changes.grown_bytes / now.ksmd.page_size.max(1));
        self.guests.mark_ahead(&now.processes);
        self.arrivals.note_start();
        GuestChanges { new_guests: 0, grown_bytes: 0, settled_bytes: 0, has_faulted: false, ..changes }
    }

    /// Returns true if memory has grown so much that the count of passes begins anew. Pages that came after the count
    /// began have been visited once at most, so guests that still fill their memory would be left half merged.
    fn is_new(
        &mut self,
        running: &RunningScan,
        report: &ScanReport,
        has_grown: bool,
        changes: GuestChanges,
        now: &HostSituation,
    ) -> bool {
        let grown = changes.grown_bytes as f64;
        let is_filling = report.status == ScanStatus::Done
            && grown > 0.0
            && grown >= now.held_bytes as f64 * now.constants.noticeable_part;
        let skips_old = !running.scan.job().coverage.is_clean() && ArrivalModel::skips_old(changes, now);
        (has_grown || is_filling)
            && !ArrivalModel::is_dear(now)
            && !skips_old
            && self.growth.may_continue(changes, &report.outcome, now.pass_seconds_once_tracked(), now.price)
    }

    /// Returns true if the clean pass for which ksmd is parked is still worth its price, by the present sketches.
    fn still_meets(&mut self, changes: GuestChanges, now: &HostSituation) -> bool {
        if ArrivalModel::is_dear(now) || now.sketches.is_none() || self.arrivals.knows_unmet() {
            return true;
        }
        self.arrivals.estimate_unmet(&self.guests, now);
        if self.arrivals.knows_unmet() {
            self.meeting_pays(now)
        } else {
            self.may_be_unmet(changes.grown_bytes, now)
        }
    }

    fn start(&mut self, reason: ScanReason, changes: GuestChanges, now: &HostSituation) -> PolicyDecision {
        if reason != ScanReason::Sustain {
            self.promised = ScanBeliefs::of_samples(now, &self.experience);
        }
        let job = self.job(reason, changes, now);
        if reason == ScanReason::Meet {
            self.arrivals.note_clean_start(&self.guests, now);
        }
        let scan = self.scanner.start(job, &now.ksmd);
        if job.passes > 1 {
            self.mark(now);
        } else {
            self.guests.rest(&now.processes);
        }
        let is_new_first = self.is_new_first(reason);
        let running = RunningScan { reason, scan, is_new_first, new_bytes: changes.grown_bytes };
        self.carry_on(running, &text::why(reason, changes, self.promised.expected()), now)
    }

    /// Marks all memory as old, as when passes for the new begin.
    fn mark(&mut self, now: &HostSituation) {
        self.guests.mark(&now.processes);
        self.arrivals.note_start();
    }

    fn job(&mut self, reason: ScanReason, changes: GuestChanges, now: &HostSituation) -> ScanJob {
        let is_clean = match reason {
            ScanReason::Burst => {
                self.growth.note_burst(changes);
                !ArrivalModel::skips_old(changes, now) && self.clean_burst_pays(changes.grown_bytes, now)
            }
            ScanReason::Tidy => false,
            _ => true,
        };
        let passes = match reason {
            ScanReason::Revisit if self.one_pass_does(now) => 1,
            // Sampled pages that changed take two visits. Without samples the first visit tells whether a second pays.
            ScanReason::Probe if self.unfinished.has_new(changes) || now.has_page_samples() => 2,
            reason => reason.passes(),
        };
        let is_for_pairs = now.page_samples.as_ref().is_some_and(expects_pairs);
        ScanJob {
            coverage: coverage(is_clean, self.is_new_first(reason)),
            passes,
            new_pages: changes.grown_bytes / now.ksmd.page_size.max(1),
            busy_share: self.config.busy_cpu_percent / 100.0,
            needs_whole_pass: matches!(reason, ScanReason::Retry | ScanReason::Meet)
                || reason == ScanReason::Revisit && is_for_pairs,
            least_yield: (reason == ScanReason::Burst).then_some(now.price),
        }
    }

    /// Returns true if ksmd skips old memory until it reaches the new. In the first scan all memory is new.
    fn is_new_first(&self, reason: ScanReason) -> bool {
        matches!(reason, ScanReason::Burst | ScanReason::Finish) && self.phase.is_some()
    }

    /// Returns true if a burst may visit old memory too. Even if all new memory merged, that would save no more than
    /// the new memory.
    fn clean_burst_pays(&self, grown_bytes: u64, now: &HostSituation) -> bool {
        grown_bytes.saturating_add(self.unfinished.unmet_bytes()) as f64 >= now.price_of_two_passes()
    }

    /// Returns true if one visit merges nearly all that a revisit is expected to save.
    fn one_pass_does(&self, now: &HostSituation) -> bool {
        now.page_samples.as_ref().is_some_and(|samples| self.promised.one_pass_does(samples))
    }

    /// Returns the time from parking to the next probe: the less probes pay, the longer. They cost no more than the
    /// budget on average, by the most expensive pass since the last burst.
    fn probe_interval(&mut self, now: &HostSituation) -> Duration {
        let longest = self.config.longest_interval();
        self.dearest_pass = self.dearest_pass.max(now.ksmd.clean_pass_seconds);
        let least = self.config.first_interval().max(self.config.time_for(self.dearest_pass, 1.0));
        let seconds = least.as_secs_f64() / self.probes.mean().max(f64::MIN_POSITIVE);
        Duration::try_from_secs_f64(seconds).unwrap_or(longest).min(longest)
    }

    fn carry_on(&mut self, running: RunningScan, why: &str, now: &HostSituation) -> PolicyDecision {
        let settings = self.scanner.settings(&running.scan, &now.ksmd);
        let text = text::scanning(why, &settings);
        self.phase = Some(ProfitPhase::Scanning(running));
        PolicyDecision {
            knobs: self.with_zero_pages(settings.knobs, now),
            reason: DecisionReason::new(running.reason.state(), text),
            check_after: settings.check_after,
            rest_after: settings.rest_after,
        }
    }

    /// Adds `use_zero_pages`, which holds in every state. From Linux 4.12 to 6.5 pages that are merged with the zero
    /// page are not counted, so that their savings would not show.
    fn with_zero_pages(&self, knobs: KnobSettings, now: &HostSituation) -> KnobSettings {
        if now.counts_zero_pages {
            knobs.with(Knob::UseZeroPages, u64::from(self.config.zero_pages))
        } else {
            knobs
        }
    }

    fn park(&mut self, next: ScanReason, wait: Duration, why: String, now: &HostSituation) -> PolicyDecision {
        self.guests.rest(&now.processes);
        let since = now.ksmd.at;
        self.phase = Some(ProfitPhase::Parked(ParkedPhase { since, until: since.saturating_add(wait), next, why }));
        self.watch(GuestChanges::default(), now)
    }

    /// The decision of a parked policy that stays parked.
    fn watch(&self, changes: GuestChanges, now: &HostSituation) -> PolicyDecision {
        let knobs = KnobSettings::none().with(Knob::AdvisorMode, 0).with(Knob::Run, 0);
        let (text, check_after) = match &self.phase {
            Some(ProfitPhase::Parked(ParkedPhase { since, until, next, why })) => {
                let left = until.saturating_sub(now.ksmd.at);
                let is_calm = now.ksmd.at.saturating_sub(*since) >= QUIET;
                let pause = if is_calm { CALM_WATCH } else { WATCH };
                let then = match next {
                    _ if let Some(samples) = now.page_samples => samples.in_words(),
                    ScanReason::Probe if left.is_zero() => text::idle(changes),
                    reason => format!("next {} in {}", reason.state(), TimeSpan(left)),
                };
                let soon = left.clamp(SOONEST_LOOK, pause);
                (format!("{why}; {then}"), if left.is_zero() { pause } else { soon })
            }
            _ => ("no process has mergeable memory".to_owned(), WATCH),
        };
        PolicyDecision::new(self.with_zero_pages(knobs, now), DecisionReason::new("parked", text), check_after)
    }
}

impl Policy for ProfitPolicy {
    fn name(&self) -> &'static str {
        "profit"
    }

    fn wants_page_samples(&self) -> bool {
        true
    }

    fn wants_sketches(&self) -> bool {
        self.config.sketches && self.may_skip
    }

    fn decide(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
        let now = HostSituation::from_view(view, &self.config);
        let changes = self.guests.follow(&now.processes);
        self.may_skip |= ArrivalModel::is_dear(&now) || ArrivalModel::skipping_pays(changes, &now);
        self.arrivals.follow(changes, &self.guests, &now);
        self.exploration.follow(now.ksmd.at, self.config.budget());
        if now.ksmd.full_scans < self.full_scans && matches!(self.phase, Some(ProfitPhase::Parked(_))) {
            // Everything was unmerged, and ksmd has forgotten all pages.
            self.phase = None;
        }
        self.full_scans = now.ksmd.full_scans;
        let has_grown = self.growth.worth(changes, now.growth_bytes, now.held_bytes) >= 1.0;
        let has_guests = !now.processes.is_empty();
        if !has_guests && now.ksmd.tracked == 0 {
            self.phase = None;
            return self.watch(changes, &now);
        }
        match self.phase.clone() {
            None if !has_guests => self.start(ScanReason::Tidy, changes, &now),
            None => self.start(ScanReason::Burst, changes, &now),
            Some(ProfitPhase::Scanning(running)) => self.go_on(running, has_grown, changes, &now),
            Some(ProfitPhase::Parked(parked))
                if parked.next == ScanReason::Meet && !self.still_meets(changes, &now) =>
            {
                let wait = self.probe_interval(&now);
                self.park(ScanReason::Probe, wait, parked.why, &now)
            }
            Some(ProfitPhase::Parked(parked)) => match self.choose(&parked, changes, &now) {
                Some(reason) => self.start(reason, changes, &now),
                None => self.watch(changes, &now),
            },
        }
    }
}

fn coverage(is_clean: bool, is_new_first: bool) -> ScanCoverage {
    match (is_clean, is_new_first) {
        (false, _) => ScanCoverage::Smart,
        (true, true) => ScanCoverage::NewThenAll,
        (true, false) => ScanCoverage::All,
    }
}
