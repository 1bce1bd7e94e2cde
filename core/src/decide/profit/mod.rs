//! The policy of ksmith's own: ksmd works when, and only when, it pays.
//!
//! * **Burst** when memory that ksmd has never seen appears (a guest starts or grows): new memory is visited twice and
//!   old memory once, at the CPU budget; the last pass has `smart_scan` off, since smart scanning can keep equal
//!   pages apart for ever.
//!   What is new once the count of visits has begun is new still when it is over: a burst is finished by another, or by
//!   the next probe, until nobody has obtained a page since ksmd set out. Newcomers of which little has merged, beside about as
//!   much old memory, are looked at once more: the kernel may have missed what they share.
//! * **Park** then: `run` is 0, ksmd costs nothing, and what is merged stays merged.
//! * **Revisit** when the witnesses ([`crate::witness`]) have seen memory change and come to rest, and what that can
//!   bring is more than the price: contents that were merged before will merge again, of others about as many
//!   as elsewhere. How far to trust that is learned.
//! * **Tidy** when guests with merged pages have left: one cheap pass, for until ksmd comes by KSM keeps its
//!   metadata for them, and counts as saved what nobody uses any more.
//! * **Probe** now and then where memory changes and expectations are too low for a revisit. Probes that do not pay
//!   double the time to the next (those that bring next to nothing make it four times longer), those that do halve it.
//! * **Sustain**, without witnesses: `pages_volatile` after a clean pass tells how many pages changed between two looks;
//!   another look is made while what these may bring is more than the price.
//!
//! The price is in bytes newly saved per second of ksmd's CPU and falls as the host runs short of memory.

mod caution;
mod config;
mod errand;
mod expected;
mod guests;
#[cfg(test)]
mod late;
mod price;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod tests;
mod unfinished;

use std::time::Duration;

pub use config::ProfitConfig;

use self::caution::Caution;
use self::errand::Errand;
use self::expected::{Expected, breaks, is_for_pairs};
use self::guests::{Changes, Guests};
use super::duty::{self, Duty};
use super::round::{self, Boundary, Round, Sight};
use super::{Decision, Policy, Reason, View, ground};
use crate::knobs::{Knob, Knobs};
use crate::reading::Reading;
use crate::sample::Sample;
use crate::units::{Bytes, Span};

/// Clock ticks per second in /proc: `USER_HZ`, 100 on every architecture that KSM runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Guests that together use less of a CPU than this change nothing worth a look.
const IDLE_CPUS: f64 = 0.002;

/// How long a parked policy waits before it looks at the guests again.
const WATCH: Duration = Duration::from_secs(1);

/// The same once it has been parked for [`QUIET`].
const CALM_WATCH: Duration = Duration::from_secs(2);
const QUIET: Duration = Duration::from_secs(20);

/// How often ksmd is looked at while a pass is about to end.
const CLOSE: Duration = Duration::from_millis(20);

/// Pause before a further look: what was changing is given this long to come to rest.
const SETTLE: Duration = Duration::from_secs(2);

/// How far expectations of new memory are trusted at least.
const UNTRIED: f64 = 0.05;

/// How far expectations are trusted before anything was learned.
const AT_FIRST: f64 = 0.05;

#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
enum Phase {
    Scanning(Trip),
    Parked { since: Duration, until: Duration, next: Errand, why: String },
}

/// A round of ksmd and what it is for.
#[derive(Debug, Clone, Copy)]
struct Trip {
    errand: Errand,
    /// Whether every page is looked at; else `smart_scan` skips what did not merge before.
    clean: bool,
    /// Whether old memory is passed over until ksmd comes to the new.
    new_first: bool,
    /// Looks at every page that it takes.
    passes: u64,
    /// New memory that it is for, in bytes.
    new_bytes: u64,
    round: Round,
}

impl Trip {
    /// Whether it merges all that was there when it began.
    fn merges_all(&self) -> bool {
        self.clean && self.passes > 1
    }
}

