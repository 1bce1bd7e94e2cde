//! The Pareto front: the points that no other point beats in both saved memory and CPU, and where the defaults lie.

use schemars::JsonSchema;
use serde::Serialize;

use super::point::TunePoint;

/// Returns true if `one` saves no less for no more CPU than `other`, and is better in one of both.
pub(super) fn dominates(one: &TunePoint, other: &TunePoint) -> bool {
    one.share >= other.share && one.cpu <= other.cpu && (one.share > other.share || one.cpu < other.cpu)
}

/// The points that no other dominates, by CPU. Of points with the same figures the first is kept.
pub(super) fn front(points: &[TunePoint]) -> Vec<&TunePoint> {
    let mut sorted: Vec<&TunePoint> = points.iter().collect();
    // The sort is stable. Of equal CPU, the point that saves most comes first.
    sorted.sort_by(|a, b| a.cpu.total_cmp(&b.cpu).then(b.share.total_cmp(&a.share)));
    let mut most = f64::NEG_INFINITY;
    sorted.retain(|point| {
        let is_better = point.share > most;
        most = most.max(point.share);
        is_better
    });
    sorted
}

/// The position of the defaults relative to the Pareto front.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DefaultsPosition {
    /// True if no point that was tried dominates the defaults.
    pub is_on_front: bool,
    /// Number of points that dominate them.
    pub dominated_by: usize,
    /// Number of points that are no worse in any story, in saved memory and in CPU, and better in one.
    pub better_everywhere: usize,
    /// The point of least CPU that saves no less.
    pub cheapest: Option<TunePoint>,
    /// The point that saves most for no more CPU.
    pub fullest: Option<TunePoint>,
    /// The point of least CPU among those that are better everywhere.
    pub cheapest_everywhere: Option<TunePoint>,
}

impl DefaultsPosition {
    /// Compares the defaults with all that was tried.
    pub(super) fn from_points(defaults: &TunePoint, points: &[TunePoint]) -> Self {
        let better: Vec<TunePoint> = points.iter().filter(|point| dominates(point, defaults)).cloned().collect();
        let everywhere: Vec<TunePoint> =
            better.iter().filter(|point| is_no_worse_anywhere(point, defaults)).cloned().collect();
        let best = front(&better);
        Self {
            is_on_front: better.is_empty(),
            dominated_by: better.len(),
            better_everywhere: everywhere.len(),
            // The front goes from the least CPU, and so the least saved, to the most of both.
            cheapest: best.first().copied().cloned(),
            fullest: best.last().copied().cloned(),
            cheapest_everywhere: front(&everywhere).first().copied().cloned(),
        }
    }
}

fn is_no_worse_anywhere(point: &TunePoint, defaults: &TunePoint) -> bool {
    point.stories.iter().zip(&defaults.stories).all(|(here, there)| {
        here.gib_seconds >= there.gib_seconds && here.ksmd_cpu_seconds <= there.ksmd_cpu_seconds
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::point::StoryFigures;
    use super::*;

    fn point(share: f64, cpu: f64) -> TunePoint {
        let figures =
            StoryFigures { gib_seconds: share * 10.0, attainable_gib_seconds: 10.0, ksmd_cpu_seconds: cpu * 3.0 };
        TunePoint { values: vec![cpu], share, cpu, stories: vec![figures] }
    }

    #[test]
    fn the_defaults_lie_on_the_front_or_are_dominated_by_so_many() {
        let defaults = point(0.9, 1.0);
        let alone =
            DefaultsPosition::from_points(&defaults, &[defaults.clone(), point(0.95, 1.5), point(0.5, 0.1)]);
        assert_eq!((alone.is_on_front, alone.dominated_by, alone.cheapest), (true, 0, None));
        let tried = [defaults.clone(), point(0.9, 0.7), point(0.92, 0.8), point(0.97, 1.0), point(0.91, 0.9)];
        let place = DefaultsPosition::from_points(&defaults, &tried);
        assert_eq!((place.is_on_front, place.dominated_by), (false, 4));
        assert_eq!(place.cheapest, Some(point(0.9, 0.7)));
        assert_eq!(place.fullest, Some(point(0.97, 1.0)));
        assert_eq!((place.better_everywhere, place.cheapest_everywhere), (4, Some(point(0.9, 0.7))));
    }

    #[test]
    fn one_that_is_worse_in_one_story_is_not_better_everywhere() {
        let two = |first: f64, second: f64, cpu: f64| {
            let stories = [point(first, cpu), point(second, cpu)].map(|point| point.stories[0]).to_vec();
            TunePoint { stories, ..point((first + second) / 2.0, cpu) }
        };
        let defaults = two(0.8, 0.8, 1.0);
        let place = DefaultsPosition::from_points(&defaults, &[two(0.99, 0.79, 0.5), two(0.81, 0.8, 0.9)]);
        assert_eq!((place.dominated_by, place.better_everywhere), (2, 1));
        assert_eq!(place.cheapest_everywhere, Some(two(0.81, 0.8, 0.9)));
    }

    proptest! {
        #[test]
        fn the_front_is_all_that_no_other_dominates_and_nothing_else(
            // Few values, so that many points are equal in one of both.
            figures in prop::collection::vec((0_u8..12, 0_u8..12), 0..60),
        ) {
            let points: Vec<TunePoint> =
                figures.iter().map(|(share, cpu)| point(f64::from(*share) / 12.0, f64::from(*cpu))).collect();
            let front = front(&points);
            let is_there = |it: &TunePoint| front.iter().any(|on| (on.share, on.cpu) == (it.share, it.cpu));
            for it in &points {
                let is_dominated = points.iter().any(|other| dominates(other, it));
                prop_assert_eq!(is_there(it), !is_dominated, "{:?}", it);
            }
            prop_assert!(front.is_sorted_by(|one, next| one.cpu < next.cpu && one.share < next.share));
        }
    }
}
