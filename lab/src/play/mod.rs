//! Plays scenarios under competitors, one run after the other. Each run starts from the same state of the host.
//!
//! The lab only starts processes, sends commands and samples. The controller of KSM is a process of its own, as
//! on any host. The lab changes the host only through [`Bench`].

mod contender;
mod group;
mod progress;
mod sampler;
mod stage;
mod truth;
mod usage;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use ksmith_core::sim::KhugepagedPace;

use self::contender::RunningController;
use self::sampler::RunSampler;
use self::stage::GuestStage;
use self::truth::TruthRecorder;
use super::competitor::Competitor;
use super::measure::{RunCounts, RunSeries};
use super::results::{LabResults, RawRun};
use super::scenario::{Scenario, ScenarioForm};
use super::truth::GuestTruth;
use super::{GuestError, results};
use ksmith_host::root::Root;
use ksmith_host::signals::Signal;

pub use progress::LabProgress;
pub(crate) use sampler::PassTracker;

/// The host of an experiment.
pub trait LabBench {
    /// Brings the host to the state that every run starts from: nothing merged, every setting at the kernel's
    /// default, ksmd off.
    ///
    /// # Errors
    /// A sentence that says why this failed.
    fn reset(&mut self) -> Result<(), String>;

    /// Sets khugepaged's pace, until the next reset.
    ///
    /// # Errors
    /// A sentence that says why this failed.
    fn set_khugepaged(&mut self, pace: KhugepagedPace) -> Result<(), String>;
}

/// The runs of an experiment.
#[derive(Debug, Clone)]
pub struct LabPlan {
    /// Path of the ksmith program, which runs as guests and as policies.
    pub program: PathBuf,
    /// Scenarios to play.
    pub scenarios: Vec<Scenario>,
    /// Form of the scenarios.
    pub form: ScenarioForm,
    /// Competitors that each scenario is played under.
    pub competitors: Vec<Competitor>,
    /// Number of runs of each scenario under each competitor.
    pub repeat: u32,
    /// Directory for the logs of the controllers. `None` if they are not kept.
    pub logs: Option<PathBuf>,
}

/// An error that ends an experiment. Guests and controllers are ended in any case.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A guest with known memory did not obey.
    #[error(transparent)]
    KnownGuest(#[from] GuestError),
    /// Another guest failed.
    #[error("guest {name}: {why}")]
    Guest {
        /// Name of the guest.
        name: String,
        /// A sentence that says what happened.
        why: String,
    },
    /// The controller of KSM failed.
    #[error("competitor {name}: {why}; the last it said: {said}")]
    Competitor {
        /// Name of the competitor.
        name: String,
        /// A sentence that says what happened.
        why: String,
        /// The last line of its log.
        said: String,
    },
    /// The host could not be brought to the state that every run starts from.
    #[error("can't bring the host to the state that every run starts from: {0}")]
    Bench(String),
    /// The pace of khugepaged could not be set.
    #[error("can't set khugepaged's pace: {0}")]
    Setting(String),
    /// A counter can't be read.
    #[error("can't measure: {0}")]
    Unseen(String),
    /// A file, process or thread can't be made.
    #[error("can't run the lab: {0}")]
    System(#[source] io::Error),
    /// Ctrl-C or SIGTERM ended the experiment.
    #[error("interrupted; guests are ended and the settings are being restored")]
    Interrupted,
}

/// Time between two updates of the progress.
const TICK: Duration = Duration::from_millis(250);

/// Plays all runs. Within each repeat all competitors take turns, so that changes on the host affect all alike.
///
/// # Errors
/// A run failed or was interrupted.
pub fn play(
    plan: &LabPlan,
    bench: &mut impl LabBench,
    interrupts: &Receiver<Signal>,
    progress: &LabProgress,
) -> Result<LabResults, LabError> {
    // Guests are started under a hypervisor's name, so that policies that count virtual machines count them.
    let names = tempfile::tempdir().map_err(LabError::System)?;
    let guest = names.path().join("qemu-system-x86_64");
    std::os::unix::fs::symlink(&plan.program, &guest).map_err(LabError::System)?;
    let needs_truth = plan.scenarios.iter().any(Scenario::is_judged_by_page_tables);
    let truth = needs_truth.then(|| GuestTruth::new(Root::host(), &plan.program)).transpose()?;
    let mut played = Vec::new();
    for scenario in &plan.scenarios {
        let mut runs: Vec<Vec<RawRun>> = vec![Vec::new(); plan.competitors.len()];
        for number in 1..=plan.repeat {
            for (competitor, runs) in plan.competitors.iter().zip(&mut runs) {
                progress.say(format!("{} {number}/{} {}", scenario.name, plan.repeat, competitor.name));
                bench.reset().map_err(LabError::Bench)?;
                let truth = truth.as_ref().filter(|_| scenario.is_judged_by_page_tables());
                let run = LabRun { plan, scenario, competitor, number, guest: &guest, truth, interrupts, progress };
                runs.push(run.play(bench)?);
            }
        }
        played.push(results::ScenarioResults::from_runs(scenario, &plan.competitors, runs));
    }
    Ok(LabResults::from_scenarios(plan.form, plan.repeat, played))
}

/// One run of one scenario under one competitor.
struct LabRun<'a> {
    plan: &'a LabPlan,
    scenario: &'a Scenario,
    competitor: &'a Competitor,
    number: u32,
    guest: &'a Path,
    /// Reader of what guests really save, where the counters do not tell it.
    truth: Option<&'a GuestTruth>,
    interrupts: &'a Receiver<Signal>,
    progress: &'a LabProgress,
}

