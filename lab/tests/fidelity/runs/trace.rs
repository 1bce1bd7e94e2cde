//! A recorded live run, and the same run simulated.

use std::path::Path;

use ksmith_core::field::KernelVersion;
use ksmith_core::sim::SimCosts;
use ksmith_lab::GuestPages;
use ksmith_lab::competitor::{Competitor, UnknownCompetitor};
use ksmith_lab::scenario::ScenarioForm;
use ksmith_lab::simulate::{
    SimulatedHost, Simulation, SimulationError, SimulationStory, StoryError, StoryOverrides,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An error of simulating a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The policy is none that there is.
    #[error(transparent)]
    Competitor(#[from] UnknownCompetitor),
    /// The scenario can't be read.
    #[error(transparent)]
    Story(#[from] StoryError),
    /// The scenario can't be simulated.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// The results are no JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The release names no version of Linux.
    #[error("{0:?} is no release of Linux")]
    Kernel(String),
}

/// One run over time, live or simulated.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TracedRun {
    /// Complete passes of ksmd.
    pub passes: u64,
    /// Seconds, saved bytes, and ksmd's CPU time in seconds, for each sample.
    pub points: Vec<(f64, u64, f64)>,
}

/// A recorded live run with what is needed to simulate it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedTrace {
    /// Name of the scenario in `scenarios/`.
    pub scenario: String,
    /// The competitor, as `ksmith lab` names it.
    pub policy: String,
    /// The pages that guests' memory was on.
    #[serde(default = "small")]
    pub pages: GuestPages,
    /// The time that the scenario's short form was given.
    pub seconds: f64,
    /// Release of the kernel.
    pub kernel: String,
    /// Costs of the host's ksmd at that time.
    pub costs: SimCosts,
    /// CPU time that ksmd had used since boot when the run began, in milliseconds: the kernel's advisor counts it.
    pub ksmd_before_ms: u64,
    /// The part of the time in which ksmd could run that it ran, in thousandths: other load had the CPU for the rest.
    pub ksmd_share_permille: u32,
    /// True if ksmd could pause at a pass boundary ([`BoundaryPause`](ksmith_core::sample::BoundaryPause)).
    #[serde(default)]
    pub can_rest: bool,
    /// The live run itself.
    #[serde(flatten)]
    pub run: TracedRun,
}

/// The pages of runs that name none.
fn small() -> GuestPages {
    GuestPages::Small
}

impl TracedRun {
    /// The runs of the first competitor in the first scenario of what `ksmith lab run --json` and `ksmith sim --json` print.
    pub fn all_of(results: &Value) -> Vec<Self> {
        let runs = results["scenarios"][0]["competitors"][0]["runs"].as_array();
        runs.into_iter().flatten().map(Self::from_json).collect()
    }

    fn from_json(run: &Value) -> Self {
        let thousandths = |seconds: &Value| (seconds.as_f64().unwrap_or(0.0) * 1000.0).round() / 1000.0;
        let points = run["series"]["points"].as_array().into_iter().flatten().map(|point| {
            let saved_bytes = point["saved_bytes"].as_u64().unwrap_or(0);
            (thousandths(&point["at"]), saved_bytes, thousandths(&point["ksmd_cpu_seconds"]))
        });
        Self { passes: run["passes"].as_u64().unwrap_or(0), points: points.collect() }
    }
}

impl RecordedTrace {
    /// The name of the file of a scenario under a policy, on such pages.
    pub fn file_name(scenario: &str, policy: &str, pages: GuestPages) -> String {
        let on = if pages == GuestPages::Huge { "-huge" } else { "" };
        format!("{scenario}{on}-{}.json", policy.replace(':', "-"))
    }

    /// Simulates the run. `scenario` is the path of a file of which the short form takes [`RecordedTrace::seconds`].
    ///
    /// # Errors
    /// The scenario can't be read, or the policy can't be simulated.
    pub fn simulate(&self, scenario: &Path) -> Result<TracedRun, TraceError> {
        let kernel = KernelVersion::parse(&self.kernel).ok_or_else(|| TraceError::Kernel(self.kernel.clone()))?;
        let host = SimulatedHost {
            kernel,
            costs: self.costs,
            ksmd_before_ns: self.ksmd_before_ms * 1_000_000,
            ksmd_share_permille: self.ksmd_share_permille,
            can_rest: self.can_rest,
            ..SimulatedHost::default()
        };
        let wishes = StoryOverrides { pages: Some(self.pages), ..StoryOverrides::default() };
        let simulation = Simulation {
            balances: Vec::new(),
            stories: vec![SimulationStory::load(scenario, ScenarioForm::Short, wishes)?],
            form: ScenarioForm::Short,
            competitors: vec![Competitor::parse(&self.policy)?],
            host,
        };
        let results = serde_json::to_value(simulation.play()?)?;
        Ok(TracedRun::all_of(&results).into_iter().next().unwrap_or_default())
    }
}
