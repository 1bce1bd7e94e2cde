//! A trial: a policy in charge of the simulated machine, as the daemon would have it, and what came of it.

mod balanced;
mod bound;
mod foreseen;
mod leased;

use std::time::Duration;

pub use balanced::{Balanced, Balancing};
pub use bound::Bound;
pub use foreseen::Foreseen;

use self::leased::Leased;
use crate::decide::{self, Limits, OnDemand, Policy, View};
use crate::guest_sketch::{self, SketchKeeper};
use crate::history::History;
use crate::knobs::Knobs;
use crate::page_sample::{PageSampler, Request};
use crate::reading::Reading;
use crate::sample::Rest;
use crate::sample::Sample;
use crate::scan::ScanJob;
use crate::sim::{Fleet, Machine, PAGE_SIZE, Place};

/// A policy in charge of a machine.
#[derive(Debug)]
pub struct Trial {
    /// The simulated machine. Guests may be started, changed and ended between two calls.
    pub machine: Machine,
    policy: Box<dyn Policy>,
    limits: Limits,
    history: History,
    /// Draws pages to read, where they may be read.
    sampler: Option<PageSampler>,
    places: Vec<Place>,
    /// Keeps sketches of guests once the policy wants them, where they may be read.
    sketches: Option<SketchKeeper>,
    next_turn: Duration,
    turns: u64,
    /// The state that the policy named last.
    state: &'static str,
    /// The lease that ksmd scans under, where that is simulated.
    lease: Option<Leased>,
    /// Whether ksmd can be had rest at the end of a pass.
    can_rest: bool,
    /// How short memory is for the balance policy.
    pool_shortness: f64,
    /// The scan that the balance policy has asked for. The policy waits for its end.
    scan: Option<OnDemand>,
}

/// Pages in a page sample.
const SAMPLED: usize = 512;

/// CPU-seconds of the daemon for a page that it reads for a sketch.
const FINGERPRINT_SECONDS: f64 = 0.7e-6;

/// The figures of one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// Time since the machine's boot.
    pub at: Duration,
    /// Memory that KSM's gauges count as saved, at most what is attainable, in bytes. They count pages that were written to, and
    /// ended guests, until ksmd's next visit.
    pub counted_bytes: u64,
    /// Memory that KSM saves, in bytes.
    pub saved_bytes: u64,
    /// Memory that KSM could save of what guests hold now, in bytes.
    pub attainable_bytes: u64,
    /// The CPU time of ksmd so far.
    pub ksmd_cpu: Duration,
    /// Complete passes of ksmd so far.
    pub passes: u64,
    /// Merged pages that were written to so far.
    pub breaks: u64,
    /// What the policy is doing, in one word.
    pub state: &'static str,
}

impl Trial {
    /// Puts `policy` in charge of `machine`.
    pub fn new(machine: Machine, policy: Box<dyn Policy>, limits: Limits) -> Self {
        let sampler = policy.wants_page_samples().then(PageSampler::default);
        let (history, places, next_turn) = (History::default(), Vec::new(), machine.now());
        Self {
            machine,
            policy,
            limits,
            history,
            sampler,
            places,
            sketches: Some(SketchKeeper::default()),
            next_turn,
            turns: 0,
            state: "",
            lease: None,
            can_rest: true,
            pool_shortness: 0.0,
            scan: None,
        }
    }

    /// Puts `policy` in charge of a fleet's machine, with memory in runs of `run_pages` pages.
    pub fn of_fleet(fleet: &Fleet, run_pages: u32, policy: Box<dyn Policy>, limits: Limits) -> Self {
        let mut machine = Machine::new(fleet.config(run_pages));
        fleet.plans().into_iter().for_each(|plan| machine.start(plan));
        Self::new(machine, policy, limits)
    }

    /// Has ksmd scan under a lease, as the daemon does it: ksmd is woken for each batch, or part of one, when it is seen asleep. That
    /// takes several times the time of a simulation without it.
    #[must_use]
    pub fn under_lease(mut self) -> Self {
        self.lease = Some(Leased::default());
        self
    }

    /// Has ksmd never rest at the end of a pass, as where nothing has it rest ([`Rest`]).
    #[must_use]
    pub fn without_rest(self) -> Self {
        Self { can_rest: false, ..self }
    }

    /// Notes how short memory is for the balance policy, which the policy's samples say from now on.
    pub fn note_pool_shortness(&mut self, shortness: f64) {
        self.pool_shortness = shortness;
    }

    /// Has ksmd make two clean passes at once, as the daemon does when a balance policy wants that. The policy goes on after them.
    pub fn merge_at_once(&mut self) {
        if self.scan.is_none() {
            self.scan = Some(OnDemand::new(ScanJob::all_pages(BALANCE_PASSES)));
            self.next_turn = self.machine.now();
        }
    }

