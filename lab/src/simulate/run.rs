//! One story under one competitor.

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::decide::{Policy, PolicyLimits};
use ksmith_core::sim::{HUGE_PAGE_BYTES, PAGE_SIZE, SimConfig, SimGuestId, SimMachine};
use ksmith_core::trial::{BalancedGuests, BalancingRecord, PolicyTrial, SimHost};

use super::SimulatedHost;
use super::balance::SimulatedBalance;
use super::filling::MemoryWriters;
use super::story::{SimulationStory, StoryGuests};
use crate::measure::{AttainableStep, RunCounts, RunSeries, SeriesPoint, TruthPoint};
use crate::play::PassTracker;
use crate::results::RawRun;
use crate::scenario::TimelineAction;

/// Time between two samples of a run, as in the lab; longer in a long story.
const SAMPLE: Duration = Duration::from_millis(200);

/// Samples of a run at most.
const MOST_SAMPLES: u32 = 7200;

/// The control of ksmd in a run: a policy, or none, which leaves KSM off.
#[derive(Debug)]
enum RunControl {
    Policy(Box<PolicyTrial>),
    Nothing(Box<SimMachine>),
}

impl RunControl {
    fn machine(&mut self) -> &mut SimMachine {
        match self {
            Self::Policy(trial) => trial.machine_mut(),
            Self::Nothing(machine) => machine,
        }
    }

    /// Advances the guests' memory and their balance policy by a step.
    fn balance(&mut self, balanced: &mut BalancedGuests) {
        balanced.step(self.machine());
        if let Self::Policy(trial) = self {
            trial.host_mut().set_pool_shortness(balanced.shortness());
            if balanced.take_wish_to_merge() {
                trial.merge_at_once();
            }
        }
    }

    fn run_until(&mut self, at: Duration) {
        match self {
            Self::Policy(trial) => trial.run_until(at),
            Self::Nothing(machine) => machine.advance(at.saturating_sub(machine.now())),
        }
    }
}

/// The guests of a fleet with memory that comes and goes, where there is such memory or a balance policy.
fn balanced(story: &SimulationStory, run_pages: u32, balance: Option<&SimulatedBalance>) -> Option<BalancedGuests> {
    let SimulationStory::Planned { guests, has_demands, duration, .. } = story else { return None };
    let config = balance.and_then(|balance| balance.config.clone());
    let is_balanced = *has_demands || balance.is_some();
    is_balanced.then(|| BalancedGuests::new(guests.clone(), run_pages, config, *duration))
}

/// Plays a story, and returns the observations. `advance` receives each step of simulated time.
pub(crate) fn run(
    story: &SimulationStory,
    host: &SimulatedHost,
    policy: Option<(Box<dyn Policy>, PolicyLimits)>,
    balance: Option<&SimulatedBalance>,
    advance: &dyn Fn(Duration),
) -> RawRun {
    let run_pages = story.run_pages(host);
    let of_host = SimConfig {
        total_bytes: host.bytes,
        ksmd_before_ns: host.ksmd_before_ns,
        ksmd_share_permille: host.ksmd_share_permille,
        run_pages,
        ..SimConfig::default()
    };
    let config = match story {
        SimulationStory::Scenario(_) => of_host,
        SimulationStory::Planned { host_bytes, night_permille, .. } => {
            SimConfig { total_bytes: *host_bytes, night_permille: *night_permille, ..of_host }
        }
    };
    let cpus = config.cpus;
    let mut machine = SimMachine::new(SimConfig { kernel: host.kernel, costs: host.costs, ..config });
    let mut balanced = balanced(story, run_pages, balance);
    let (cast, actions): (Option<StoryGuests>, &[TimelineAction]) = match story {
        SimulationStory::Scenario(scenario) => (Some(StoryGuests::from_scenario(scenario)), &scenario.actions),
        SimulationStory::Planned { .. } if balanced.is_some() => (None, &[]),
        SimulationStory::Planned { plans, .. } => {
            plans.iter().cloned().for_each(|plan| machine.start(plan));
            (None, &[])
        }
    };
    let mut deciding = match policy {
        Some((policy, limits)) => {
            let sim = SimHost::new(machine);
            let sim = if host.can_rest { sim } else { sim.without_rest() };
            // In a scenario of a minute each batch counts. In the hours of a fleet the lease would take most of the time.
            let sim = if cast.is_some() { sim.under_lease() } else { sim };
            RunControl::Policy(Box::new(PolicyTrial::with_host(sim, policy, limits)))
        }
        None => RunControl::Nothing(Box::new(machine)),
    };
    let mut happenings = PendingActions {
        actions,
        guests: BTreeMap::new(),
        filling: MemoryWriters::new(host.costs.write * u64::from(run_pages), cpus),
        run_pages,
    };
    let (mut observed, mut at) = (RunObservations::default(), Duration::ZERO);
    let step = SAMPLE.max(story.duration() / MOST_SAMPLES);
    observed.has_truth =
        matches!(story, SimulationStory::Scenario(scenario) if scenario.is_judged_by_page_tables());
    observed.record_sample(deciding.machine(), false);
    while at < story.duration() {
        let next = (at + step).min(story.duration());
        while let Some(balanced) = balanced.as_mut().filter(|balanced| balanced.next() < next) {
            deciding.run_until(balanced.next());
            deciding.balance(balanced);
        }
        while let Some(moment) = happenings.next().filter(|moment| *moment < next) {
            deciding.run_until(moment);
            if let Some(cast) = &cast {
                happenings.apply_due_actions(moment, cast, deciding.machine());
            }
        }
        deciding.run_until(next);
        observed.record_sample(deciding.machine(), happenings.filling.is_growing());
        advance(next - at);
        at = next;
    }
    observed.finish(cast.is_none(), balanced.map(|balanced| balanced.record()))
}