/// See the module's documentation.
#[derive(Debug, Clone)]
pub struct Profit {
    config: ProfitConfig,
    phase: Option<Phase>,
    guests: Guests,
    /// How much growth is worth a burst.
    caution: Caution,
    duty: Duty,
    /// Where ksmd was left.
    boundary: Option<Boundary>,
    /// Time between probes.
    interval: Duration,
    /// How much of what a further look might bring it did bring, learned; from 0 to 1.
    trust: f64,
    /// How much of what the witnesses say that a revisit surely brings it did bring, learned; from 0 to 1.
    faith: f64,
    /// Merged pages that had been copied on write when ksmd last came by all of them: those copied since still
    /// count as saved.
    breaks: u64,
    /// What the further look in progress was expected to bring, in bytes.
    expected: Expected,
    /// Whether there may be memory that was not visited twice.
    is_unfinished: bool,
    /// New memory for whose sake old memory was not visited: it may yet be equal to that.
    unmet_bytes: u64,
    /// Ends of passes at the last sample.
    full_scans: u64,
}

impl Profit {
    /// The policy with these settings.
    pub fn new(config: ProfitConfig) -> Self {
        let interval = Duration::from_secs_f64(config.first_probe_seconds);
        Self {
            config,
            phase: None,
            guests: Guests::default(),
            caution: Caution::default(),
            duty: Duty::default(),
            boundary: None,
            interval,
            trust: AT_FIRST,
            faith: 1.0,
            breaks: 0,
            expected: Expected::default(),
            is_unfinished: false,
            unmet_bytes: 0,
            full_scans: 0,
        }
    }

    /// Growth that is worth a burst: `growth_mib`, or an eighth of what there is, where that is less.
    fn growth_bytes(&self, now: &Sample) -> u64 {
        let most = (self.config.growth_mib * f64::from(1 << 20)) as u64;
        most.min(guests::mergeable_bytes(now) / 8).max(now.page_size)
    }

    fn begin(&mut self, errand: Errand, changes: Changes, view: &View<'_>) -> Decision {
        let grown_pages = changes.grown_bytes / view.now.page_size.max(1);
        let clean = match errand {
            Errand::Burst => {
                self.caution.burst(changes);
                self.clean_burst_pays(changes.grown_bytes, view)
            }
            Errand::Finish | Errand::Retry | Errand::Revisit | Errand::Sustain | Errand::Probe => true,
            Errand::Tidy => false,
        };
        let aligned = Boundary::holds(self.boundary, view.now);
        // Old memory that nobody has counted the checksums of is all new.
        let new_first = matches!(errand, Errand::Burst | Errand::Finish) && self.phase.is_some();
        let passes = match errand {
            Errand::Revisit if self.one_look_does(view) => 1,
            // What witnesses have seen to change takes two looks; without them the first tells whether a second pays.
            Errand::Probe if self.has_new(changes) || view.now.witnesses.value().is_some() => 2,
            errand => errand.passes(),
        };
        self.expected = if errand == Errand::Sustain { self.expected } else { self.expected_from_revisit(view) };
        let round = Round::begin(passes, sight(clean, new_first), aligned, grown_pages, view.now)
            .needing_whole_pass(errand == Errand::Retry || errand == Errand::Revisit && is_for_pairs(view.now));
        let trip = Trip { errand, clean, new_first, passes, new_bytes: changes.grown_bytes, round };
        if passes > 1 {
            self.guests.mark(view.now);
        } else {
            self.guests.rest(view.now);
        }
        self.duty.reset();
        let why = match errand {
            Errand::Burst | Errand::Finish => growth_in_words(changes),
            Errand::Retry => "newcomers met few of the pages that they may have in common with others".to_owned(),
            Errand::Revisit | Errand::Sustain => {
                format!("expecting {} more", Bytes(self.expected.bytes(self.trust) as i128))
            }
            Errand::Tidy => format!("guests with {} merged pages have left", changes.left_pages),
            Errand::Probe if changes.grown_bytes > 0 => growth_in_words(changes),
            Errand::Probe => format!("guests were active for {}", Span(cpu_time(changes))),
        };
        self.phase = Some(Phase::Scanning(trip));
        self.scan(&trip, &why, view)
    }

    /// A clean burst visits old memory too. Even if all the new memory merged it would not bring more than
    /// the new memory, so where old memory is vast and new memory small a smart burst must do.
    fn clean_burst_pays(&self, grown_bytes: u64, view: &View<'_>) -> bool {
        grown_bytes.saturating_add(self.unmet_bytes) as f64 >= self.price_of_two_looks(view)
    }

    /// Bytes that two clean passes must save to pay.
    fn price_of_two_looks(&self, view: &View<'_>) -> f64 {
        two_looks_seconds(view) * price::price(&self.config, view.now)
    }

