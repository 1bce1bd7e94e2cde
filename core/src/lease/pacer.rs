//! The rhythm in which ksmd is woken for its next batch, and looked at to see if it sleeps.
//!
//! Nothing tells that a batch has ended. So the end is looked for: not before it can be there, and then the more often
//! the shorter the batch.

use std::time::Duration;

/// The part of the expected time after which the end of a batch is looked for first, where ksmd is not to sleep behind
/// it.
const FIRST_LOOK: f64 = 0.82;

/// Behind a batch with a sleep: the part of the sleep after the expected end. By then most batches are over, and ksmd's
/// CPU time says when they ended.
const INTO_SLEEP: u32 = 4;

/// The part of the time since ksmd was woken after which to look again, or the part of its sleep.
const OF_BATCH: u32 = 40;
const OF_SLEEP: u32 = 2;

/// The shortest and the longest time between two looks.
const SHORTEST: Duration = Duration::from_micros(80);
const LONGEST: Duration = Duration::from_millis(100);

/// The time between two looks at a ksmd that rests: only another program wakes it.
const RESTING: Duration = Duration::from_secs(1);

/// The shortest time from one waking to the next look: passes over little memory may end sooner, and need not be many.
const SHORTEST_BATCH: Duration = Duration::from_micros(300);

/// The state of a ksmd that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleepingKsmd {
    /// Its CPU time.
    pub cpu_ns: u64,
    /// Passes that it has completed.
    pub full_scans: u64,
}

/// The next step after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacerStep {
    /// Look again after this time.
    Look(Duration),
    /// Wake ksmd now, and look again after this time.
    Wake(Duration),
}

/// The rhythm of one ksmd: when it was woken, how long its batches take, and how long it is to sleep.
#[derive(Debug, Clone)]
pub struct WakePacer {
    sleep: Duration,
    /// Parts that a batch is made in.
    parts: u64,
    /// Parts of the present batch for which ksmd is still to be woken.
    left: u64,
    /// The duration of the last part.
    took: Duration,
    woken: Option<SleepObservation>,
    /// The moment at which ksmd was first seen asleep since.
    ended: Option<SleepObservation>,
    /// The time when it was last seen at work.
    worked: Duration,
    /// Consecutive wake-ups in which ksmd did nothing: no process offers memory.
    idle_wakings: u32,
    wakes_at_once: bool,
    /// Passes that ksmd will have completed when it is to rest.
    rest_after: Option<u64>,
    /// Passes that it had completed when the lease began.
    completed: Option<u64>,
    is_resting: bool,
}

/// A ksmd that slept at a moment.
#[derive(Debug, Clone, Copy)]
struct SleepObservation {
    at: Duration,
    ksmd: SleepingKsmd,
}

impl WakePacer {
    /// A pacer for a ksmd that makes each batch in so many parts, and is to sleep so long after it. The first sleep
    /// begins when ksmd is first seen asleep.
    pub fn new(sleep: Duration, parts: u64) -> Self {
        Self {
            sleep,
            parts: parts.max(1),
            left: 0,
            took: Duration::ZERO,
            woken: None,
            ended: None,
            worked: Duration::ZERO,
            idle_wakings: 0,
            wakes_at_once: false,
            rest_after: None,
            completed: None,
            is_resting: false,
        }
    }

    /// The same of a ksmd that had completed so many passes when its sleep was the lease's already.
    #[must_use]
    pub fn since(self, completed: Option<u64>) -> Self {
        Self { completed, ..self }
    }

    /// Sets the number of completed passes at which ksmd rests, at the end of the last of them. A rest ends here: what
    /// comes next is decided.
    pub fn rest_after(&mut self, full_scans: Option<u64>) {
        self.rest_after = full_scans;
        self.is_resting = false;
    }

    /// Returns true if ksmd rests at the end of a pass, where it is not woken any more.
    pub fn is_resting(&self) -> bool {
        self.is_resting
    }

    /// Changes the sleep and the parts. With another sleep ksmd is woken if the next look finds it asleep: so does the
    /// kernel when `sleep_millisecs` is written.
    pub fn set(&mut self, sleep: Duration, parts: u64) {
        self.wakes_at_once |= sleep != self.sleep;
        self.sleep = sleep;
        self.parts = parts.max(1);
        self.left = self.left.min(self.parts - 1);
    }

