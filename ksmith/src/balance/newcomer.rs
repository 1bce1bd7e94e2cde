//! A guest that was met and has told nothing yet: it is asked again soon, and forgiven for a while.
//!
//! A guest is met within a tenth of a second of its start, before its console or monitor is there. What fails then says
//! nothing about the guest.

use std::time::Duration;

/// How soon it is asked again, doubling up to the second.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// From so long after it was met on it counts as everybody else.
const GROWN_UP: Duration = Duration::from_secs(60);

/// How it goes with one newcomer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Newcomer {
    met: Duration,
    /// When it is asked.
    pub due: Duration,
    pause: Duration,
}

impl Newcomer {
    /// One that is asked at once.
    pub(super) fn met(now: Duration) -> Self {
        Self { met: now, due: now, pause: FIRST }
    }

    /// Notes that it told nothing. Returns whether it is asked again by itself.
    pub(super) fn forgive(&mut self, now: Duration) -> bool {
        self.due = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST);
        self.due < self.met + GROWN_UP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_soon_then_less_often_and_not_for_ever() {
        let mut newcomer = Newcomer::met(Duration::from_secs(7));
        let mut asked = vec![];
        let mut now = newcomer.due;
        while newcomer.forgive(now) {
            asked.push((newcomer.due - now).as_millis());
            now = newcomer.due;
        }
        assert_eq!(asked[..7], [100, 200, 400, 800, 1600, 3200, 5000]);
        assert!(now < Duration::from_secs(67) && asked.len() < 20, "{now:?} {asked:?}");
    }
}