    fn scan(&mut self, trip: &Trip, why: &str, view: &View<'_>) -> Decision {
        let share = duty::share(self.config.busy_cpu_percent / 100.0, view);
        let approach = trip.round.approach(share, view);
        let knobs = match approach {
            Some(left) => self.duty.last_batch(left, view.limits),
            None => self.duty.knobs(share, view.now, view.history, view.limits),
        };
        let skips = trip.new_first && trip.round.may_skip(view.now);
        let clean = trip.clean && !skips;
        let knobs = knobs.with(Knob::AdvisorMode, 0).with(Knob::SmartScan, u64::from(!clean)).with(Knob::Run, 1);
        let kind = if clean { "every page" } else { "few old pages" };
        let text = format!("{why}; {kind}, up to {:.0} % of a CPU", share * 100.0);
        Decision {
            knobs: self.always(knobs, view.now),
            reason: Reason::new(trip.errand.state(), text),
            check_after: match approach {
                _ if skips && trip.clean => trip.round.skipping(share, view.now),
                // From when on it visits all is known only by seeing it set.
                _ if trip.clean && trip.round.skips(view.now) => CLOSE,
                Some(_) => CLOSE,
                None => trip.round.check_after(share, view),
            },
        }
    }

    /// Adds what holds in every state. From Linux 4.12 to 6.5 pages merged with the zero page are counted nowhere:
    /// nobody could say what they save.
    fn always(&self, knobs: Knobs, now: &Sample) -> Knobs {
        match now.ksm.ksm_zero_pages {
            Reading::Absent => knobs,
            _ => knobs.with(Knob::UseZeroPages, u64::from(self.config.zero_pages)),
        }
    }

    /// Judges a round that has ended, and parks, for a short while if a further look is expected to pay.
    fn settle(&mut self, trip: &Trip, changes: Changes, view: &View<'_>) -> Decision {
        self.boundary = trip.round.boundary();
        let outcome = trip.round.outcome(view);
        let price = price::price(&self.config, view.now);
        let was_seen = trip.errand == Errand::Probe && view.now.witnesses.value().is_some();
        let worth = if was_seen { self.expected.worth_of_each() } else { 1.0 };
        let paid = outcome.yield_per_cpu_second() * worth >= price;
        // After one look only, what is new has not had its chance.
        let had_its_chance = trip.passes > 1 || view.now.witnesses.value().is_none();
        if (matches!(trip.errand, Errand::Revisit | Errand::Sustain) || was_seen) && had_its_chance {
            self.learn(&outcome, view);
        }
        // Where a round ends midway nobody has looked at the witnesses since the last end of a pass.
        if matches!(trip.errand, Errand::Revisit | Errand::Probe) && !trip.round.ends_midway(view.now) {
            self.learn_faith(view.now);
        }
        if trip.clean {
            self.breaks = breaks(view.now);
        }
        let has_missed = self.may_have_missed(trip, &outcome, paid, changes, view);
        let awaited = self.note_unfinished(trip, paid, changes, view);
        match trip.errand {
            Errand::Burst => {
                self.caution.learn(paid);
                self.interval = self.first_interval();
                // New memory has yet to show whether it comes to rest.
                self.trust = self.trust.max(UNTRIED);
            }
            Errand::Finish | Errand::Retry | Errand::Revisit | Errand::Sustain | Errand::Tidy => {}
            Errand::Probe if paid => self.interval = (self.interval / 2).max(self.first_interval()),
            Errand::Probe => {
                let brought_next_to_nothing = outcome.yield_per_cpu_second() < price / 8.0;
                let longer = self.interval.saturating_mul(if brought_next_to_nothing { 4 } else { 2 });
                self.interval = longer.min(self.longest_interval());
            }
        }
        let figures = format!(
            "{} saved {} in {:.2} CPU-s ({})",
            trip.errand.state(),
            Bytes::from(outcome.saved_bytes),
            outcome.cpu_seconds,
            rate_in_words(outcome.yield_per_cpu_second(), price),
        );
        if trip.errand == Errand::Burst && awaited > 0 && self.clean_burst_pays(awaited, view) {
            return self.park(Errand::Finish, SETTLE, figures, view);
        }
        if has_missed {
            return self.park(Errand::Retry, SETTLE, figures, view);
        }
        let cost = round::clean_pass_seconds(view.now, view.history);
        if view.now.witnesses.value().is_none() {
            self.expected = self.expected_from_another_look(view);
            if trip.clean && self.expected.bytes(self.trust) >= (cost * price).max(view.now.page_size as f64) {
                return self.park(Errand::Sustain, SETTLE, figures, view);
            }
        }
        // Probes may cost no more than their part of a CPU on average.
        let affordable = cost / (self.config.probe_cpu_percent / 100.0);
        let affordable = Duration::try_from_secs_f64(affordable).unwrap_or(Duration::MAX);
        self.interval = self.interval.max(affordable).min(self.longest_interval());
        self.park(Errand::Probe, self.interval, figures, view)
    }

