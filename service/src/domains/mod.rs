//! The guard of the trust domains on the live host: it has guests of other domains switched off, and keeps ksmd parked
//! as long as such a guest, or an unknown one, may merge.
//!
//! The decision is [`ksmith_core::decide::domains`]; here are the looks that it needs and the switches it orders. The
//! guard names guests by the newest snapshot of the registry and never waits for it: a process that is not in the
//! snapshot counts as outside.

mod hidden_marks;
mod lookups;
mod nodes;
mod remaining;
mod sharing;
mod switch_off;
mod switcher;
mod unknown;
mod view;

use std::collections::BTreeSet;
use std::time::Duration;

use ksmith_core::decide::PolicyDecision;
use ksmith_core::decide::domains::{
    DomainsConfig, GUARD_LOOK, GUARDED, GuardRuling, PassBudget, TrustDomainGuard, paced, parked,
};
use ksmith_core::guest::{Guest, GuestId, SwitchOffReason};
use ksmith_core::sample::{GivenUp, Sample};
use ksmith_core::units::TimeSpan;
use tracing::{debug, info, warn};

pub use self::sharing::{SharingError, sharing};
pub use self::switch_off::switch_on_again;

use self::switcher::SwitchOutcome;
use self::unknown::UnknownSearch;
use self::view::GuestViews;
use crate::decision_rate::DecisionRate;
use ksmith_host::guests::{GuestRequests, GuestSnapshot, GuestTarget, OffList};
use ksmith_host::root::Root;
use ksmith_host::undo::UndoError;

/// The interval between two looks while ksmd is parked and a guest is being switched off.
const SOON: Duration = Duration::from_millis(100);

/// The most threads that switch guests at the same time.
pub const MOST_THREADS: usize = switcher::LIMITS.threads;

/// Guards the domains of one host.
#[derive(Debug)]
pub struct DomainGuard {
    domains: TrustDomainGuard,
    budget: Option<PassBudget>,
    switcher: GuestRequests<SwitchOutcome>,
    /// The list, on disk, of guests that were switched off.
    off: Option<OffList>,
    views: GuestViews,
    search: UnknownSearch,
    /// The reason that ksmd was parked at the last look, if it was.
    parked: Option<String>,
    /// Processes that ksmd tracks and that the observer has not found yet.
    unknown: Vec<u32>,
    /// Guests that were switched since the last call of `take_switched`, by PID, and true if on.
    switched: Vec<(u32, bool)>,
    logged: DecisionRate,
}

impl DomainGuard {
    /// Creates a guard with this configuration. It takes over the guests that an earlier guard switched off.
    pub fn new(root: Root, config: DomainsConfig, off: Option<OffList>) -> Self {
        let mut domains = TrustDomainGuard::new(config.clone());
        for guest in off.iter().flat_map(|off| off.listed(SwitchOffReason::Domain)) {
            domains.adopt(guest.process.into());
        }
        note_on_exit(off.as_ref(), &config);
        Self {
            off,
            domains,
            budget: config.max_passes_per_hour.map(PassBudget::new),
            switcher: GuestRequests::new(&root, "switch", switcher::LIMITS),
            views: GuestViews::new(&root),
            search: UnknownSearch::new(&root),
            parked: None,
            unknown: Vec::new(),
            switched: Vec::new(),
            logged: DecisionRate::default(),
        }
    }

    /// Replaces the configuration.
    pub fn configure(&mut self, config: DomainsConfig) {
        if config.max_passes_per_hour != self.domains.config().max_passes_per_hour {
            self.budget = config.max_passes_per_hour.map(PassBudget::new);
        }
        note_on_exit(self.off.as_ref(), &config);
        self.domains.configure(config);
    }

    /// Returns true if there is anything to guard.
    pub fn is_on_guard(&self) -> bool {
        self.domains.config().is_enforced() || self.budget.is_some()
    }

    /// Returns the domain that may merge, in mode `one`.
    pub fn admitted(&self) -> Option<&str> {
        self.domains.admitted()
    }

    /// Returns the reason that ksmd was parked at the last look; `None` if it was not.
    pub fn parked(&self) -> Option<&str> {
        self.parked.as_deref()
    }

