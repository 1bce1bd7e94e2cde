//! The search: CMA-ES (Hansen) in several directions at once, each from the defaults.
//!
//! A direction is a ratio of what is lost to what is spent, both relative to the defaults. It leads to the point of the front at which they
//! are in that ratio: `max(loss / sqrt(ratio), cpu * sqrt(ratio))` is least there. In the direction 1 that is the point that lies
//! before the defaults.

use cmaes::{CMAES, CMAESOptions, DVector};

/// The directions, the one through the defaults first.
const DIRECTIONS: [f64; 5] = [1.0, 0.25, 4.0, 0.5, 2.0];

/// The part of the sum of both that counts besides the greater one, so that of points equal in that the better one is found.
const BESIDE: f64 = 0.01;

/// The initial step size, as a part of the way from the least value to the greatest one.
const FIRST_STEP: f64 = 0.15;

/// The badness of a refused point: worse than that of all that can be played.
const REFUSED: f64 = 1e9;

/// The costs of a point: unsaved memory and CPU time, relative to those of the defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RelativeCost {
    pub loss: f64,
    pub cpu: f64,
}

impl RelativeCost {
    /// Returns the weighted cost in a direction: the less, the better.
    fn badness(self, direction: f64) -> f64 {
        let (loss, cpu) = (self.loss / direction.sqrt(), self.cpu * direction.sqrt());
        loss.max(cpu) + BESIDE * (loss + cpu)
    }
}

/// The outcome of trying a point, as the search receives it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TrialOutcome {
    /// The point was played.
    Played(RelativeCost),
    /// Its settings are refused. It was not played.
    Refused,
    /// The search is to end.
    Stopped,
}

/// Searches from a point in all directions, by whole generations in turn. The search ends after `places` points, on a
/// stop, or if all directions have converged. `try_out` is called from several threads of the caller's pool, with the
/// same points for the same seed. `after` receives the number of points tried so far.
///
/// Returns the number of points that were tried.
pub(super) fn search(
    from: &[f64],
    (places, seed): (usize, u64),
    try_out: &(dyn Fn(&[f64]) -> TrialOutcome + Sync),
    after: &dyn Fn(usize),
) -> usize {
    let mut searches: Vec<_> =
        DIRECTIONS.iter().filter_map(|direction| one(from, *direction, seed, try_out)).collect();
    let mut tried = 0;
    while tried < places && !searches.is_empty() {
        let mut next = Vec::new();
        for mut search in searches {
            if tried >= places {
                break;
            }
            let before = search.function_evals();
            // A direction ends when its generation is all the same, or on a stop.
            let has_ended = search.next_parallel().is_some();
            tried += search.function_evals() - before;
            after(tried);
            if !has_ended {
                next.push(search);
            }
        }
        searches = next;
    }
    tried
}

/// The search in one direction.
fn one<'a>(
    from: &[f64],
    direction: f64,
    seed: u64,
    try_out: &'a (dyn Fn(&[f64]) -> TrialOutcome + Sync),
) -> Option<CMAES<impl Fn(&DVector<f64>) -> f64 + Sync + 'a>> {
    let badness = move |place: &DVector<f64>| match try_out(place.as_slice()) {
        TrialOutcome::Played(relative) => relative.badness(direction),
        TrialOutcome::Refused => REFUSED,
        // CMA-ES ends on what is no number.
        TrialOutcome::Stopped => f64::NAN,
    };
    // Directions draw different numbers.
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(direction.to_bits());
    // It refuses no options but a search without a key, for which there is nothing to do.
    CMAESOptions::new(from.to_vec(), FIRST_STEP).seed(seed).build(badness).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Loss and CPU, with a front from (0.1, 10) to (10, 0.1), where the second number is 0.5.
    fn play(place: &[f64]) -> RelativeCost {
        let along = 10_f64.powf(2.0 * place[0] - 1.0);
        let beside = 1.0 + 10.0 * (place[1] - 0.5).powi(2);
        RelativeCost { loss: along * beside, cpu: beside / along }
    }

    fn tried(seed: u64, places: usize) -> Vec<Vec<f64>> {
        let seen = Mutex::new(Vec::new());
        let try_out = |place: &[f64]| {
            seen.lock().unwrap().push(place.to_vec());
            TrialOutcome::Played(play(place))
        };
        let count = search(&[0.5, 0.9], (places, seed), &try_out, &|_| ());
        let mut seen = seen.into_inner().unwrap();
        assert_eq!(count, seen.len());
        // Threads come to them in any order.
        seen.sort_by(|a, b| a.partial_cmp(b).unwrap());
        seen
    }

    #[test]
    fn the_same_seed_tries_the_same_places() {
        assert_eq!(tried(1, 60), tried(1, 60));
        assert_ne!(tried(1, 60), tried(2, 60));
    }

    #[test]
    fn so_many_places_are_tried_in_whole_generations() {
        let count = tried(1, 50).len();
        assert!((50..60).contains(&count), "{count}");
    }

    #[test]
    fn each_direction_finds_its_point_of_the_front() {
        let places = tried(3, 800);
        for direction in DIRECTIONS {
            let least = places.iter().map(|place| play(place).badness(direction)).fold(f64::INFINITY, f64::min);
            // loss = sqrt(ratio) and cpu = 1 / sqrt(ratio).
            assert!(least < 1.02 * (1.0 + 2.0 * BESIDE), "{direction}: {least}");
        }
    }

    #[test]
    fn refused_places_are_left_and_a_stop_ends_the_search_at_once() {
        let best = Mutex::new(f64::INFINITY);
        let try_out = |place: &[f64]| {
            if place[1] > 0.8 {
                return TrialOutcome::Refused;
            }
            let relative = play(place);
            let mut best = best.lock().unwrap();
            *best = best.min(relative.badness(1.0));
            TrialOutcome::Played(relative)
        };
        search(&[0.5, 0.9], (400, 1), &try_out, &|_| ());
        assert!(*best.lock().unwrap() < 1.05, "{best:?}");
        let calls = AtomicUsize::new(0);
        let stopped = |_: &[f64]| {
            calls.fetch_add(1, Ordering::Relaxed);
            TrialOutcome::Stopped
        };
        search(&[0.5, 0.5], (100_000, 1), &stopped, &|_| ());
        assert!(calls.into_inner() < 100);
    }
}