    /// Records a look: `None` is a ksmd at work. ksmd is woken no earlier than its sleep after the end of its batch,
    /// but for the next part of its batch in the same pass. That end is where ksmd's CPU time puts it, and not before
    /// ksmd was seen at work. The time that it waited for a CPU otherwise counts as slept.
    pub fn record_look(&mut self, at: Duration, ksmd: Option<SleepingKsmd>) -> PacerStep {
        let Some(ksmd) = ksmd else {
            self.worked = at;
            self.ended = None;
            self.is_resting = false;
            self.wakes_at_once = false;
            return PacerStep::Look(self.until_next(at));
        };
        let ended = match self.ended {
            Some(ended) if ended.ksmd.cpu_ns == ksmd.cpu_ns => ended.at,
            // Another than ksmith has woken it meanwhile, and it is not known until when it worked.
            Some(_) => {
                self.left = 0;
                self.is_resting = false;
                self.ended.insert(SleepObservation { at, ksmd }).at
            }
            None => {
                self.is_resting = self.has_come_to_rest(ksmd);
                let at = self.learn(SleepObservation { at, ksmd });
                self.ended.insert(SleepObservation { at, ksmd }).at
            }
        };
        if self.is_resting {
            return PacerStep::Look(RESTING);
        }
        let due = ended.saturating_add(self.sleep_after_part()).saturating_add(self.back_off());
        if at < due && !self.wakes_at_once {
            return PacerStep::Look(due - at);
        }
        self.left = if self.left > 0 && !self.wakes_at_once { self.left - 1 } else { self.parts - 1 };
        self.woken = Some(SleepObservation { at, ksmd });
        self.ended = None;
        self.wakes_at_once = false;
        let first = match self.sleep_after_part() {
            Duration::ZERO => self.took.mul_f64(FIRST_LOOK),
            sleep => self.took.saturating_add(sleep / INTO_SLEEP),
        };
        PacerStep::Wake(first.clamp(SHORTEST_BATCH, LONGEST))
    }

    /// Returns true if the part that has ended has brought ksmd to the end where it is to rest. The end of a pass cuts
    /// a part short.
    fn has_come_to_rest(&self, now: SleepingKsmd) -> bool {
        let before = self.woken.map(|woken| woken.ksmd.full_scans).or(self.completed);
        before
            .zip(self.rest_after)
            .is_some_and(|(before, rest_after)| before < rest_after && rest_after == now.full_scans)
    }

    /// Records that ksmd was first seen asleep: the part that it was woken for ended between the look before and this
    /// one. Returns the time of that end.
    fn learn(&mut self, now: SleepObservation) -> Duration {
        let Some(woken) = self.woken else { return now.at };
        let is_pass_over = now.ksmd.full_scans != woken.ksmd.full_scans;
        let has_worked = self.worked > woken.at || now.ksmd.cpu_ns != woken.ksmd.cpu_ns;
        if is_pass_over || !has_worked {
            self.left = 0;
        }
        if !has_worked {
            self.idle_wakings = self.idle_wakings.saturating_add(1);
            return now.at;
        }
        self.idle_wakings = 0;
        let took = now.at.saturating_sub(woken.at);
        // Its CPU time says how long it took, unless it had to wait for a CPU.
        let worked = Duration::from_nanos(now.ksmd.cpu_ns.saturating_sub(woken.ksmd.cpu_ns)).min(took);
        let ended = (woken.at + worked).max(self.worked);
        let looks_often = self.sleep_after_part().is_zero() && self.worked > woken.at;
        let until = if looks_often { now.at.saturating_sub(now.at.saturating_sub(self.worked) / 2) } else { ended };
        self.took = until.saturating_sub(woken.at);
        ended
    }

    /// The time to the next look at a ksmd that works.
    fn until_next(&self, now: Duration) -> Duration {
        let since = self.woken.map_or(Duration::ZERO, |woken| now.saturating_sub(woken.at));
        (since / OF_BATCH).max(self.sleep_after_part() / OF_SLEEP).clamp(SHORTEST, LONGEST)
    }

    /// Returns the time that ksmd is to sleep after the present part.
    fn sleep_after_part(&self) -> Duration {
        if self.left > 0 { Duration::ZERO } else { self.sleep }
    }