    /// Returns the processes that the observer should look at without delay.
    pub fn take_unknown(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unknown)
    }

    /// Returns the guests that were switched since the last call, by PID, and true if on: for the registry.
    pub fn take_switched(&mut self) -> Vec<(u32, bool)> {
        std::mem::take(&mut self.switched)
    }

    /// Restricts the policy's decision to what the domains allow, and has guests switched.
    pub fn guard(&mut self, sample: &Sample, known: &GuestSnapshot, decision: PolicyDecision) -> PolicyDecision {
        if !self.is_on_guard() {
            return decision;
        }
        let ruling =
            if self.domains.config().is_enforced() { self.rule(sample, known) } else { GuardRuling::default() };
        let wait =
            self.budget.as_mut().and_then(|budget| budget.record_passes(sample.at, sample.ksm.full_scans.get()));
        let why = ruling.park.map(|why| (GUARDED, why, SOON));
        let why = why.or_else(|| {
            let wait = wait?;
            let why = format!("max_passes_per_hour is reached; the next pass may begin in {}", TimeSpan(wait));
            Some(("metered", why, wait))
        });
        let decision = paced(decision);
        let before = self.parked.take();
        match why {
            None => decision,
            Some((state, why, again)) => {
                if before.as_ref() != Some(&why) && state == GUARDED {
                    // A process may change its name, and whether it may merge, between any two looks.
                    match self.logged.admit(sample.at) {
                        Some(_) => info!("ksmd is kept parked: {why}"),
                        None => debug!("ksmd is kept parked: {why}"),
                    }
                }
                self.parked = Some(why.clone());
                let again = again.max(SOON);
                parked(PolicyDecision { check_after: again, ..decision }, state, why, again)
            }
        }
    }

    fn rule(&mut self, sample: &Sample, known: &GuestSnapshot) -> GuardRuling {
        self.take_in_switches(sample.at);
        let guests = known.name(sample).guests;
        let views = self.views.build_views(sample, &guests, known, &self.domains);
        let across = sample.ksm.merge_across_nodes.get();
        let mut ruling = self.domains.rule(sample.at, &views, sample.hidden_processes, across);
        // ksmd is parked then, and a user may have thousands of processes to search.
        let is_parked_anyway = sample.given_up.unknown > 0;
        let unknown = if is_parked_anyway { Some(Vec::new()) } else { self.search.find_unknown(sample) };
        if unknown.is_none() {
            ruling.park.get_or_insert("processes that offered nothing are being asked again".to_owned());
        }
        self.unknown = unknown.unwrap_or_default();
        if is_parked_anyway {
            let first = sample.given_up.named.first().map(GivenUp::to_string).unwrap_or_default();
            ruling.park.get_or_insert(format!(
                "{} processes may merge, or do not show whether they may: {first}",
                sample.given_up.unknown
            ));
        }
        if let Some(pid) = self.unknown.first() {
            let more = format!("process {pid} offers memory to KSM and is not known yet");
            ruling.park.get_or_insert(more);
        }
        // A guest that was pruned and is outside must not be switched on when pruning ends.
        let outside: Vec<_> = ruling.outside.iter().map(|id| id.process()).collect();
        let on_exit = self.domains.config().on_exit;
        for process in self.update_off_list(|off| off.claim(&outside, on_exit)).unwrap_or_default() {
            self.domains.adopt(process.into());
        }
        self.order(&ruling.off, false, sample.at, &guests, known);
        self.order(&ruling.on, true, sample.at, &guests, known);
        ruling
    }

    /// Handles the outcomes of the switches that were ordered.
    fn take_in_switches(&mut self, now: Duration) {
        let mut on_again = BTreeSet::new();
        let mut failures = 0;
        while let Some(done) = self.switcher.take_outcome() {
            match &done.result {
                Ok(()) => info!("merging of {} switched {}", done.name, if done.on { "on" } else { "off" }),
                // Any user may have many such guests.
                Err(why) => {
                    failures += 1;
                    if failures == 1 { warn!("{why}") } else { debug!("{why}") }
                }
            }
            self.views.forget(done.id);
            if done.result.is_ok() {
                self.switched.push((done.id.pid(), done.on));
                if done.on {
                    on_again.insert(done.id.process());
                }
            }
            self.domains.record_outcome(done.id, now, done.result.err().map(|why| why.to_string()));
        }
        if failures > 1 {
            warn!("{} more guests could not be switched", failures - 1);
        }
        self.update_off_list(|off| off.remove_processes(&on_again));
    }

    /// Orders guests switched. Those that are switched off are noted before. If that fails none is, and ksmd stays
    /// parked, since no ksmith would switch them on again.
    fn order(&mut self, ids: &[GuestId], on: bool, now: Duration, guests: &[Guest], known: &GuestSnapshot) {
        let mut targets = Vec::new();
        for id in ids {
            let target = guests.iter().find(|guest| guest.id() == *id).and_then(|guest| known.target(guest));
            let Some(target) = target else {
                self.domains.record_outcome(*id, now, Some("its process is not known yet".to_owned()));
                continue;
            };
            // Any user may have many such guests, which need no note.
            if !on && let Err(why) = target.check(false) {
                self.domains.record_outcome(*id, now, Some(why.to_string()));
                continue;
            }
            targets.push(target);
        }
        if !on && let Err(why) = self.note_outside(&targets) {
            let sentence =
                |name: &str| format!("{name} is not switched off, because that could not be recorded: {why}");
            if let Some(first) = targets.first() {
                warn!("{} ({} guests)", sentence(&first.name), targets.len());
            }
            targets
                .drain(..)
                .for_each(|target| self.domains.record_outcome(target.id, now, Some(sentence(&target.name))));
        }
        for target in targets {
            switcher::order(&mut self.switcher, target, on);
        }
    }

    /// Notes guests that are about to be switched off.
    fn note_outside(&self, targets: &[GuestTarget]) -> Result<(), UndoError> {
        let on_exit = self.domains.config().on_exit;
        self.off.as_ref().ok_or(UndoError::NoList)?.note_outside(targets, on_exit)
    }

    /// Applies a change to the list of switched-off guests, if there is one, and logs its error.
    fn update_off_list<T>(&self, change: impl FnOnce(&OffList) -> Result<T, UndoError>) -> Option<T> {
        change(self.off.as_ref()?).inspect_err(|error| warn!("{error}")).ok()
    }

    /// Returns the longest time between two looks.
    pub fn longest_wait(&self) -> Duration {
        if self.is_on_guard() { GUARD_LOOK * 8 } else { Duration::MAX }
    }
}

/// Notes the fate of the guests on the list after the daemon's end.
fn note_on_exit(off: Option<&OffList>, config: &DomainsConfig) {
    if let Some(Err(error)) = off.map(|off| off.set_on_exit(config.on_exit)) {
        warn!("{error}");
    }
}

#[cfg(test)]
mod tests;