    fn park(&mut self, next: Errand, wait: Duration, why: String, view: &View<'_>) -> Decision {
        self.guests.rest(view.now);
        self.duty.reset();
        let since = view.now.at;
        self.phase = Some(Phase::Parked { since, until: since.saturating_add(wait), next, why });
        self.watch(Changes::default(), view)
    }

    /// The decision of a parked policy that stays parked.
    fn watch(&self, changes: Changes, view: &View<'_>) -> Decision {
        let knobs = Knobs::none().with(Knob::AdvisorMode, 0).with(Knob::Run, 0);
        let knobs = self.always(knobs, view.now);
        let (text, check_after) = match &self.phase {
            Some(Phase::Parked { since, until, next, why }) => {
                let left = until.saturating_sub(view.now.at);
                let is_calm = view.now.at.saturating_sub(*since) >= QUIET;
                let pause = if is_calm { CALM_WATCH } else { WATCH };
                let then = match next {
                    _ if let Some(seen) = view.now.witnesses.value() => seen.in_words(),
                    Errand::Probe if left.is_zero() => format!(
                        "the guests are idle ({} of CPU since); a probe when they are not",
                        Span(cpu_time(changes))
                    ),
                    errand => format!("next {} in {}", errand.state(), Span(left)),
                };
                let soon = left.clamp(Duration::from_millis(50), pause);
                (format!("{why}; {then}"), if left.is_zero() { pause } else { soon })
            }
            _ => ("no process has mergeable memory".to_owned(), WATCH),
        };
        Decision { knobs, reason: Reason::new("parked", text), check_after }
    }

    /// Whether the guests did enough since `since` to have changed memory worth looking at: computed, or obtained or
    /// copied pages.
    fn is_active(&self, changes: Changes, now: &Sample, since: Duration) -> bool {
        let elapsed = now.at.saturating_sub(since).as_secs_f64();
        if let Some(witnesses) = now.witnesses.value() {
            return witnesses.rested > 0;
        }
        let computed = changes.cpu_ticks as f64 / TICKS_PER_SECOND >= IDLE_CPUS * elapsed;
        computed || changes.faults.saturating_mul(now.page_size) >= self.growth_bytes(now)
    }

    fn first_interval(&self) -> Duration {
        Duration::from_secs_f64(self.config.first_probe_seconds)
    }

    fn longest_interval(&self) -> Duration {
        Duration::from_secs_f64(self.config.longest_probe_seconds).max(self.first_interval())
    }
}

