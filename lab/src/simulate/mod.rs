//! Scenarios and made-up fleets on the simulated machine, under the policies, with the results of the lab.
//!
//! Nothing of it touches this host. Runs are independent of each other, and several run at once.

mod balance;
mod filling;
mod fleet_file;
mod meter;
mod run;
mod story;
mod wishes;

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ksmith_core::decide::{Policy, PolicyConfig, PolicyLimits};
use ksmith_core::field::KernelVersion;
use ksmith_core::kernel::Meminfo;
use ksmith_core::sim::SimCosts;
use ksmith_host::bad_file::read_text;
use ksmith_service::config::{Config, ConfigError};
use serde::Deserialize;

pub use self::balance::{SimulatedBalance, UnknownBalance};
use self::meter::SimulationMeter;
use self::run::run;
pub use self::story::{SimulationStory, StoryError};
pub use self::wishes::StoryOverrides;
use crate::competitor::{Competitor, CompetitorKind};
use crate::results::{LabResults, MeasuredHost, RawRun, ScenarioResults};
use crate::scenario::ScenarioForm;

/// A simulation's stories, competitors and host.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// The stories, in order.
    pub stories: Vec<SimulationStory>,
    /// Form of the scenarios.
    pub form: ScenarioForm,
    /// The competitors, in order.
    pub competitors: Vec<Competitor>,
    /// The balance policies, each of which is simulated with each competitor. Empty: guests keep what they were started with.
    pub balances: Vec<SimulatedBalance>,
    /// The simulated host.
    pub host: SimulatedHost,
}

/// The host that is simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedHost {
    /// Memory in bytes, where the story names none.
    pub bytes: u64,
    /// The kernel version.
    pub kernel: KernelVersion,
    /// The costs of ksmd's work.
    pub costs: SimCosts,
    /// CPU time that ksmd has used before, in nanoseconds.
    pub ksmd_before_ns: u64,
    /// The part of a CPU that ksmd gets while it works, in thousandths.
    pub ksmd_share_permille: u32,
    /// True if the kernel can pause ksmd at a pass boundary ([`BoundaryPause`](ksmith_core::sample::BoundaryPause)).
    pub can_rest: bool,
    /// The length of a run of pages that is kept as one. `None`: chosen by size.
    pub run_pages: Option<u32>,
}

/// A 16 GiB host with Linux 6.18.
impl Default for SimulatedHost {
    fn default() -> Self {
        Self {
            bytes: 16 << 30,
            kernel: KernelVersion::new(6, 18),
            costs: SimCosts::default(),
            ksmd_before_ns: 0,
            ksmd_share_permille: 1000,
            can_rest: true,
            run_pages: None,
        }
    }
}

/// An error of a simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// A competitor is a program, which runs on a live host only.
    #[error("{0} is a program, and can't be simulated: `ksmith lab run` plays it on this host's kernel")]
    Program(String),
    /// A configuration file is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A policy can't be made.
    #[error("{name}: {why}")]
    Policy {
        /// The competitor.
        name: String,
        /// The reason.
        why: String,
    },
}

/// A competitor that can be simulated: its policy and its limits. `None`: KSM stays off.
type Prepared = Option<(PolicyConfig, Option<PolicyLimits>)>;

/// A competitor with a balance policy.
#[derive(Debug)]
struct SimulatedContender<'a> {
    name: String,
    prepared: &'a Prepared,
    balance: Option<&'a SimulatedBalance>,
}

/// The `[policy]` table of a competitor.
#[derive(Debug, Deserialize)]
struct PolicyTable {
    policy: PolicyConfig,
}

impl Simulation {
    /// Competitors that can be simulated.
    pub fn competitors() -> Vec<Competitor> {
        let mut all = Competitor::defaults();
        all.retain(|competitor| !matches!(competitor.kind, CompetitorKind::Ksmtuned { .. }));
        all
    }

