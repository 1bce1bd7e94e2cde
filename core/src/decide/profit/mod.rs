//! `profit`: ksmd works when, and only when, that pays.
//!
//! [`machine::TRANSITIONS`] is the policy: states, events, guards and actions in one table. It starts a scan for one of
//! these reasons ([`ScanReason`]), and parks ksmd otherwise: `run` is 0, ksmd costs nothing, and merged pages stay merged.
//! * **Burst** when memory appears that ksmd has not visited: new memory is visited twice and old memory once. The last
//!   pass has `smart_scan` off, since smart scanning can keep equal pages apart for ever. Beside much old memory both
//!   passes are smart, and arrivals share them (`arrivals`).
//! * **Finish** after a scan that split huge pages, and **retry** after a burst that has likely missed pages.
//! * **Revisit** when the page samples ([`crate::page_sample`]) show memory that changed and is stable again.
//! * **Tidy** when guests with merged pages have ended: one cheap pass frees what KSM still keeps for them.
//! * **Probe** now and then where memory changes and a revisit is not expected to pay. The less probes pay, the longer
//!   the interval.
//! * **Sustain**, without page samples: one more pass while the pages that changed may bring more than the price.
//!
//! With `when = "short"` all of them wait until memory is short (`shortage`), but for tidying and finishing. They also wait
//! where a forecast says that merging would split huge pages for little, or for less than the splits cost programs (`wait`,
//! `splits`, [`crate::merge_forecast`]). With `look_first` bursts and probes begin where one says that they pay (`look`).
//!
//! `worth` is the cost model: expected gain divided by cost. `model` holds the beliefs and learns from each scan: classes
//! of pages in `beliefs`, new memory in `growth` and `arrivals`, probabilities in `probability`. The price is in bytes
//! newly saved per CPU-second of ksmd and falls with the pressure on memory (`situation`). [`crate::scan`] carries
//! scans out.

mod allowance;
mod arrivals;
mod beliefs;
mod config;
mod constants;
mod folding;
mod growth;
mod guests;
#[cfg(test)]
mod late;
mod level;
mod look;
mod machine;
mod model;
mod probability;
#[cfg(test)]
mod properties;
mod scan_reason;
#[cfg(test)]
mod scenarios;
mod shortage;
mod situation;
mod splits;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod unfinished;
mod wait;
#[cfg(test)]
mod waiting;
mod worth;

pub use config::{ProfitConfig, SHORT_PERCENT};
pub use shortage::MemoryShortage;

use self::allowance::DelayAllowance;
use self::arrivals::ArrivalModel;
use self::beliefs::ScanBeliefs;
use self::constants::{CALM_WATCH, PAUSE_OF_CHANGES, QUIET, SOONEST_LOOK, WATCH};
use self::folding::FoldWatch;
use self::guests::{GuestChanges, GuestMarks};
use self::look::{LookVerdict, MemoryLook, ScanForecast};
use self::machine::{MachineAction, MachineEvent, Turn};
use self::model::ProfitModel;
use self::scan_reason::ScanReason;
use self::situation::HostSituation;
use self::state::{ParkedPhase, ProfitState, RunningScan};
use self::wait::WaitReason;
use super::{DecisionReason, Policy, PolicyDecision, PolicyView, ReasonSentences, ground};
use crate::cpu_use::CpuUse;
use crate::knobs::{Knob, KnobSettings};
use crate::sample::ForecastState;
use crate::scan::{KsmScanner, ScanCoverage, ScanJob, ScanReport};

/// The policy; see the module's documentation.
#[derive(Debug, Clone)]
pub struct ProfitPolicy {
    config: ProfitConfig,
    state: ProfitState,
    model: ProfitModel,
    scanner: KsmScanner,
    shortage: MemoryShortage,
    allowance: DelayAllowance,
    folding: FoldWatch,
    look: MemoryLook,
    /// The forecast of the scan that is about to begin.
    foretold: Option<ScanForecast>,
    /// Ends of passes at the last sample.
    full_scans: u64,
    /// The CPUs that processes use: what splits of their huge pages would cost depends on it.
    cpu_use: CpuUse,
}

impl ProfitPolicy {
    /// Creates the policy with these settings.
    pub fn new(config: ProfitConfig) -> Self {
        let allowance = DelayAllowance::new(config.max_delay_percent);
        Self {
            config,
            allowance,
            state: ProfitState::Forgotten,
            model: ProfitModel::new(),
            scanner: KsmScanner::default(),
            shortage: MemoryShortage::default(),
            folding: FoldWatch::default(),
            look: MemoryLook::default(),
            foretold: None,
            full_scans: 0,
            cpu_use: CpuUse::over(splits::MEMORY),
        }
    }