    /// The time to leave a ksmd alone that had nothing to do.
    fn back_off(&self) -> Duration {
        if self.idle_wakings == 0 {
            return Duration::ZERO;
        }
        Duration::from_millis(1 << self.idle_wakings.min(7)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// The record of a ksmd over a second: its sleeps, and the number of looks at it. A sleep is marked if the part
    /// before it was the last of a batch or ended a pass.
    struct PacerRecord {
        sleeps: Vec<(Duration, bool)>,
        looks: u32,
    }

    impl PacerRecord {
        fn idle(&self) -> Duration {
            self.sleeps.iter().skip(2).map(|(sleep, _)| *sleep).sum()
        }
    }

    /// A ksmd that is woken by a pacer. Its parts last as long as they are told to, and end a pass now and then.
    fn play(
        mut pacer: WakePacer,
        parts: u64,
        part: impl Fn(usize) -> Duration,
        ends_pass: impl Fn(usize) -> bool,
    ) -> PacerRecord {
        let (mut now, mut until) = (us(1), us(0));
        let mut ksmd = SleepingKsmd { cpu_ns: 0, full_scans: 0 };
        let mut played = PacerRecord { sleeps: Vec::new(), looks: 0 };
        let (mut made, mut is_over) = (0, true);
        while now < Duration::from_secs(1) {
            played.looks += 1;
            let is_asleep = now >= until;
            match pacer.record_look(now, is_asleep.then_some(ksmd)) {
                PacerStep::Look(after) => now += after,
                PacerStep::Wake(after) => {
                    assert!(is_asleep, "a ksmd at work does not hear it");
                    played.sleeps.push((now - until, is_over));
                    let count = played.sleeps.len();
                    until = now + part(count);
                    ksmd.cpu_ns += (until - now).as_nanos() as u64;
                    ksmd.full_scans += u64::from(ends_pass(count));
                    made = if is_over { 1 } else { made + 1 };
                    is_over = made == parts || ends_pass(count);
                    now += after;
                }
            }
        }
        played
    }

    fn undivided(sleep: Duration, batch: impl Fn(usize) -> Duration) -> PacerRecord {
        play(WakePacer::new(sleep, 1), 1, batch, |_| false)
    }

    #[test]
    fn a_ksmd_that_is_not_to_sleep_hardly_does() {
        for batch in [us(2000), us(5000), us(9000), us(40_000)] {
            // From one to the next they differ by a tenth.
            let played = undivided(us(0), |n| batch + batch / 10 * (n as u32 % 3));
            let (idle, looks, batches) = (played.idle(), played.looks, played.sleeps.len());
            assert!(idle < Duration::from_secs(1) * 3 / 100, "{batch:?}: {idle:?} idle");
            assert!(looks < 16 * batches as u32 + 50, "{batch:?}: {looks} looks for {batches} batches");
        }
    }

    #[test]
    fn batches_that_grow_fivefold_cost_no_more() {
        let idle = undivided(us(0), |n| if n % 60 < 30 { us(1600) } else { us(8000) }).idle();
        assert!(idle < Duration::from_secs(1) * 4 / 100, "{idle:?} idle");
    }

    #[test]
    fn a_ksmd_without_work_is_left_alone() {
        let PacerRecord { sleeps, looks } = undivided(us(0), |_| us(0));
        assert!(sleeps.len() < 30 && looks < 60, "{} wakings, {looks} looks", sleeps.len());
    }

    fn asleep(at: Duration) -> Option<SleepingKsmd> {
        Some(SleepingKsmd { cpu_ns: at.as_nanos() as u64, full_scans: 0 })
    }

    #[test]
    fn another_sleep_wakes_at_once_and_the_same_does_not() {
        let mut pacer = WakePacer::new(us(500_000), 1);
        let since = asleep(us(1));
        assert_eq!(pacer.record_look(us(1), since), PacerStep::Look(us(500_000)));
        pacer.set(us(500_000), 1);
        assert_eq!(pacer.record_look(us(1001), since), PacerStep::Look(us(499_000)));
        pacer.set(us(100_000), 1);
        assert!(matches!(pacer.record_look(us(4000), since), PacerStep::Wake(_)));
        let since = asleep(us(6000));
        assert_eq!(pacer.record_look(us(6000), since), PacerStep::Look(us(100_000)));
        // A ksmd at work does not hear it, and sleeps after its batch for as long as it is to now.
        assert!(matches!(pacer.record_look(us(106_000), since), PacerStep::Wake(_)));
        pacer.set(us(50_000), 1);
        assert!(matches!(pacer.record_look(us(107_000), None), PacerStep::Look(_)));
        assert_eq!(pacer.record_look(us(108_000), asleep(us(108_000))), PacerStep::Look(us(50_000)));
    }

    #[test]
    fn a_ksmd_that_another_has_woken_sleeps_anew() {
        let mut pacer = WakePacer::new(us(500_000), 1);
        assert_eq!(pacer.record_look(us(0), asleep(us(0))), PacerStep::Look(us(500_000)));
        // A process that offers memory has it scan, and it is asleep again by the time that it is looked at.
        let since = asleep(us(499_000));
        assert_eq!(pacer.record_look(us(500_000), since), PacerStep::Look(us(500_000)));
        assert!(matches!(pacer.record_look(us(1_000_000), since), PacerStep::Wake(_)));
    }

    fn at_pass(at: Duration, full_scans: u64) -> Option<SleepingKsmd> {
        Some(SleepingKsmd { cpu_ns: at.as_nanos() as u64, full_scans })
    }

    #[test]
    fn ksmd_rests_where_it_is_told_to_until_it_is_told_what_comes_next() {
        let mut pacer = WakePacer::new(us(0), 1);
        pacer.rest_after(Some(5));
        assert!(matches!(pacer.record_look(us(1), at_pass(us(1), 3)), PacerStep::Wake(_)));
        assert!(matches!(pacer.record_look(us(2000), at_pass(us(2000), 4)), PacerStep::Wake(_)), "not this pass");
        assert!(matches!(pacer.record_look(us(3000), None), PacerStep::Look(_)));
        assert_eq!(pacer.record_look(us(4000), at_pass(us(3900), 5)), PacerStep::Look(RESTING));
        assert!(pacer.is_resting());
        assert_eq!(pacer.record_look(us(900_000), at_pass(us(3900), 5)), PacerStep::Look(RESTING));
        pacer.rest_after(Some(6));
        assert!(!pacer.is_resting());
        assert!(matches!(pacer.record_look(us(900_100), at_pass(us(3900), 5)), PacerStep::Wake(_)));
        assert_eq!(pacer.record_look(us(903_000), at_pass(us(903_000), 6)), PacerStep::Look(RESTING));
    }

    #[test]
    fn a_ksmd_that_was_past_that_end_does_not_rest_in_the_middle_of_a_pass() {
        let mut pacer = WakePacer::new(us(0), 1).since(Some(5));
        pacer.rest_after(Some(5));
        assert!(matches!(pacer.record_look(us(1000), at_pass(us(1000), 5)), PacerStep::Wake(_)));
        assert!(matches!(pacer.record_look(us(2000), at_pass(us(2000), 5)), PacerStep::Wake(_)));
        // It is seen for the first time after the end: where it stands is not known.
        let mut pacer = WakePacer::new(us(0), 1);
        pacer.rest_after(Some(5));
        assert!(matches!(pacer.record_look(us(1000), at_pass(us(1000), 5)), PacerStep::Wake(_)));
    }

    #[test]
    fn a_pass_that_ends_in_the_first_batch_of_a_lease_ends_where_ksmd_rests() {
        let mut pacer = WakePacer::new(us(0), 1).since(Some(4));
        pacer.rest_after(Some(5));
        assert!(matches!(pacer.record_look(us(500), None), PacerStep::Look(_)));
        assert_eq!(pacer.record_look(us(1000), at_pass(us(1000), 5)), PacerStep::Look(RESTING));
    }

    #[test]
    fn a_ksmd_that_another_has_woken_does_not_rest() {
        let mut pacer = WakePacer::new(us(0), 1).since(Some(4));
        pacer.rest_after(Some(5));
        assert_eq!(pacer.record_look(us(1000), at_pass(us(1000), 5)), PacerStep::Look(RESTING));
        // It was woken and sleeps again, or is at work still.
        assert!(matches!(pacer.record_look(us(2000), at_pass(us(1900), 5)), PacerStep::Wake(_)));
        assert!(!pacer.is_resting());
        let mut pacer = WakePacer::new(us(0), 1).since(Some(4));
        pacer.rest_after(Some(5));
        assert_eq!(pacer.record_look(us(1000), at_pass(us(1000), 5)), PacerStep::Look(RESTING));
        assert!(matches!(pacer.record_look(us(2000), None), PacerStep::Look(_)));
        assert!(!pacer.is_resting());
    }

    proptest! {
        #[test]
        fn no_sleep_is_shorter_than_told(
            sleep_us in 0_u64..300_000,
            parts in 1_u64..5,
            lengths in prop::collection::vec(1_u64..60_000, 1..40),
            pass in 1_usize..7,
        ) {
            let ends_pass = |n: usize| n.is_multiple_of(pass);
            let pacer = WakePacer::new(us(sleep_us), parts);
            let played = play(pacer, parts, |n| us(lengths[n % lengths.len()]), ends_pass);
            for (n, (sleep, is_over)) in played.sleeps.iter().enumerate() {
                prop_assert!(!is_over || *sleep >= us(sleep_us), "{sleep:?} at {n}");
                // Between parts it is as short as looks can make it.
                prop_assert!(*is_over || *sleep < us(60_000), "{sleep:?} at {n}");
            }
        }
    }
}
