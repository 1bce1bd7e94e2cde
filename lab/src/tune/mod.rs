//! Searches the settings of a policy on the simulated machine for those that save most memory for least CPU of ksmd.
//!
//! A [`TuneSearch`] plays all stories with each point that CMA-ES (`search`) comes to. What no other point beats in both is the front
//! (`front`), with which the defaults are compared.

mod bench;
mod front;
mod key;
mod page;
mod point;
mod search;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ksmith_core::units::TimeSpan;
use schemars::JsonSchema;
use serde::Serialize;

pub use self::bench::BadPoint;
use self::bench::PointPlayer;
pub use self::front::DefaultsPosition;
pub use self::key::{BadKey, TuneKey};
pub use self::point::{StoryFigures, TunePoint};
use self::search::{RelativeCost, TrialOutcome};
use crate::report::{self, ReportWriteError};
use crate::simulate::{SimulatedHost, SimulationMeter, SimulationStory, workers};

/// The parameters of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct TuneSearch {
    /// The policy, by its name in the configuration.
    pub policy: String,
    /// The keys that are searched.
    pub keys: Vec<TuneKey>,
    /// The stories that each point is played in.
    pub stories: Vec<SimulationStory>,
    /// The simulated host.
    pub host: SimulatedHost,
    /// The least number of points: the last generation is completed.
    pub points: usize,
    /// The seed of the search's random numbers.
    pub seed: u64,
    /// The most runs at once. `None`: as many as there are CPUs and memory for.
    pub jobs: Option<usize>,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TuneResult {
    /// Version of ksmith.
    pub ksmith: &'static str,
    /// The policy that is tuned.
    pub policy: String,
    /// The simulated kernel.
    pub kernel: String,
    /// The seed of the search.
    pub seed: u64,
    /// True if the search was ended early.
    pub is_stopped: bool,
    /// Points that the policy refused as contradictory. They were not played.
    pub refused: usize,
    /// The keys that are searched.
    pub keys: Vec<TuneKey>,
    /// The stories that are played.
    pub stories: Vec<PlayedStory>,
    /// The defaults, and what came of them.
    pub defaults: TunePoint,
    /// The position of the defaults relative to the front.
    pub place: DefaultsPosition,
    /// The front, by CPU.
    pub front: Vec<TunePoint>,
    /// All points that were played, the defaults among them.
    pub points: Vec<TunePoint>,
}

/// A story of the search with its simulated time.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PlayedStory {
    /// The name of the story.
    pub name: String,
    /// The simulated time.
    pub seconds: f64,
}

/// An error of a search.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The policy can't be made from its defaults.
    #[error("{policy}: {why}")]
    Policy {
        /// The policy that is tuned.
        policy: String,
        /// The reason.
        why: BadPoint,
    },
    /// Nothing can be saved in any story.
    #[error("nothing can be saved in these stories, so that no point is better than another: name others")]
    NothingToSave,
    /// The search was ended before the defaults were played.
    #[error("ended before the defaults were played: nothing was found")]
    TooEarly,
    /// The threads can't be had.
    #[error("can't start the threads of the search: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// The least loss that counts for the defaults, so that a ratio to nearly nothing does not hide all else.
const LEAST_LOSS: f64 = 1e-3;

impl TuneSearch {
    /// Searches, with progress on standard error. Once `is_stopped` returns true, returns the points found so far.
    ///
    /// # Errors
    /// The policy can't be made, nothing can be saved in the stories, or the search is ended before the defaults were played.
    pub fn search(&self, is_stopped: &(dyn Fn() -> bool + Sync)) -> Result<TuneResult, TuneError> {
        let most = workers(&self.stories, &self.host);
        let threads = self.jobs.map_or(most, |jobs| jobs.min(most).max(1));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let told: Duration = self.stories.iter().map(SimulationStory::duration).sum();
        let meter = SimulationMeter::new(told.saturating_mul(self.points.saturating_add(1) as u32), self.points);
        let bench = PointPlayer { tuning: self, meter: &meter, is_stopped };
        let found = pool.install(|| self.search_on(&bench));
        meter.finish();
        found
    }