    /// Lets a burst count what has grown since as its own, where ksmd has yet to make all passes for it. Returns what
    /// else has changed.
    fn count_ahead(
        &mut self,
        running: &mut RunningScan,
        changes: GuestChanges,
        now: &HostSituation,
    ) -> GuestChanges {
        let job = running.scan.job();
        let is_meant = job.coverage.is_clean() || ArrivalModel::is_dear(now);
        // A process that starts during a pass is put behind ksmd's cursor, and that pass does not visit it.
        let is_of_last = changes.settled_bytes == 0 && changes.new_guests == 0;
        let is_ahead = running.scan.has_all_ahead(is_of_last, &now.ksmd);
        if running.reason != ScanReason::Burst || changes.grown_bytes == 0 || !is_meant || !is_ahead {
            return changes;
        }
        self.model.growth.note_burst(changes);
        running.new_bytes = running.new_bytes.saturating_add(changes.grown_bytes);
        let new_pages = changes.grown_bytes / now.ksmd.page_size.max(1);
        running.scan.expect(new_pages, changes.new_guests > 0);
        self.model.guests.mark_ahead(&now.processes, now.ksmd.at);
        self.model.arrivals.note_start();
        GuestChanges { new_guests: 0, grown_bytes: 0, settled_bytes: 0, has_faulted: false, ..changes }
    }

    /// Returns true if memory has grown so much that the count of passes begins anew. Pages that came after the count
    /// began have been visited once at most, so guests that still fill their memory would be left half merged. Where
    /// clean passes are expensive, what has grown waits for passes of its own.
    fn begins_anew(&mut self, report: &ScanReport, changes: GuestChanges, now: &HostSituation) -> bool {
        changes.grown_bytes > 0
            && !ArrivalModel::is_dear(now)
            && worth::of_growth(self.model.growth, changes, now) >= 1.0
            && self.model.growth.may_continue(changes, &report.outcome, now.pass_seconds_once_tracked(), now.price)
    }

    /// Carries out the action that the table names.
    fn carry_out(
        &mut self,
        action: MachineAction,
        scanned: Option<(RunningScan, ScanReport)>,
        changes: GuestChanges,
        now: &HostSituation,
    ) -> PolicyDecision {
        match (action, scanned) {
            (MachineAction::Start(reason), _) => self.start(reason, changes, now),
            (MachineAction::StartNext, _) => match &self.state {
                ProfitState::Parked(parked) => self.start(parked.next, changes, now),
                _ => self.watch(changes, now),
            },
            (MachineAction::CarryOn, Some((running, report))) => {
                self.carry_on(running, ground::so_far(&report.outcome), now)
            }
            (MachineAction::BeginAnew, Some((running, _))) => self.begin_anew(running, changes, now),
            (MachineAction::GiveUp, _) => {
                self.model.note_stalled(now);
                self.scanner.give_up();
                self.park(ScanReason::Probe, ReasonSentences::plain("ksmd found nothing to scan"), now)
            }
            (MachineAction::Judge(next), Some((running, report))) => {
                self.scanner.finish(&running.scan);
                self.model.learn(&running, &report, changes, now);
                if next == ScanReason::Sustain {
                    self.model.promised = ScanBeliefs::from_changing(now, &self.model.experience);
                }
                let why = text::outcome(running.reason, running.foretold, &report.outcome, now.price);
                self.park(next, why, now)
            }
            (MachineAction::Forget, _) => {
                self.state = ProfitState::Forgotten;
                self.watch(changes, now)
            }
            _ => self.watch(changes, now),
        }
    }

    fn start(&mut self, reason: ScanReason, changes: GuestChanges, now: &HostSituation) -> PolicyDecision {
        if reason != ScanReason::Sustain {
            self.model.promised = ScanBeliefs::from_samples(now, &self.model.experience);
        }
        // In the first scan all memory is new.
        let is_new_first = reason == ScanReason::Burst && !matches!(self.state, ProfitState::Forgotten);
        let job = self.job(reason, is_new_first, changes, now);
        let scan = self.scanner.start(job, &now.ksmd);
        if job.passes > 1 {
            self.model.mark_visited(now);
        } else {
            self.model.guests.rest(&now.processes);
        }
        let (new_bytes, foretold) = (changes.grown_bytes, self.foretold.take());
        let running = RunningScan { reason, scan, is_new_first, new_bytes, foretold };
        self.carry_on(running, text::why(reason, changes, self.model.promised.expected()), now)
    }

