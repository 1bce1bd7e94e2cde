//! The schedule of reading processes without mergeable memory: often while they are new, rarely later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Delay from the start of a process or of its program to the first reading.
pub(super) const FIRST_DELAY: Duration = Duration::from_millis(80);

/// Delays between the first readings of a new process. A hypervisor marks its memory shortly after its start, a
/// language runtime when its heap grows.
const GROWING: [Duration; 5] = [
    FIRST_DELAY,
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
];

/// Time of a round, in which each process is read once, on a host with up to 6,000 processes.
const ROUND: Duration = Duration::from_secs(60);

/// The most readings per second; a round of more processes takes longer. A reading costs about 10 us, so that all
/// readings together cost about 0.1 % of a core for any number of processes.
const LOOKS_PER_SECOND: f64 = 100.0;

/// Returns the time in which each of `processes` processes is read once.
pub(super) fn round(processes: usize) -> Duration {
    ROUND.max(Duration::from_secs_f64(processes as f64 / LOOKS_PER_SECOND))
}

/// Readings after which a process counts as old.
pub(super) const OLD: u8 = GROWING.len() as u8;

/// Returns the delay from the start (0) or from reading number `looks` to the next one; `None` if the round decides.
pub(super) fn delay(looks: u8) -> Option<Duration> {
    GROWING.get(usize::from(looks)).copied()
}

/// Returns a time in the first round, which depends on the PID only and spreads PIDs evenly.
pub(super) fn spread(pid: u32, round: Duration) -> Duration {
    // Fibonacci hashing puts neighbouring PIDs far apart.
    let fraction = f64::from(pid.wrapping_mul(0x9e37_79b9)) / f64::from(u32::MAX);
    round.mul_f64(fraction)
}

/// A queue of processes by due time.
///
/// Entries of processes that have ended or got another due time are not removed. The caller compares each entry with
/// its own table, which holds the due time too.
#[derive(Debug, Default)]
pub(super) struct ReadSchedule {
    queue: BinaryHeap<Reverse<(Duration, u32)>>,
}

impl ReadSchedule {
    /// Adds a process.
    pub(super) fn push(&mut self, due: Duration, pid: u32) {
        self.queue.push(Reverse((due, pid)));
    }

    /// Returns the due time of the next process.
    pub(super) fn next(&self) -> Option<Duration> {
        self.queue.peek().map(|Reverse((due, _))| *due)
    }

    /// Removes and returns the process that has been due for longest, if one is due.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<(Duration, u32)> {
        let Reverse((due, _)) = *self.queue.peek()?;
        if due > now {
            return None;
        }
        self.queue.pop().map(|Reverse(entry)| entry)
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_round() {
        let delays: Vec<_> = (0..OLD).map(|looks| delay(looks).unwrap().as_millis()).collect();
        assert_eq!(delays, [80, 300, 1000, 5000, 30_000]);
        assert_eq!((delay(OLD), delay(u8::MAX)), (None, None));
        assert_eq!(round(6000).as_secs(), 60);
        assert_eq!(round(10_000).as_secs(), 100);
    }

    #[test]
    fn the_longest_due_comes_first_and_nothing_early() {
        let mut schedule = ReadSchedule::default();
        let second = Duration::from_secs;
        schedule.push(second(3), 30);
        schedule.push(second(1), 10);
        schedule.push(second(2), 20);
        assert_eq!(schedule.pop_due(second(2)), Some((second(1), 10)));
        assert_eq!(schedule.pop_due(second(2)), Some((second(2), 20)));
        assert_eq!(schedule.pop_due(second(2)), None);
        schedule.clear();
        assert_eq!(schedule.pop_due(second(9)), None);
    }

    #[test]
    fn old_processes_are_spread_over_the_round() {
        let mut slots = [0; 60];
        for pid in 1000..11_000 {
            let seconds = spread(pid, ROUND).as_secs() as usize;
            slots[seconds.min(59)] += 1;
        }
        assert!(slots.iter().all(|count| (100..250).contains(count)), "{slots:?}");
    }
}
