//! The terms of a lease in force: the rate that was decided on, until when ksmd is woken, and when it is looked at
//! next.

use std::time::Duration;

use super::{GRACE, PacerStep, ScanRate, SleepingKsmd, WakePacer, next_value};
use crate::sample::BoundaryPause;

/// The longest time that a lease is held for.
const LONGEST_HOLD: Duration = Duration::from_secs(3600);

/// The shortest time between two looks.
const SHORTEST_LOOK: Duration = Duration::from_micros(1);

/// A lease in force. Times are those of one clock that never steps.
#[derive(Debug)]
pub struct LeaseTerms {
    pacer: WakePacer,
    rate: ScanRate,
    /// The value of `sleep_millisecs` that was written last.
    value: u64,
    /// The time until which ksmd is woken.
    until: Duration,
    /// The time of the next look at ksmd.
    due: Duration,
    is_broken: bool,
}

impl LeaseTerms {
    /// Begins a lease at a rate, for [`GRACE`]. `sleep_millisecs` has the value `value`, and ksmd had completed so many
    /// passes by then.
    pub fn new(rate: ScanRate, value: u64, completed: Option<u64>, now: Duration) -> Self {
        let pacer = WakePacer::new(rate.sleep(), rate.parts().count).since(completed);
        Self { pacer, rate, value, until: now + GRACE, due: now, is_broken: false }
    }

    /// The rate that was decided on.
    pub fn rate(&self) -> ScanRate {
        self.rate
    }

    /// True if another program has written `sleep_millisecs`. ksmd is not woken any more then.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Sets the rate at which ksmd scans. With another sleep it is woken at once, as when `sleep_millisecs` is
    /// written.
    pub fn set_rate(&mut self, rate: ScanRate, now: Duration) {
        if std::mem::replace(&mut self.rate, rate) != rate {
            self.pacer.set(rate.sleep(), rate.parts().count);
            self.due = now;
        }
    }

    /// Stops waking ksmd until the lease is held again.
    pub fn suspend(&mut self, now: Duration) {
        self.until = now;
    }

    /// Holds the lease until the next turn is due, and [`GRACE`] longer.
    pub fn hold(&mut self, until_next: Duration, now: Duration) {
        if self.until <= now {
            self.due = now;
        }
        self.until = now + until_next.min(LONGEST_HOLD) + GRACE;
    }

    /// Sets the number of completed passes at which ksmd rests. A rest ends here.
    pub fn rest_after(&mut self, full_scans: Option<u64>, now: Duration) {
        if self.pacer.is_resting() {
            self.due = now;
        }
        self.pacer.rest_after(full_scans);
    }

    /// The state of ksmd's rest at the end of a pass.
    pub fn rest(&self) -> BoundaryPause {
        match () {
            () if self.is_broken => BoundaryPause::Unavailable,
            () if self.pacer.is_resting() => BoundaryPause::Resting,
            () => BoundaryPause::Possible,
        }
    }

    /// The time of the next look. `None` until the lease is held again.
    pub fn next_look(&self, now: Duration) -> Option<Duration> {
        (!self.is_broken && self.until > now).then_some(self.due)
    }

    /// Begins a look. What is changed from here on is looked at again right after it.
    pub fn begin_look(&mut self) {
        self.due = Duration::MAX;
    }

    /// Ends the look of the time `at`: `None` is a ksmd at work. `wake` has a ksmd that sleeps for the first value make
    /// a batch, by writing the second one, and returns false if `sleep_millisecs` has another value. Returns true if
    /// ksmd has come to rest.
    pub fn end_look(
        &mut self,
        at: Duration,
        now: Duration,
        ksmd: Option<SleepingKsmd>,
        wake: impl FnOnce(u64, u64) -> bool,
    ) -> bool {
        let was_resting = self.pacer.is_resting();
        let after = match self.pacer.record_look(at, ksmd) {
            PacerStep::Look(after) => after,
            PacerStep::Wake(after) => {
                if self.until > now {
                    self.wake_ksmd(wake);
                }
                after
            }
        };
        self.due = self.due.min(now.saturating_add(after.max(SHORTEST_LOOK)));
        self.pacer.is_resting() && !was_resting
    }