    fn job(
        &mut self,
        reason: ScanReason,
        is_new_first: bool,
        changes: GuestChanges,
        now: &HostSituation,
    ) -> ScanJob {
        let is_clean = match reason {
            ScanReason::Burst => {
                self.model.growth.note_burst(changes);
                !ArrivalModel::is_dear(now) && worth::clean_burst_pays(&self.model, changes.grown_bytes, now)
            }
            ScanReason::Tidy => false,
            _ => true,
        };
        let passes = match reason {
            ScanReason::Revisit if self.one_pass_does(now) => 1,
            // Sampled pages that changed take two visits. Without samples the first visit tells whether a second pays.
            ScanReason::Probe if self.model.unfinished.has_new(changes) || now.has_page_samples() => 2,
            reason => reason.passes(),
        };
        ScanJob {
            coverage: coverage(is_clean, is_new_first),
            passes,
            new_pages: changes.grown_bytes / now.ksmd.page_size.max(1),
            is_of_new_guests: changes.new_guests > 0,
            busy_share: self.config.busy_cpu_percent / 100.0,
            extra_passes: 0,
            least_yield: (reason == ScanReason::Burst).then_some(now.price),
        }
    }

    /// Has pages read before a burst or a probe that the allowance affords. Returns the decision to wait, or to stay parked where
    /// they tell that the scan does not pay; `None` if the action is to be carried out.
    fn look_first(
        &mut self,
        action: MachineAction,
        forecast: ForecastState,
        changes: GuestChanges,
        now: &HostSituation,
    ) -> Option<PolicyDecision> {
        let reason = match (action, &self.state) {
            (MachineAction::Start(reason), _) => Some(reason),
            (MachineAction::StartNext, ProfitState::Parked(parked)) => Some(parked.next),
            _ => None,
        };
        let is_looked_at = |reason: &ScanReason| matches!(reason, ScanReason::Burst | ScanReason::Probe);
        self.foretold = None;
        let cost = |reason: ScanReason| look::cpu_seconds(now.held_bytes, reason, changes, now);
        if reason.is_some_and(|reason| is_looked_at(&reason) && !self.allowance.affords(cost(reason))) {
            self.look.follow(forecast);
            let now = HostSituation { waits: Some(WaitReason::Spent), ..now.clone() };
            return Some(self.watch(changes, &now));
        }
        let Some(reason) = reason.filter(is_looked_at).filter(|_| self.config.look_first) else {
            self.look.follow(forecast);
            return None;
        };
        match self.look.judge(reason, forecast, changes, now) {
            LookVerdict::Wait => {
                let now = HostSituation { waits: Some(WaitReason::Pending), ..now.clone() };
                Some(self.watch(changes, &now))
            }
            LookVerdict::Begin(foretold) => {
                self.foretold = foretold;
                None
            }
            LookVerdict::Leave(scan) => {
                self.model.note_stalled(now);
                Some(self.park(ScanReason::Probe, scan.in_words(now.price), now))
            }
        }
    }

    /// Returns true if one visit merges nearly all that a revisit is expected to save.
    fn one_pass_does(&self, now: &HostSituation) -> bool {
        now.page_samples.as_ref().is_some_and(|samples| self.model.promised.one_pass_does(samples))
    }

    fn begin_anew(
        &mut self,
        mut running: RunningScan,
        changes: GuestChanges,
        now: &HostSituation,
    ) -> PolicyDecision {
        self.model.growth.note_burst(changes);
        running.reason = ScanReason::Burst;
        running.new_bytes = running.new_bytes.saturating_add(changes.grown_bytes);
        let job = *running.scan.job();
        let is_clean = job.coverage.is_clean()
            || !ArrivalModel::is_dear(now) && worth::clean_burst_pays(&self.model, changes.grown_bytes, now);
        let job = ScanJob {
            coverage: coverage(is_clean, running.is_new_first),
            passes: ScanReason::Burst.passes(),
            new_pages: changes.grown_bytes / now.ksmd.page_size.max(1),
            is_of_new_guests: changes.new_guests > 0,
            least_yield: Some(now.price),
            ..job
        };
        running.scan.extend(job, &now.ksmd);
        self.model.mark_visited(now);
        self.carry_on(running, text::growth(changes), now)
    }