/// The pending actions on the guests of a scenario.
#[derive(Debug)]
struct PendingActions<'a> {
    actions: &'a [TimelineAction],
    /// The machine's guest for each that has started.
    guests: BTreeMap<usize, SimGuestId>,
    filling: MemoryWriters,
    run_pages: u32,
}

impl PendingActions<'_> {
    /// The moment at which something happens next.
    fn next(&self) -> Option<Duration> {
        let action = self.actions.first().map(|action| action.at);
        action.into_iter().chain(self.filling.next()).min()
    }

    /// Carries out all actions that are due. Guests that begin to write at the same moment share the CPUs.
    fn apply_due_actions(&mut self, at: Duration, cast: &StoryGuests, machine: &mut SimMachine) {
        for ready in self.filling.step(at, machine, &self.guests) {
            cast.ready(machine, ready, self.run_pages);
        }
        let count = self.actions.iter().take_while(|action| action.at <= at).count();
        let (now, later) = self.actions.split_at(count);
        self.actions = later;
        let begun = now
            .iter()
            .filter_map(|action| cast.apply_action(machine, &mut self.guests, self.run_pages, &action.deed));
        let begun = begun.collect();
        self.filling.begin(at, begun);
    }
}

/// The observations of a run so far.
#[derive(Debug, Default)]
struct RunObservations {
    points: Vec<SeriesPoint>,
    attainable: Vec<AttainableStep>,
    /// True if what is really saved is recorded beside KSM's counters.
    has_truth: bool,
    truth: Vec<TruthPoint>,
    progress: PassTracker,
    passes: u64,
}

impl RunObservations {
    /// Takes a sample. While a new guest fills its memory, what could be saved counts as before.
    fn record_sample(&mut self, machine: &SimMachine, is_growing: bool) {
        let (figures, at) = (machine.figures(), machine.now().as_secs_f64());
        let bytes = machine.most_attainable_pages() * PAGE_SIZE;
        let before = self.attainable.last().map_or(0, |step| step.bytes);
        if before != bytes && !(is_growing && bytes > before) {
            self.attainable.push(AttainableStep { at, bytes });
        }
        self.passes = figures.passes;
        if self.has_truth {
            self.truth.push(TruthPoint {
                at,
                counted_bytes: figures.saved_pages * PAGE_SIZE,
                truly_saved_bytes: figures.truly_saved_pages * PAGE_SIZE,
                huge_bytes: figures.huge_pages * HUGE_PAGE_BYTES,
                free_bytes: machine.total_bytes().saturating_sub(machine.used_bytes()),
            });
        }
        self.points.push(SeriesPoint {
            at,
            saved_bytes: figures.saved_pages * PAGE_SIZE,
            known_since: self.progress.record_counters(at, figures.passes, figures.visits),
            ksmd_cpu_seconds: figures.ksmd_cpu.as_secs_f64(),
            controller_cpu_seconds: 0.0,
            breaks: figures.breaks,
        });
    }

    fn finish(self, is_restless: bool, balance: Option<BalancingRecord>) -> RawRun {
        let counted = RunCounts { passes: self.passes, balance, ..RunCounts::default() };
        let series = match self.has_truth {
            true => RunSeries::from_truth(self.points, self.attainable, self.truth),
            false => RunSeries::new(self.points, self.attainable),
        };
        RawRun { series: RunSeries { is_restless, ..series }, counted }
    }
}