    /// Keeps guests' memory from being read, as where the daemon may not read it.
    #[must_use]
    pub fn without_page_samples(mut self) -> Self {
        self.sampler = None;
        self.without_sketches()
    }

    /// Keeps no sketches of guests, as where an operator has switched them off.
    #[must_use]
    pub fn without_sketches(mut self) -> Self {
        self.sketches = None;
        self
    }

    /// CPU time of the daemon for sketches so far.
    pub fn sketches_cpu(&self) -> Duration {
        let seconds = self.sketches.as_ref().map_or(0.0, SketchKeeper::cpu_seconds);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// The policy in charge.
    pub fn policy(&self) -> &dyn Policy {
        self.policy.as_ref()
    }

    /// Turns that the policy has taken.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Lets the policy work until `end`. It is asked when it wanted to be.
    pub fn run_until(&mut self, end: Duration) {
        while self.machine.now() < end {
            if self.next_turn <= self.machine.now() {
                self.turn();
            }
            let look = self.lease.as_mut().and_then(|lease| lease.look(&mut self.machine));
            let until = look.map_or(end, |look| look.min(end)).min(self.next_turn);
            let leased_rest = self.lease.as_ref().map(Leased::rest);
            if leased_rest.unwrap_or(self.machine.rest()) == Rest::Resting {
                // The daemon is told.
                self.next_turn = self.machine.now();
                continue;
            }
            self.machine.advance_to_rest(until.saturating_sub(self.machine.now()));
        }
    }

    fn turn(&mut self) {
        let mut sample = self.machine.sample();
        if let Some(lease) = &self.lease {
            lease.show_decided(&mut sample.ksm);
            sample.rest = if self.can_rest { lease.rest() } else { Rest::Unavailable };
        }
        sample.pool_shortness = self.pool_shortness;
        self.take_page_samples(&mut sample);
        self.take_sketches(&mut sample);
        self.history.push(&sample);
        let view = View { now: &sample, history: &self.history, limits: &self.limits };
        let scanning = self.scan.as_mut().map(|scan| scan.decide(&view));
        let decision = match scanning {
            Some(decision) if ![OnDemand::DONE, OnDemand::STALLED].contains(&decision.reason.state) => decision,
            _ => {
                self.scan = None;
                decide::decide(self.policy.as_mut(), &view)
            }
        };
        let decision = self.limits.bound(decision, &self.history, &Knobs::current(&sample.ksm));
        // A refused setting is tried again at the next turn, as by the daemon.
        let due = decision.knobs.differing_from(&sample.ksm);
        let due = match &mut self.lease {
            Some(lease) => lease.apply(due, &sample.ksm, self.machine.now()),
            None => due,
        };
        let _ = self.machine.write_all(&due);
        match &mut self.lease {
            _ if !self.can_rest => {}
            Some(lease) => lease.rest_after(decision.rest_after, self.machine.now()),
            None => self.machine.rest_after(decision.rest_after),
        }
        self.next_turn = self.machine.now() + decision.check_after.max(SHORTEST);
        self.turns += 1;
        self.state = decision.reason.state;
    }

    fn take_page_samples(&mut self, sample: &mut Sample) {
        let Some(sampler) = &mut self.sampler else { return };
        let request = sampler.next(sample);
        if request == Request::Draw {
            self.places = self.machine.draw_places(SAMPLED);
        }
        let fingerprints = self.places.iter().map(|place| self.machine.print(*place));
        match request {
            Request::Nothing => {}
            Request::ReadPart(part) => {
                if sampler.read_part(part, part.of(fingerprints.clone()), sample.at) {
                    sampler.read(fingerprints, sample.at);
                }
            }
            Request::Read => sampler.read(fingerprints, sample.at),
            Request::Draw => sampler.drawn(fingerprints, sample.at),
        }
        sample.page_samples = sampler.page_samples().map_or(Reading::Absent, Reading::Value);
    }

    fn take_sketches(&mut self, sample: &mut Sample) {
        let Some(keeper) = self.sketches.as_mut().filter(|_| self.policy.wants_sketches()) else { return };
        keeper.follow(sample);
        loop {
            match keeper.next_request() {
                guest_sketch::Request::Nothing => break,
                guest_sketch::Request::Read(id) => {
                    let sketch = self.machine.sketch(id);
                    let cost = sketch.as_ref().map_or(0, |sketch| sketch.read) as f64 * FINGERPRINT_SECONDS;
                    keeper.read(id, sketch, cost);
                }
                guest_sketch::Request::Look(guests) => {
                    let count: usize = guests.iter().map(|(_, places)| places.len()).sum();
                    let look = |(id, places): &(_, Vec<u64>)| {
                        (*id, places.iter().map(|place| (*place, self.machine.read_page(*id, *place))).collect())
                    };
                    keeper.looked(&guests.iter().map(look).collect::<Vec<_>>(), count as f64 * FINGERPRINT_SECONDS);
                }
            }
        }
        sample.sketches = keeper.sketches();
    }

    /// The figures of this moment.
    pub fn moment(&self) -> Moment {
        let figures = self.machine.figures();
        let attainable = self.machine.attainable_pages();
        Moment {
            at: self.machine.now(),
            counted_bytes: figures.saved_pages.min(attainable) * PAGE_SIZE,
            saved_bytes: self.machine.truly_saved_pages() * PAGE_SIZE,
            attainable_bytes: attainable * PAGE_SIZE,
            ksmd_cpu: figures.ksmd_cpu,
            passes: figures.passes,
            breaks: figures.breaks,
            state: self.state,
        }
    }
}

/// Passes that a balance policy's wish to merge is: a page merges on its second visit.
const BALANCE_PASSES: u64 = 2;

/// The shortest time between two turns.
const SHORTEST: Duration = Duration::from_millis(1);

/// What came of a fleet's story under one policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The figures over time, at equal distances, from the start to the end.
    pub moments: Vec<Moment>,
    /// Turns that the policy took.
    pub turns: u64,
    /// CPU time of the daemon for sketches.
    pub sketches_cpu: Duration,
}

