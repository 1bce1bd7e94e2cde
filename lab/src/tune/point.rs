//! A point of the search: values of all keys, and what came of them in each story.

use schemars::JsonSchema;
use serde::Serialize;

use crate::measure::RunMeasures;

/// The figures of one story.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct StoryFigures {
    /// Memory saved, integrated over time.
    pub gib_seconds: f64,
    /// Memory that could be saved, integrated over time.
    pub attainable_gib_seconds: f64,
    /// CPU time of ksmd.
    pub ksmd_cpu_seconds: f64,
}

impl StoryFigures {
    pub(super) fn from_measures(run: &RunMeasures) -> Self {
        Self {
            gib_seconds: run.gib_seconds,
            attainable_gib_seconds: run.attainable_gib_seconds,
            ksmd_cpu_seconds: run.ksmd_cpu_seconds,
        }
    }

    /// Returns saved memory divided by attainable memory, 0 to 1. `None` if nothing could be saved.
    fn share(&self) -> Option<f64> {
        (self.attainable_gib_seconds > 0.0).then(|| self.gib_seconds / self.attainable_gib_seconds)
    }
}

/// Values of all keys, and what came of them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TunePoint {
    /// The values, in the order of the keys.
    pub values: Vec<f64>,
    /// Saved memory divided by attainable memory, 0 to 1: the mean of the stories in which something can be saved.
    pub share: f64,
    /// CPU time of ksmd divided by that under the defaults: the mean of all stories.
    pub cpu: f64,
    /// The figures of each story, in their order.
    pub stories: Vec<StoryFigures>,
}

/// CPU-seconds of a story under the defaults, at least, so that a ratio to nearly nothing does not outweigh all others.
const LEAST_SECONDS: f64 = 0.1;

impl TunePoint {
    /// Sums up the stories. `None` if nothing can be saved in any.
    pub(super) fn from_stories(
        values: Vec<f64>,
        stories: Vec<StoryFigures>,
        defaults: &[StoryFigures],
    ) -> Option<Self> {
        let share = mean(stories.iter().filter_map(StoryFigures::share))?;
        let ratios = stories.iter().zip(defaults).map(|(here, there)| {
            (here.ksmd_cpu_seconds + LEAST_SECONDS) / (there.ksmd_cpu_seconds + LEAST_SECONDS)
        });
        Some(Self { values, share, cpu: mean(ratios)?, stories })
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(gib_seconds: f64, attainable_gib_seconds: f64, ksmd_cpu_seconds: f64) -> StoryFigures {
        StoryFigures { gib_seconds, attainable_gib_seconds, ksmd_cpu_seconds }
    }

    #[test]
    fn stories_count_equally_and_those_without_savings_count_by_their_cpu() {
        let defaults = [figures(5.0, 10.0, 1.9), figures(900.0, 1000.0, 99.9), figures(0.0, 0.0, 0.0)];
        let usual = TunePoint::from_stories(vec![1.0], defaults.to_vec(), &defaults).unwrap();
        assert!((usual.share - 0.7).abs() < 1e-9 && (usual.cpu - 1.0).abs() < 1e-9, "{usual:?}");
        let other = [figures(10.0, 10.0, 3.9), figures(500.0, 1000.0, 49.9), figures(0.0, 0.0, 0.05)];
        let other = TunePoint::from_stories(vec![2.0], other.to_vec(), &defaults).unwrap();
        assert!((other.share - 0.75).abs() < 1e-9, "{other:?}");
        assert!((other.cpu - (2.0 + 0.5 + 1.5) / 3.0).abs() < 1e-9, "{other:?}");
        assert_eq!(TunePoint::from_stories(Vec::new(), vec![defaults[2]], &defaults[2..]), None);
    }
}