    fn carry_on(&mut self, running: RunningScan, why: ReasonSentences, now: &HostSituation) -> PolicyDecision {
        let settings = self.scanner.settings(&running.scan, &now.ksmd);
        let sentences = text::scanning(why, &settings);
        self.state = ProfitState::Scanning(running);
        PolicyDecision {
            knobs: self.with_zero_pages(settings.knobs, now),
            reason: DecisionReason::from_sentences(running.reason.state(), sentences),
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

    /// Parks until a scan of that reason is due. Memory that was changing has time to become stable before a retry or a sustaining
    /// pass.
    fn park(&mut self, next: ScanReason, why: ReasonSentences, now: &HostSituation) -> PolicyDecision {
        let wait = match next {
            ScanReason::Finish => SOONEST_LOOK,
            ScanReason::Sustain | ScanReason::Retry => PAUSE_OF_CHANGES,
            _ => {
                self.model.note_pass_cost(now);
                worth::probe_interval(&self.model, &self.config)
            }
        };
        self.model.guests.rest(&now.processes);
        let since = now.ksmd.at;
        self.state = ProfitState::Parked(ParkedPhase { since, until: since.saturating_add(wait), next, why });
        self.watch(GuestChanges::default(), now)
    }

    /// The decision of a parked policy that stays parked.
    fn watch(&self, changes: GuestChanges, now: &HostSituation) -> PolicyDecision {
        let knobs = KnobSettings::none().with(Knob::AdvisorMode, 0).with(Knob::Run, 0);
        let (sentences, check_after) = match &self.state {
            _ if let Some(reason) = now.waits => {
                let soon = if reason == WaitReason::Pending { SOONEST_LOOK } else { WATCH };
                (reason.in_words(&self.config), soon)
            }
            ProfitState::Parked(ParkedPhase { since, until, next, why }) => {
                let left = until.saturating_sub(now.ksmd.at);
                let is_calm = now.ksmd.at.saturating_sub(*since) >= QUIET;
                let pause = if is_calm { CALM_WATCH } else { WATCH };
                let then = match next {
                    ScanReason::Probe if left.is_zero() => text::describe_idleness(changes, now.has_page_samples()),
                    reason => text::describe_next(*reason, left),
                };
                let soon = left.clamp(SOONEST_LOOK, pause);
                let told = why.clone().followed_by(then);
                let told = match now.page_samples {
                    Some(samples) => told.with_detail(samples.in_words()),
                    None => told,
                };
                (told, if left.is_zero() { pause } else { soon })
            }
            _ if now.processes.is_empty() => (ReasonSentences::plain("no process has mergeable memory"), WATCH),
            _ => (ReasonSentences::plain("new guests still fill their memory"), WATCH),
        };
        let settled = self.model.guests.settles_in().map_or(check_after, |time| time.max(SOONEST_LOOK));
        let check_after = check_after.min(settled);
        let reason = DecisionReason::from_sentences("parked", sentences);
        PolicyDecision::new(self.with_zero_pages(knobs, now), reason, check_after)
    }
}

impl Policy for ProfitPolicy {
    fn name(&self) -> &'static str {
        "profit"
    }

    fn wants_page_samples(&self) -> bool {
        true
    }

    fn wants_forecast(&self) -> bool {
        self.look.is_wanted()
    }

    fn decide(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
        let now = worth::price_scans(HostSituation::from_view(view), &self.config);
        self.cpu_use.record(now.ksmd.at, now.processes.iter().map(|process| (process.id, process.cpu_ticks)));
        let (forecast, account) = splits::forecast_of_merging(view.now, &self.cpu_use);
        let has_spent = self.allowance.follow(&now.ksmd);
        let plenty = self.shortage.follow(view.now, &self.config);
        let is_parked = !matches!(self.state, ProfitState::Scanning(_));
        let is_folded = self.folding.follow(is_parked, &now.ksmd) && self.config.after_init;
        let waits = plenty
            .or_else(|| is_folded.then_some(WaitReason::Folding))
            .or_else(|| splits::reason_to_wait(forecast, account, &now, &self.config))
            .or_else(|| has_spent.then_some(WaitReason::Spent));
        let now = HostSituation { waits, ..now };
        if now.ksmd.full_scans < self.full_scans && matches!(self.state, ProfitState::Parked(_)) {
            // Everything was unmerged, and ksmd has forgotten all pages.
            self.state = ProfitState::Forgotten;
            self.model.guests = GuestMarks::default();
        }
        let mut changes = self.model.follow(&now, self.config.after_init);
        self.full_scans = now.ksmd.full_scans;
        let mut scanned = None;
        if let ProfitState::Scanning(mut running) = self.state {
            let report = running.scan.observe(&now.ksmd);
            changes = self.count_ahead(&mut running, changes, &now);
            self.state = ProfitState::Scanning(running);
            scanned = Some((running, report));
        }
        let report = scanned.as_ref().map(|(_, report)| report);
        let begins_anew = report.is_some_and(|report| self.begins_anew(report, changes, &now));
        let event = MachineEvent::from_report(report, &now);
        let (state, model, config) = (&self.state, &self.model, &self.config);
        let action = Turn { state, event, report, begins_anew, changes, model, config, now: &now }.action();
        if let Some(decision) = self.look_first(action, forecast, changes, &now) {
            return decision;
        }
        self.carry_out(action, scanned, changes, &now)
    }
}

fn coverage(is_clean: bool, is_new_first: bool) -> ScanCoverage {
    match (is_clean, is_new_first) {
        (false, _) => ScanCoverage::Smart,
        (true, true) => ScanCoverage::NewThenAll,
        (true, false) => ScanCoverage::All,
    }
}
