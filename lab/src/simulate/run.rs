//! One story under one competitor.

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::decide::{Limits, Policy};
use ksmith_core::sim::{Config, GuestId, Machine, PAGE_SIZE};
use ksmith_core::trial::{Balanced, Balancing, SimHost, Trial};

use super::SimulatedHost;
use super::balance::Balance;
use super::filling::Filling;
use super::story::{Cast, Story};
use crate::measure::{Counted, Point, Series, Step};
use crate::play::Passes;
use crate::results::RawRun;
use crate::scenario::Action;

/// Time between two samples of a run, as in the lab; longer in a long story.
const SAMPLE: Duration = Duration::from_millis(200);

/// Samples of a run at most.
const MOST_SAMPLES: u32 = 7200;

/// The control of ksmd in a run: a policy, or none, which leaves KSM off.
#[derive(Debug)]
enum Deciding {
    Policy(Box<Trial>),
    Nothing(Box<Machine>),
}

impl Deciding {
    fn machine(&mut self) -> &mut Machine {
        match self {
            Self::Policy(trial) => trial.machine_mut(),
            Self::Nothing(machine) => machine,
        }
    }

    /// Advances the guests' memory and their balance policy by a step.
    fn balance(&mut self, balanced: &mut Balanced) {
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
fn balanced(story: &Story, run_pages: u32, balance: Option<&Balance>) -> Option<Balanced> {
    let Story::Planned { guests, has_demands, duration, .. } = story else { return None };
    let config = balance.and_then(|balance| balance.config.clone());
    let is_balanced = *has_demands || balance.is_some();
    is_balanced.then(|| Balanced::new(guests.clone(), run_pages, config, *duration))
}

/// Plays a story, and returns the observations. `goes_on` receives each step of simulated time, and returns false to
/// stop.
pub(crate) fn run(
    story: &Story,
    host: &SimulatedHost,
    policy: Option<(Box<dyn Policy>, Limits)>,
    balance: Option<&Balance>,
    goes_on: &dyn Fn(Duration) -> bool,
) -> RawRun {
    let run_pages = story.run_pages(host);
    let of_host = Config {
        total_bytes: host.bytes,
        ksmd_before_ns: host.ksmd_before_ns,
        ksmd_share_permille: host.ksmd_share_permille,
        run_pages,
        ..Config::default()
    };
    let config = match story {
        Story::Scenario(_) => of_host,
        Story::Planned { host_bytes, night_permille, .. } => {
            Config { total_bytes: *host_bytes, night_permille: *night_permille, ..of_host }
        }
    };
    let cpus = config.cpus;
    let mut machine = Machine::new(Config { kernel: host.kernel, costs: host.costs, ..config });
    let mut balanced = balanced(story, run_pages, balance);
    let (cast, actions): (Option<Cast>, &[Action]) = match story {
        Story::Scenario(scenario) => (Some(Cast::of(scenario)), &scenario.actions),
        Story::Planned { .. } if balanced.is_some() => (None, &[]),
        Story::Planned { plans, .. } => {
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
            Deciding::Policy(Box::new(Trial::on(sim, policy, limits)))
        }
        None => Deciding::Nothing(Box::new(machine)),
    };
    let mut happenings = Happenings {
        actions,
        guests: BTreeMap::new(),
        filling: Filling::new(host.costs.write * u64::from(run_pages), cpus),
        run_pages,
    };
    let (mut observed, mut at) = (Observed::default(), Duration::ZERO);
    let step = SAMPLE.max(story.duration() / MOST_SAMPLES);
    observed.look(deciding.machine(), false);
    while at < story.duration() {
        let next = (at + step).min(story.duration());
        while let Some(balanced) = balanced.as_mut().filter(|balanced| balanced.next() < next) {
            deciding.run_until(balanced.next());
            deciding.balance(balanced);
        }
        while let Some(moment) = happenings.next().filter(|moment| *moment < next) {
            deciding.run_until(moment);
            if let Some(cast) = &cast {
                happenings.happen(moment, cast, deciding.machine());
            }
        }
        deciding.run_until(next);
        observed.look(deciding.machine(), happenings.filling.is_growing());
        if !goes_on(next - at) {
            break;
        }
        at = next;
    }
    observed.finish(cast.is_none(), balanced.map(|balanced| balanced.record()))
}

/// The pending actions on the guests of a scenario.
#[derive(Debug)]
struct Happenings<'a> {
    actions: &'a [Action],
    /// The machine's guest for each that has started.
    guests: BTreeMap<usize, GuestId>,
    filling: Filling,
    run_pages: u32,
}

impl Happenings<'_> {
    /// The moment at which something happens next.
    fn next(&self) -> Option<Duration> {
        let action = self.actions.first().map(|action| action.at);
        action.into_iter().chain(self.filling.next()).min()
    }

    /// Carries out all actions that are due. Guests that begin to write at the same moment share the CPUs.
    fn happen(&mut self, at: Duration, cast: &Cast, machine: &mut Machine) {
        for ready in self.filling.step(at, machine, &self.guests) {
            cast.ready(machine, ready, self.run_pages);
        }
        let count = self.actions.iter().take_while(|action| action.at <= at).count();
        let (now, later) = self.actions.split_at(count);
        self.actions = later;
        let begun =
            now.iter().filter_map(|action| cast.happen(machine, &mut self.guests, self.run_pages, &action.deed));
        let begun = begun.collect();
        self.filling.begin(at, begun);
    }
}

/// The observations of a run so far.
#[derive(Debug, Default)]
struct Observed {
    points: Vec<Point>,
    attainable: Vec<Step>,
    progress: Passes,
    passes: u64,
}

impl Observed {
    /// Takes a sample. While a new guest fills its memory, what could be saved counts as before.
    fn look(&mut self, machine: &Machine, is_growing: bool) {
        let (figures, at) = (machine.figures(), machine.now().as_secs_f64());
        let bytes = machine.most_attainable_pages() * PAGE_SIZE;
        let before = self.attainable.last().map_or(0, |step| step.bytes);
        if before != bytes && !(is_growing && bytes > before) {
            self.attainable.push(Step { at, bytes });
        }
        self.passes = figures.passes;
        self.points.push(Point {
            at,
            saved_bytes: figures.saved_pages * PAGE_SIZE,
            known_since: self.progress.look(at, figures.passes, figures.visits),
            ksmd_cpu_seconds: figures.ksmd_cpu.as_secs_f64(),
            controller_cpu_seconds: 0.0,
            breaks: figures.breaks,
        });
    }

    fn finish(self, is_restless: bool, balance: Option<Balancing>) -> RawRun {
        let counted = Counted { passes: self.passes, balance, ..Counted::default() };
        RawRun { series: Series { is_restless, ..Series::new(self.points, self.attainable) }, counted }
    }
}