impl Outcome {
    /// Plays a fleet's story under `policy`, with memory in runs of `run_pages` pages. `watch` sees each moment and says whether to go on.
    pub fn of(
        fleet: &Fleet,
        run_pages: u32,
        policy: Box<dyn Policy>,
        limits: Limits,
        watch: impl FnMut(&Moment) -> bool,
    ) -> Self {
        Self::of_trial(fleet, Trial::of_fleet(fleet, run_pages, policy, limits), watch)
    }

    /// Plays a fleet's story on in a trial of it.
    pub fn of_trial(fleet: &Fleet, mut trial: Trial, mut watch: impl FnMut(&Moment) -> bool) -> Self {
        let mut moments = vec![trial.moment()];
        while trial.machine.now() < fleet.duration {
            let end = (trial.machine.now() + STEP).min(fleet.duration);
            trial.run_until(end);
            let moment = trial.moment();
            moments.push(moment);
            if !watch(&moment) {
                break;
            }
        }
        Self { moments, turns: trial.turns(), sketches_cpu: trial.sketches_cpu() }
    }

    fn integral(&self, bytes: impl Fn(&Moment) -> u64) -> f64 {
        let pieces = self.moments.windows(2);
        let areas = pieces.map(|pair| bytes(&pair[0]) as f64 * (pair[1].at - pair[0].at).as_secs_f64());
        areas.sum::<f64>() / (1 << 30) as f64
    }

    /// Saved memory over time, in GiB-s.
    pub fn gib_seconds(&self) -> f64 {
        self.integral(|moment| moment.saved_bytes)
    }

    /// Memory that could be saved over time, in GiB-s.
    pub fn attainable_gib_seconds(&self) -> f64 {
        self.integral(|moment| moment.attainable_bytes)
    }

    /// The part of what could be saved over time that KSM's gauges count as saved.
    pub fn counted_share(&self) -> f64 {
        self.integral(|moment| moment.counted_bytes) / self.attainable_gib_seconds().max(f64::MIN_POSITIVE)
    }

    /// The part of what could be saved over time that was saved.
    pub fn share(&self) -> f64 {
        self.gib_seconds() / self.attainable_gib_seconds().max(f64::MIN_POSITIVE)
    }

    /// The part of a CPU that ksmd used from `from` to the end.
    pub fn ksmd_share(&self, from: Duration) -> f64 {
        let start = self.moments.iter().find(|moment| moment.at >= from);
        let (Some(start), Some(end)) = (start, self.moments.last()) else { return 0.0 };
        let seconds = (end.at - start.at).as_secs_f64();
        (end.ksmd_cpu - start.ksmd_cpu).as_secs_f64() / seconds.max(f64::MIN_POSITIVE)
    }

    /// Complete passes of ksmd.
    pub fn passes(&self) -> u64 {
        self.passes_since(Duration::ZERO)
    }

    /// Complete passes of ksmd from `from` to the end.
    pub fn passes_since(&self, from: Duration) -> u64 {
        let start = self.moments.iter().find(|moment| moment.at >= from);
        start.zip(self.moments.last()).map_or(0, |(start, end)| end.passes - start.passes)
    }
}

/// Time between two moments.
const STEP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod sketch_tests;
#[cfg(test)]
mod tests;
