//! Plays all stories with one point's settings.

use std::path::Path;

use ksmith_core::decide::{Policy, PolicyConfig};
use ksmith_host::bad_file::read_text;
use ksmith_service::config::Config;
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

/// The outcome of playing a point.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PlayedPoint {
    /// The figures of each story.
    Done(Vec<StoryFigures>),
    /// The settings are refused, and nothing was played.
    Refused(String),
    /// The search was ended meanwhile.
    Stopped,
}

/// The file name in messages about a point's settings.
const SOURCE: &str = "settings";

impl PointPlayer<'_> {
    /// Plays all stories, each with a policy of its own.
    ///
    /// # Errors
    /// A policy can't be made of settings that are valid.
    pub fn play(&self, values: &[f64]) -> Result<PlayedPoint, String> {
        let config = match self.config(values) {
            Ok(config) => config,
            Err(why) => return Ok(PlayedPoint::Refused(why)),
        };
        let of_all: Result<Vec<Option<StoryFigures>>, String> = self
            .tuning
            .stories
            .par_iter()
            .map(|story| config.policy(&read_text).map(|policy| self.play_story(story, policy)))
            .collect();
        Ok(of_all?.into_iter().collect::<Option<_>>().map_or(PlayedPoint::Stopped, PlayedPoint::Done))
    }

    /// The configuration with these values. It is refused as that of the daemon would be: out of bounds, or contradictory.
    fn config(&self, values: &[f64]) -> Result<PolicyConfig, String> {
        let kind = &self.tuning.policy;
        let (constants, settings): (Vec<_>, Vec<_>) =
            self.tuning.keys.iter().zip(values).partition(|(key, _)| key.is_constant);
        let lines: String = settings.into_iter().map(|(key, value)| key.line(*value)).collect();
        let text = format!("[policy]\nkind = \"{kind}\"\n[policy.{kind}]\n{lines}");
        let mut config = Config::parse(Path::new(SOURCE), &text).map_err(|error| error.to_string())?.policy;
        for (key, value) in constants {
            let constant = config.profit.constants.get_mut(&key.name);
            *constant.ok_or_else(|| format!("there is no constant {:?}", key.name))? = *value;
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