    /// Simulates everything, with progress on standard error.
    ///
    /// # Errors
    /// A competitor can't be simulated.
    pub fn play(&self) -> Result<LabResults, SimulationError> {
        let prepared = self.competitors.iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
        // A policy that can't be made is known before hours of simulation.
        for (competitor, prepared) in self.competitors.iter().zip(&prepared) {
            if let Some((policy, _)) = prepared {
                make(&competitor.name, policy)?;
            }
        }
        let contenders: Vec<SimulatedContender<'_>> =
            self.competitors.iter().zip(&prepared).flat_map(|(it, made)| self.with_balances(it, made)).collect();
        let jobs: Vec<(&SimulationStory, &SimulatedContender<'_>)> =
            self.stories.iter().flat_map(|story| contenders.iter().map(move |it| (story, it))).collect();
        let total: Duration = jobs.iter().map(|(story, _)| story.duration()).sum();
        let meter = SimulationMeter::new(total, jobs.len());
        let next = AtomicUsize::new(0);
        let outcomes: Mutex<Vec<Option<Result<RawRun, SimulationError>>>> =
            Mutex::new(jobs.iter().map(|_| None).collect());
        thread::scope(|scope| {
            for _ in 0..workers(&self.stories, &self.host).min(jobs.len()) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(&job) = jobs.get(index) else { return };
                        let outcome = self.one(job, &meter);
                        let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                        if let Some(place) = outcomes.get_mut(index) {
                            *place = Some(outcome);
                        }
                    }
                });
            }
        });
        meter.finish();
        let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut runs = outcomes.into_iter().flatten().collect::<Result<Vec<_>, _>>()?.into_iter();
        let names: Vec<&str> = contenders.iter().map(|contender| contender.name.as_str()).collect();
        let scenarios = self.stories.iter().map(|story| {
            let runs = runs.by_ref().take(names.len()).map(|run| vec![run]).collect();
            let results =
                ScenarioResults::summary(story.name(), story.about(), story.duration(), true, &names, runs);
            ScenarioResults { pages: story.pages(), ..results }
        });
        let scenarios = scenarios.collect();
        Ok(LabResults {
            ksmith: env!("CARGO_PKG_VERSION"),
            host: MeasuredHost { kernel: format!("{}, simulated", self.host.kernel), cpus: 2 },
            form: self.form.name(),
            repeat: 1,
            scenarios,
        })
    }

    /// A competitor with each of the balance policies.
    fn with_balances<'a>(
        &'a self,
        competitor: &'a Competitor,
        prepared: &'a Prepared,
    ) -> Vec<SimulatedContender<'a>> {
        if self.balances.is_empty() {
            return vec![SimulatedContender { name: competitor.name.clone(), prepared, balance: None }];
        }
        let contender = |balance: &'a SimulatedBalance| {
            let name = format!("{} + {}", competitor.name, balance.name);
            SimulatedContender { name, prepared, balance: Some(balance) }
        };
        self.balances.iter().map(contender).collect()
    }

    fn one(
        &self,
        (story, contender): (&SimulationStory, &SimulatedContender<'_>),
        meter: &SimulationMeter,
    ) -> Result<RawRun, SimulationError> {
        let policy = contender.prepared.as_ref().map(|(config, limits)| {
            let limits = limits.clone().unwrap_or_else(|| story.limits());
            make(&contender.name, config).map(|policy| (policy, limits))
        });
        let run = run(story, &self.host, policy.transpose()?, contender.balance, &|by| meter.advance(by));
        meter.done(&format!("{} under {}", story.name(), contender.name));
        Ok(run)
    }
}

/// Returns the number of concurrent runs: as many as there are CPUs and memory for.
fn workers(stories: &[SimulationStory], host: &SimulatedHost) -> usize {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let needed = stories.iter().map(|story| story.memory_needed(host)).max().unwrap_or(0).max(1);
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = Meminfo::parse(&text).ok().and_then(|memory| memory.available).unwrap_or(u64::MAX);
    let by_memory = usize::try_from(available / 2 / needed).unwrap_or(usize::MAX);
    cpus.min(by_memory).max(1)
}

/// Reads the policy of a competitor.
fn prepare(competitor: &Competitor) -> Result<Prepared, SimulationError> {
    let refuse = |why: String| SimulationError::Policy { name: competitor.name.clone(), why };
    Ok(match &competitor.kind {
        CompetitorKind::Off => None,
        CompetitorKind::Daemon { policy } => {
            let table: PolicyTable = toml::from_str(policy).map_err(|why| refuse(why.to_string()))?;
            Some((table.policy, None))
        }
        CompetitorKind::Configured { file } => {
            let config = Config::load(Some(file))?;
            Some((config.policy, Some(config.limits)))
        }
        CompetitorKind::Ksmtuned { .. } => return Err(SimulationError::Program(competitor.name.clone())),
    })
}

fn make(name: &str, config: &PolicyConfig) -> Result<Box<dyn Policy>, SimulationError> {
    config.policy(&read_text).map_err(|why| SimulationError::Policy { name: name.to_owned(), why: why.to_string() })
}

/// Reads the costs of ksmd's work from a TOML file: nanoseconds by kind of work.
///
/// # Errors
/// The file can't be read or is refused.
pub fn load_costs(path: &Path) -> Result<SimCosts, StoryError> {
    story::read(path, "file of costs", |text| toml::from_str::<SimCosts>(text).map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests;
