//! The first poll of a new guest: it is asked again soon, and failures do not count for a while.
//!
//! A guest is discovered within a tenth of a second of its start, before its console or monitor is there. A failure
//! then says nothing about the guest.

use std::time::Duration;

/// The first interval between two polls; each is twice the one before.
const FIRST: Duration = Duration::from_millis(100);
/// The longest interval between two polls.
const LONGEST: Duration = Duration::from_secs(5);

/// The time after its discovery during which failures do not count.
const GRACE: Duration = Duration::from_secs(60);

/// The first poll of one new guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FirstPoll {
    discovered: Duration,
    /// When the next poll is due.
    pub due: Duration,
    pause: Duration,
}

impl FirstPoll {
    /// Creates a first poll that is due at once.
    pub(super) fn new(now: Duration) -> Self {
        Self { discovered: now, due: now, pause: FIRST }
    }

    /// Schedules a retry after a failure. Returns true if another poll follows.
    pub(super) fn retry(&mut self, now: Duration) -> bool {
        self.due = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST);
        self.due < self.discovered + GRACE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_guest_is_asked_soon_then_less_often_and_not_for_ever() {
        let mut first_poll = FirstPoll::new(Duration::from_secs(7));
        let mut asked = vec![];
        let mut now = first_poll.due;
        while first_poll.retry(now) {
            asked.push((first_poll.due - now).as_millis());
            now = first_poll.due;
        }
        assert_eq!(asked[..7], [100, 200, 400, 800, 1600, 3200, 5000]);
        assert!(now < Duration::from_secs(67) && asked.len() < 20, "{now:?} {asked:?}");
    }
}