    fn wake_ksmd(&mut self, wake: impl FnOnce(u64, u64) -> bool) {
        let value = next_value(self.value);
        if wake(self.value, value) {
            self.value = value;
        } else {
            self.is_broken = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const ENDLESS: ScanRate = ScanRate { runs: true, is_advised: false, pages_to_scan: 1000, sleep_ms: 0 };

    fn terms() -> LeaseTerms {
        LeaseTerms::new(ENDLESS, next_value(0), Some(3), Duration::ZERO)
    }

    fn asleep(full_scans: u64) -> Option<SleepingKsmd> {
        Some(SleepingKsmd { cpu_ns: full_scans, full_scans })
    }

    /// One look, and the value that ksmd was woken by.
    fn look_once(terms: &mut LeaseTerms, at: Duration, ksmd: Option<SleepingKsmd>) -> (bool, Option<u64>) {
        let mut woken_by = None;
        terms.begin_look();
        let comes_to_rest = terms.end_look(at, at, ksmd, |_, to| {
            woken_by = Some(to);
            true
        });
        (comes_to_rest, woken_by)
    }

    #[test]
    fn ksmd_is_woken_while_the_lease_is_held_and_no_longer() {
        let mut terms = terms();
        assert_eq!(terms.next_look(Duration::ZERO), Some(Duration::ZERO));
        let (_, first) = look_once(&mut terms, Duration::ZERO, asleep(3));
        assert_eq!(first, Some(next_value(next_value(0))));
        assert_eq!(
            (terms.next_look(GRACE), look_once(&mut terms, GRACE, asleep(4)).1),
            (None, None),
            "it has run out"
        );
        terms.hold(SECOND, 2 * SECOND);
        assert_eq!(terms.next_look(2 * SECOND), Some(2 * SECOND), "held again, ksmd is looked at once");
        assert_eq!(look_once(&mut terms, 2 * SECOND, asleep(5)).1, first.map(next_value));
        terms.suspend(2 * SECOND);
        assert_eq!(terms.next_look(2 * SECOND), None);
    }

    #[test]
    fn what_is_changed_during_a_look_is_looked_at_right_after_it() {
        let mut terms = terms();
        terms.begin_look();
        terms.set_rate(ScanRate { sleep_ms: 20, ..ENDLESS }, SECOND / 4);
        terms.end_look(Duration::ZERO, SECOND / 2, None, |_, _| true);
        assert_eq!(terms.next_look(SECOND / 2), Some(SECOND / 4));
    }

    #[test]
    fn a_rest_is_told_once_and_ends_with_the_next_decision() {
        let mut terms = terms();
        terms.rest_after(Some(4), Duration::ZERO);
        assert_eq!(
            (look_once(&mut terms, Duration::ZERO, asleep(3)).0, terms.rest()),
            (false, BoundaryPause::Possible)
        );
        assert_eq!(
            (look_once(&mut terms, SECOND / 4, asleep(4)), terms.rest()),
            ((true, None), BoundaryPause::Resting)
        );
        assert_eq!(look_once(&mut terms, SECOND / 2, asleep(4)), (false, None));
        terms.rest_after(Some(5), SECOND / 2);
        assert_eq!((terms.rest(), terms.next_look(SECOND / 2)), (BoundaryPause::Possible, Some(SECOND / 2)));
        assert!(look_once(&mut terms, SECOND / 2, asleep(4)).1.is_some());
    }

    #[test]
    fn a_lease_that_another_program_has_broken_wakes_no_more() {
        let mut terms = terms();
        terms.begin_look();
        terms.end_look(Duration::ZERO, Duration::ZERO, asleep(3), |_, _| false);
        assert!(terms.is_broken());
        assert_eq!((terms.rest(), terms.next_look(Duration::ZERO)), (BoundaryPause::Unavailable, None));
    }
}
