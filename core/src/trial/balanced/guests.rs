//! The guests of a host: when they come and go, and what each does with its memory.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::mirror::{PageMirror, plan_bytes};
use crate::balance::sim::{DemandPhase, SimGuest};
use crate::balance::{BalanceConfig, GuestView, ResizeBackoff};
use crate::sim::{GuestDemand, GuestPlan, PAGE_SIZE, SimGuestId, SimMachine};

/// One guest that runs.
#[derive(Debug)]
struct RunningGuest {
    id: SimGuestId,
    stops: Option<Duration>,
    whole_bytes: u64,
    kernel: SimGuest,
    mirror: PageMirror,
}

/// All guests, those to come included.
#[derive(Debug)]
pub(super) struct FleetGuests {
    /// In the order of their starts.
    waiting: VecDeque<(GuestPlan, GuestDemand)>,
    /// By key.
    running: BTreeMap<String, RunningGuest>,
    run_bytes: u64,
    /// The end of the story.
    duration: Duration,
    started: usize,
    /// Refaults, waits and kills of guests that have ended.
    ended: (u64, Duration, u64),
}

impl FleetGuests {
    pub fn new(mut guests: Vec<(GuestPlan, GuestDemand)>, run_bytes: u64, duration: Duration) -> Self {
        guests.sort_by_key(|(plan, _)| plan.starts());
        Self {
            waiting: guests.into(),
            running: BTreeMap::new(),
            run_bytes,
            duration,
            started: 0,
            ended: (0, Duration::ZERO, 0),
        }
    }

    /// Ends and starts guests that are due, and lets the others live for `span`.
    pub fn live(&mut self, machine: &mut SimMachine, now: Duration, span: Duration) {
        let ended = &mut self.ended;
        self.running.retain(|_, guest| {
            let stays = guest.stops.is_none_or(|stops| stops > now);
            if !stays {
                let kernel = &guest.kernel;
                *ended = (ended.0 + kernel.refaults(), ended.1 + kernel.waited(), ended.2 + kernel.oom_kills());
            }
            stays
        });
        if !span.is_zero() {
            for guest in self.running.values_mut() {
                guest.kernel.live(now, span);
                guest.mirror.follow(machine, guest.kernel.uses());
            }
        }
        while self.waiting.front().is_some_and(|(plan, _)| plan.starts() <= now)
            && let Some((plan, demand)) = self.waiting.pop_front()
        {
            self.start(machine, now, &plan, &demand);
        }
    }

    fn start(&mut self, machine: &mut SimMachine, now: Duration, plan: &GuestPlan, demand: &GuestDemand) {
        let id = machine.start_now(plan);
        let pinned = plan_bytes(plan.pages());
        self.started += 1;
        let key = format!("{:07}", self.started);
        let config = BalanceConfig::default();
        let class = config.terms(plan.name(), None, true).class;
        let mut kernel =
            SimGuest::new(&key, class, demand.whole_bytes, phases(demand, now, self.duration)).with_kernel(pinned);
        // What the plan has is there from the first moment on.
        kernel.live(now, Duration::from_nanos(1));
        let mut mirror = PageMirror::new(machine, id, demand, pinned, self.run_bytes);
        mirror.follow(machine, kernel.uses());
        let running = RunningGuest { id, stops: plan.stops(), whole_bytes: demand.whole_bytes, kernel, mirror };
        self.running.insert(key, running);
    }

    /// Returns the guests as a balance policy may see them, in the order of their keys.
    pub fn views(
        &mut self,
        machine: &SimMachine,
        now: Duration,
        config: &BalanceConfig,
        backoff: &ResizeBackoff,
    ) -> Vec<GuestView> {
        let views = self.running.iter_mut().filter_map(|(key, guest)| {
            guest.kernel.note_merged(machine.merged_pages(guest.id) * PAGE_SIZE);
            let terms = config.terms(key, None, true);
            let view = guest.kernel.view(now)?;
            Some(GuestView { class: terms.class, trouble: backoff.trouble(key, now), ..view })
        });
        views.collect()
    }

    /// Resizes a guest, and returns what it has then.
    pub fn resize(&mut self, machine: &mut SimMachine, key: &str, to_bytes: u64) -> Option<u64> {
        let guest = self.running.get_mut(key)?;
        let got = guest.kernel.resize(to_bytes);
        guest.mirror.follow(machine, guest.kernel.uses());
        Some(got)
    }

    /// Returns the memory that guests lack of what they were started with, in bytes.
    pub fn away_bytes(&self) -> u64 {
        self.running
            .values()
            .map(|guest| guest.whole_bytes - guest.kernel.uses().given.min(guest.whole_bytes))
            .sum()
    }

    /// Pages that guests read back from disk so far.
    pub fn refaults(&self) -> u64 {
        self.ended.0 + self.running.values().map(|guest| guest.kernel.refaults()).sum::<u64>()
    }

    /// The time that guests' tasks waited for those pages.
    pub fn waited(&self) -> Duration {
        self.ended.1 + self.running.values().map(|guest| guest.kernel.waited()).sum::<Duration>()
    }

    /// Programs that guests' own kernels killed so far.
    pub fn kills(&self) -> u64 {
        self.ended.2 + self.running.values().map(|guest| guest.kernel.oom_kills()).sum::<u64>()
    }

    #[cfg(test)]
    pub fn each(&self) -> impl Iterator<Item = (&str, &SimGuest, u64)> {
        self.running.iter().map(|(key, guest)| (key.as_str(), &guest.kernel, guest.mirror.present_bytes()))
    }
}

/// The phases of a guest from `start` to `end`.
fn phases(demand: &GuestDemand, start: Duration, end: Duration) -> Vec<DemandPhase> {
    let files = demand.image_files_bytes + demand.own_files_bytes;
    let reads_until = start + demand.files_over;
    let per_second = |bytes: u64, over: Duration| (bytes as f64 / over.as_secs_f64().max(1.0)) as u64;
    let growth = per_second(demand.bursting_bytes, demand.burst_within);
    let phase = |from: Duration, bursts: bool| {
        let programs = if bursts { demand.bursting_bytes } else { 0 };
        let reads = if from < reads_until { per_second(files, demand.files_over) } else { 0 };
        let phase = DemandPhase { from, ..DemandPhase::idle(programs).growing(growth).reading(reads) };
        if demand.hot_bytes > 0 { phase.with_hot(demand.hot_bytes, demand.hot_every) } else { phase }
    };
    let mut phases = vec![phase(start, false)];
    let mut moments = vec![(reads_until, None)];
    if demand.bursting_bytes > 0 && !demand.burst_every.is_zero() {
        let mut from = start + demand.burst_from;
        while from < end {
            moments.extend([(from, Some(true)), (from + demand.burst_for, Some(false))]);
            from += demand.burst_every.max(demand.burst_for);
        }
        moments.sort_by_key(|(at, _)| *at);
    }
    let mut bursts = false;
    for (at, change) in moments {
        bursts = change.unwrap_or(bursts);
        phases.push(phase(at, bursts));
    }
    phases
}