impl Policy for Profit {
    fn name(&self) -> &'static str {
        "profit"
    }

    fn wants_witnesses(&self) -> bool {
        true
    }

    fn decide(&mut self, view: &View<'_>) -> Decision {
        if let Some(reason) = ground::unusable(&view.now.ksm) {
            return Decision { knobs: Knobs::none(), reason, check_after: WATCH };
        }
        self.guests.follow(view.now);
        let full_scans = view.now.ksm.full_scans.get().unwrap_or(0);
        if full_scans < self.full_scans && matches!(self.phase, Some(Phase::Parked { .. })) {
            // Somebody has unmerged everything, and ksmd has forgotten all it knew.
            self.phase = None;
        }
        self.full_scans = full_scans;
        let changes = self.guests.changes(view.now);
        let has_grown = self.caution.is_worth_it(changes, self.growth_bytes(view.now), view.now);
        let has_guests = guests::mergeable(view.now).next().is_some();
        if !has_guests && view.now.ksm.tracked_pages() == 0 {
            self.phase = None;
            return self.watch(changes, view);
        }
        match self.phase.clone() {
            None if !has_guests => self.begin(Errand::Tidy, changes, view),
            None => self.begin(Errand::Burst, changes, view),
            Some(Phase::Scanning(mut trip)) => {
                trip.round.look(view.now);
                if trip.errand == Errand::Burst && trip.clean {
                    trip.round.may_end_early(few_pages(&self.config, view), view.now);
                }
                // Guests that are still filling their memory would else be left half merged: pages that came after
                // the count began have been visited once at most.
                let is_done = trip.round.is_done(view.now);
                let is_filling = is_done && changes.grown_bytes >= guests::mergeable_bytes(view.now) / 32;
                let is_new = (has_grown || is_filling && changes.grown_bytes > 0)
                    && self.caution.lets_go_on(
                        changes,
                        &trip.round.outcome(view),
                        pass_seconds_once_known(view),
                        price::price(&self.config, view.now),
                    );
                if is_new || trip.round.is_lost(view.now) {
                    trip.errand = Errand::Burst;
                    self.caution.burst(changes);
                    trip.clean |= self.clean_burst_pays(changes.grown_bytes, view);
                    let grown_pages = changes.grown_bytes / view.now.page_size.max(1);
                    trip.passes = trip.errand.passes();
                    trip.new_bytes = trip.new_bytes.saturating_add(changes.grown_bytes);
                    trip.round.extend(trip.passes, sight(trip.clean, trip.new_first), grown_pages, view.now);
                    self.guests.mark(view.now);
                    self.phase = Some(Phase::Scanning(trip));
                    return self.scan(&trip, &growth_in_words(changes), view);
                }
                if is_done {
                    return self.settle(&trip, changes, view);
                }
                if trip.round.is_stalled(view.now) {
                    self.interval = (self.interval * 2).min(self.longest_interval());
                    let why = "ksmd found nothing to scan".to_owned();
                    // Perhaps something kept it from it.
                    self.is_unfinished = true;
                    self.guests.mark(view.now);
                    return self.park(Errand::Probe, self.interval, why, view);
                }
                self.phase = Some(Phase::Scanning(trip));
                self.scan(&trip, &trip.round.outcome(view).so_far(), view)
            }
            Some(Phase::Parked { since, until, next, .. }) => {
                if has_grown {
                    return self.begin(Errand::Burst, changes, view);
                }
                let left_bytes = changes.left_pages.saturating_mul(view.now.page_size);
                if left_bytes >= self.growth_bytes(view.now) {
                    return self.begin(Errand::Tidy, changes, view);
                }
                if self.revisit_pays(view) {
                    return self.begin(Errand::Revisit, changes, view);
                }
                let is_due = view.now.at >= until;
                let is_sure = matches!(next, Errand::Finish | Errand::Retry | Errand::Sustain)
                    || self.has_new(changes) && view.now.at.saturating_sub(since) >= self.patience(view);
                if is_due && (is_sure || self.is_active(changes, view.now, since)) {
                    return self.begin(next, changes, view);
                }
                self.watch(changes, view)
            }
        }
    }
}

/// CPU-seconds that a clean pass will cost once ksmd knows all that the processes hold by now.
fn pass_seconds_once_known(view: &View<'_>) -> f64 {
    let (held, page_size) = (guests::mergeable_bytes(view.now), view.now.page_size.max(1));
    let known = view.now.ksm.tracked_pages().max(1) as f64;
    round::clean_pass_seconds(view.now, view.history) * ((held / page_size) as f64 / known).max(1.0)
}

/// CPU-seconds that two clean passes cost.
fn two_looks_seconds(view: &View<'_>) -> f64 {
    2.0 * round::clean_pass_seconds(view.now, view.history)
}

/// Pages so few that a pass which saves no more does not pay.
fn few_pages(config: &ProfitConfig, view: &View<'_>) -> u64 {
    let cost = round::clean_pass_seconds(view.now, view.history) * price::price(config, view.now);
    cost as u64 / view.now.page_size.max(1)
}

fn sight(clean: bool, new_first: bool) -> Sight {
    match (clean, new_first) {
        (false, _) => Sight::Smart,
        (true, true) => Sight::CleanInTheEnd,
        (true, false) => Sight::Clean,
    }
}

fn cpu_time(changes: Changes) -> Duration {
    Duration::from_secs_f64(changes.cpu_ticks as f64 / TICKS_PER_SECOND)
}

fn growth_in_words(changes: Changes) -> String {
    match changes.newcomers {
        0 => format!("{} of new memory", Bytes::from(changes.grown_bytes)),
        1 => format!("{} of new memory, one new process", Bytes::from(changes.grown_bytes)),
        n => format!("{} of new memory, {n} new processes", Bytes::from(changes.grown_bytes)),
    }
}

fn rate_in_words(rate: f64, price: f64) -> String {
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    format!("{:.1} MiB/CPU-s, price {:.1}", mib(rate), mib(price))
}