    fn search_on(&self, bench: &PointPlayer<'_>) -> Result<TuneResult, TuneError> {
        let usual: Vec<f64> = self.keys.iter().map(|key| key.default).collect();
        let refuse = |why| TuneError::Policy { policy: self.policy.clone(), why };
        let figures = bench.play(&usual).map_err(refuse)?.ok_or(TuneError::TooEarly)?;
        let defaults = TunePoint::from_stories(usual, figures.clone(), &figures).ok_or(TuneError::NothingToSave)?;
        let points = Mutex::new(vec![defaults.clone()]);
        let refused = AtomicUsize::new(0);
        let try_out = |place: &[f64]| {
            let values: Vec<f64> = self.keys.iter().zip(place).map(|(key, place)| key.at(*place)).collect();
            let point = match bench.play(&values) {
                Ok(Some(all)) => TunePoint::from_stories(values, all, &figures),
                Ok(None) => return TrialOutcome::Stopped,
                Err(_) => None,
            };
            let Some(point) = point else {
                refused.fetch_add(1, Ordering::Relaxed);
                return TrialOutcome::Refused;
            };
            let loss = (1.0 - point.share).max(0.0) / (1.0 - defaults.share).max(LEAST_LOSS);
            let relative = RelativeCost { loss, cpu: point.cpu };
            points.lock().unwrap_or_else(PoisonError::into_inner).push(point);
            TrialOutcome::Played(relative)
        };
        let began = Instant::now();
        let after = |tried: usize| {
            let points = points.lock().unwrap_or_else(PoisonError::into_inner);
            bench.meter.show_message(&progress(tried, self.points, front::front(&points).len(), began.elapsed()));
        };
        let from: Vec<f64> = self.keys.iter().map(TuneKey::place).collect();
        search::search(&from, (self.points, self.seed), &try_out, &after);
        let mut points = points.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Threads come to them in any order.
        points.sort_by(|a, b| a.values.partial_cmp(&b.values).unwrap_or(std::cmp::Ordering::Equal));
        points.dedup();
        let told = |story: &SimulationStory| PlayedStory {
            name: story.name().to_owned(),
            seconds: story.duration().as_secs_f64(),
        };
        Ok(TuneResult {
            ksmith: env!("CARGO_PKG_VERSION"),
            policy: self.policy.clone(),
            kernel: format!("{}, simulated", self.host.kernel),
            seed: self.seed,
            is_stopped: (bench.is_stopped)(),
            refused: refused.into_inner(),
            keys: self.keys.clone(),
            stories: self.stories.iter().map(told).collect(),
            place: DefaultsPosition::from_points(&defaults, &points),
            front: front::front(&points).into_iter().cloned().collect(),
            defaults,
            points,
        })
    }
}

impl TuneResult {
    /// Describes the position of the defaults in sentences.
    pub fn verdict(&self) -> String {
        let place = &self.place;
        let (Some(cheapest), Some(fullest)) = (&place.cheapest, &place.fullest) else {
            return "The defaults lie on the front: of what was tried, nothing saves as much for less CPU."
                .to_owned();
        };
        let percent = |point: &TunePoint| format!("{:.2} %", 100.0 * point.share);
        let points = |count: usize| if count == 1 { "1 point".to_owned() } else { format!("{count} points") };
        let mut text = format!(
            "The defaults ({}) are dominated by {}. As much or more ({}) is saved for {:.3} of their CPU, and {} for {:.3}.",
            percent(&self.defaults),
            points(place.dominated_by),
            percent(cheapest),
            cheapest.cpu,
            percent(fullest),
            fullest.cpu,
        );
        text.push_str(&match &place.cheapest_everywhere {
            None => " None of them is as good in every story.".to_owned(),
            Some(best) => format!(
                " No worse in any story: {}, the cheapest of which saves {} for {:.3}.",
                points(place.better_everywhere),
                percent(best),
                best.cpu
            ),
        });
        text
    }

    /// Writes `results.json` and `report.html` into a directory.
    ///
    /// # Errors
    /// The plot can't be drawn, or a file can't be written.
    pub fn write(&self, directory: &Path) -> Result<(), ReportWriteError> {
        report::write_both(self, page::page(self)?, directory)
    }
}

/// Describes the progress of the search.
fn progress(tried: usize, points: usize, best: usize, elapsed: Duration) -> String {
    let left = elapsed.as_secs_f64() / tried.max(1) as f64 * points.saturating_sub(tried) as f64;
    let left = TimeSpan(Duration::from_secs((left as u64).max(1)));
    let left = if tried < points { format!(", about {left} left") } else { String::new() };
    format!("{tried} of {} points are tried, {best} on the front{left}", points.max(tried))
}

#[cfg(test)]
mod tests;
