//! Plays all stories with one point's settings.

use std::path::Path;

use ksmith_core::decide::{Policy, PolicyConfig, PolicyFileError};
use ksmith_host::bad_file::read_text;
use ksmith_service::config::{Config, ConfigError};
use rayon::prelude::*;

use super::TuneSearch;
use super::point::StoryFigures;
use crate::measure::RunMeasures;
use crate::simulate::{SimulatedHost, SimulationMeter, SimulationStory, run};

/// A player of points in the simulator.
pub(super) struct PointPlayer<'a> {
    pub tuning: &'a TuneSearch,
    pub meter: &'a SimulationMeter,
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
}

/// Settings that are refused, so that nothing is played.
#[derive(Debug, thiserror::Error)]
pub enum BadPoint {
    /// Values out of bounds, or contradictory.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No policy can be made of valid settings.
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
    /// The policy has no such constant.
    #[error("there is no constant {0:?}")]
    Constant(String),
}

/// The file name in messages about a point's settings.
const SOURCE: &str = "settings";

impl PointPlayer<'_> {
    /// Plays all stories, each with a policy of its own. `None` if the search was ended meanwhile.
    ///
    /// # Errors
    /// The settings are refused.
    pub fn play(&self, values: &[f64]) -> Result<Option<Vec<StoryFigures>>, BadPoint> {
        let config = self.config(values)?;
        let play = |story| Ok(self.play_story(story, config.policy(&read_text)?));
        let of_all: Result<Vec<Option<StoryFigures>>, BadPoint> =
            self.tuning.stories.par_iter().map(play).collect();
        Ok(of_all?.into_iter().collect())
    }

    /// The configuration with these values. It is refused as that of the daemon would be: out of bounds, or contradictory.
    fn config(&self, values: &[f64]) -> Result<PolicyConfig, BadPoint> {
        let kind = &self.tuning.policy;
        let (constants, settings): (Vec<_>, Vec<_>) =
            self.tuning.keys.iter().zip(values).partition(|(key, _)| key.is_constant);
        let lines: String = settings.into_iter().map(|(key, value)| key.line(*value)).collect();
        let text = format!("[policy]\nkind = \"{kind}\"\n[policy.{kind}]\n{lines}");
        let mut config = Config::parse(Path::new(SOURCE), &text)?.policy;
        for (key, value) in constants {
            let constant = config.profit.constants.get_mut(&key.name);
            *constant.ok_or_else(|| BadPoint::Constant(key.name.clone()))? = *value;
        }
        Ok(config)
    }

    /// Plays a story. `None` if the search was ended meanwhile.
    fn play_story(&self, story: &SimulationStory, policy: Box<dyn Policy>) -> Option<StoryFigures> {
        let goes_on = |by| {
            self.meter.advance(by);
            !(self.is_stopped)()
        };
        if (self.is_stopped)() {
            return None;
        }
        // Parts of a scenario have runs of their own length.
        let run_pages = self.tuning.host.run_pages.filter(|_| matches!(story, SimulationStory::Planned { .. }));
        let host = SimulatedHost { run_pages, ..self.tuning.host.clone() };
        let run = run(story, &host, Some((policy, story.limits())), None, &goes_on);
        let figures = StoryFigures::from_measures(&RunMeasures::from_series(&run.series, &run.counted));
        (!(self.is_stopped)()).then_some(figures)
    }
}
