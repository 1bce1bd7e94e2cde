//! The past: it fills the charts, and a replay steps through it.

use super::decisions::ShownDecision;
use super::figures::HeaderFigures;

/// Moments of a jump.
pub const JUMP: isize = 10;

/// The host at a recorded moment.
#[derive(Debug, Clone, PartialEq)]
pub struct PastMoment {
    /// Seconds since `ksmith top` started: negative.
    pub at: f64,
    /// The time of the day, for people.
    pub clock: String,
    /// The figures of the host.
    pub figures: HeaderFigures,
}

/// A part of the history.
#[derive(Debug, Clone, Default)]
pub struct PastFigures {
    /// The moments, the oldest first.
    pub moments: Vec<PastMoment>,
    /// The decisions, the oldest first.
    pub decisions: Vec<ShownDecision>,
}

/// A replay: recorded moments, and the one that is shown.
#[derive(Debug, Clone)]
pub(super) struct ReplayState {
    moments: Vec<PastMoment>,
    place: usize,
}

impl ReplayState {
    /// Begins at the first moment that is not before `at`, in seconds since `ksmith top` started.
    pub(super) fn new(moments: Vec<PastMoment>, at: f64) -> Self {
        let last = moments.len().saturating_sub(1);
        let place = moments.iter().position(|moment| moment.at >= at).unwrap_or(last);
        Self { moments, place }
    }

    /// Returns the moment that is shown. `None` if nothing was recorded.
    pub(super) fn moment(&self) -> Option<&PastMoment> {
        self.moments.get(self.place)
    }

    /// Steps by so many moments, as far as there are some. Returns true if another one is shown.
    pub(super) fn step(&mut self, by: isize) -> bool {
        let last = self.moments.len().saturating_sub(1);
        let place = self.place.saturating_add_signed(by).min(last);
        std::mem::replace(&mut self.place, place) != place
    }

    /// Returns the place of the moment in words: `3 of 120`.
    pub(super) fn place_in_words(&self) -> String {
        format!("{} of {}", (self.place + 1).min(self.moments.len()), self.moments.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay_from(at: f64) -> ReplayState {
        let moment = |at| PastMoment { at, clock: String::new(), figures: HeaderFigures::default() };
        ReplayState::new([-30.0, -20.0, -10.0].map(moment).to_vec(), at)
    }

    #[test]
    fn a_replay_begins_at_its_time_and_ends_at_its_ends() {
        let mut replay = replay_from(-25.0);
        let mut after = |by| (replay.step(by), replay.place_in_words());
        assert_eq!(after(0), (false, "2 of 3".to_owned()));
        assert_eq!(after(1), (true, "3 of 3".to_owned()));
        assert_eq!(after(JUMP), (false, "3 of 3".to_owned()));
        assert_eq!(after(-JUMP), (true, "1 of 3".to_owned()));
        assert_eq!(replay_from(0.0).moment().map(|moment| moment.at), Some(-10.0), "the last");
    }

    #[test]
    fn a_past_without_moments_has_none() {
        let mut empty = ReplayState::new(Vec::new(), 0.0);
        assert!(!empty.step(1) && empty.moment().is_none());
        assert_eq!(empty.place_in_words(), "0 of 0");
    }
}