impl LabRun<'_> {
    fn play(&self, bench: &mut impl LabBench) -> Result<RawRun, LabError> {
        let place = tempfile::tempdir().map_err(LabError::System)?;
        let log = self.log(place.path())?;
        let limits = &self.scenario.limits;
        let contender = RunningController::start(&self.plan.program, self.competitor, limits, place.path(), &log)?;
        let began = Instant::now();
        let sampler = RunSampler::start(contender.measured(), began)?;
        let mut stage = GuestStage::new(self.guest, &self.scenario.instances, began);
        let mut truth = TruthRecorder::new(self.truth, began);
        for actions in self.scenario.actions.chunk_by(|a, b| a.at == b.at) {
            let at = actions.first().map_or(Duration::ZERO, |action| action.at);
            self.wait_until(began + at, &sampler, began, (&mut truth, &stage))?;
            stage.perform(actions, bench)?;
        }
        self.wait_until(began + self.scenario.duration, &sampler, began, (&mut truth, &stage))?;
        let seen = sampler.finish()?;
        let held_bytes = stage.held_bytes();
        let wrong_pages = stage.finish()?;
        contender.end()?;
        self.progress.run_done(self.scenario.duration);
        let attainable = std::mem::take(&mut stage.attainable);
        Ok(RawRun {
            series: match self.truth {
                Some(_) => RunSeries::from_truth(seen.points, attainable, truth.points),
                None => RunSeries::new(seen.points, attainable),
            },
            counted: RunCounts {
                work_pages: stage.work_pages,
                rewrite_seconds: stage.rewrite_time.as_secs_f64(),
                controller_rss_bytes: seen.controller_rss_bytes,
                passes: seen.passes,
                wrong_pages,
                held_bytes,
                balance: None,
            },
        })
    }

    fn log(&self, place: &Path) -> Result<PathBuf, LabError> {
        let Some(logs) = &self.plan.logs else { return Ok(place.join("log")) };
        fs::create_dir_all(logs).map_err(LabError::System)?;
        Ok(logs.join(format!("{}-{}-{}.log", self.scenario.name, self.competitor.file_name(), self.number)))
    }

    fn wait_until(
        &self,
        deadline: Instant,
        sampler: &RunSampler,
        began: Instant,
        (truth, stage): (&mut TruthRecorder<'_>, &GuestStage<'_>),
    ) -> Result<(), LabError> {
        loop {
            truth.record_due(sampler.saved_bytes(), stage.filled_guests());
            let next = deadline.min(Instant::now() + TICK);
            match self.interrupts.recv_deadline(next) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return Err(LabError::Interrupted),
            }
            self.progress.moment(began.elapsed().min(self.scenario.duration), sampler.saved_bytes());
            if next == deadline {
                return Ok(());
            }
        }
    }
}
