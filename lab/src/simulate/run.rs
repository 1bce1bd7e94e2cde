//! One story under one competitor.

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::decide::{Limits, Policy};
use ksmith_core::sim::{Config, Machine, PAGE_SIZE};
use ksmith_core::trial::Trial;

use super::SimulatedHost;
use super::meter::Meter;
use super::story::{Cast, Story};
use crate::measure::{Counted, Point, Series, Step};
use crate::play::Passes;
use crate::results::RawRun;
use crate::scenario::Action;

/// Time between two samples of a run, as in the lab; longer in a long story.
const SAMPLE: Duration = Duration::from_millis(200);

/// Samples of a run at most.
const MOST_SAMPLES: u32 = 7200;

/// What decides: a policy, or nothing, which leaves KSM off.
#[derive(Debug)]
enum Deciding {
    Policy(Box<Trial>),
    Nothing(Box<Machine>),
}

impl Deciding {
    fn machine(&mut self) -> &mut Machine {
        match self {
            Self::Policy(trial) => &mut trial.machine,
            Self::Nothing(machine) => machine,
        }
    }

    fn run_until(&mut self, at: Duration) {
        match self {
            Self::Policy(trial) => trial.run_until(at),
            Self::Nothing(machine) => machine.advance(at.saturating_sub(machine.now())),
        }
    }
}

/// Plays a story, and returns what was observed.
pub(super) fn run(
    story: &Story,
    host: &SimulatedHost,
    policy: Option<(Box<dyn Policy>, Limits)>,
    meter: &Meter,
) -> RawRun {
    let run_pages = story.run_pages(host);
    let of_host = Config { total_bytes: host.bytes, run_pages, ..Config::default() };
    let config = match story {
        Story::Scenario(_) => of_host,
        Story::Planned { host_bytes, night_permille, .. } => {
            Config { total_bytes: *host_bytes, night_permille: *night_permille, ..of_host }
        }
    };
    let mut machine = Machine::new(Config { kernel: host.kernel, costs: host.costs, ..config });
    let (cast, actions): (Option<Cast>, &[Action]) = match story {
        Story::Scenario(scenario) => (Some(Cast::of(scenario)), &scenario.actions),
        Story::Planned { plans, .. } => {
            plans.iter().cloned().for_each(|plan| machine.start(plan));
            (None, &[])
        }
    };
    let mut deciding = match policy {
        Some((policy, limits)) => Deciding::Policy(Box::new(Trial::new(machine, policy, limits))),
        None => Deciding::Nothing(Box::new(machine)),
    };
    let mut guests = BTreeMap::new();
    let mut actions = actions.iter().peekable();
    let (mut observed, mut at) = (Observed::default(), Duration::ZERO);
    let step = SAMPLE.max(story.duration() / MOST_SAMPLES);
    observed.look(deciding.machine());
    while at < story.duration() {
        let next = (at + step).min(story.duration());
        while let Some(action) = actions.next_if(|action| action.at < next) {
            deciding.run_until(action.at);
            if let Some(cast) = &cast {
                cast.happen(deciding.machine(), &mut guests, run_pages, &action.deed);
            }
        }
        deciding.run_until(next);
        observed.look(deciding.machine());
        meter.advance(next - at);
        at = next;
    }
    observed.finish()
}

/// What was observed so far.
#[derive(Debug, Default)]
struct Observed {
    points: Vec<Point>,
    attainable: Vec<Step>,
    progress: Passes,
    passes: u64,
}

impl Observed {
    fn look(&mut self, machine: &Machine) {
        let (figures, at) = (machine.figures(), machine.now().as_secs_f64());
        let bytes = machine.most_attainable_pages() * PAGE_SIZE;
        if self.attainable.last().map_or(0, |step| step.bytes) != bytes {
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

    fn finish(self) -> RawRun {
        let counted = Counted { passes: self.passes, ..Counted::default() };
        RawRun { series: Series::new(self.points, self.attainable), counted }
    }
}
