//! Processes that did not answer, each left alone with an exponential back-off.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first and the longest back-off.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// The most entries. Beyond this the one with the earliest retry is dropped.
const MOST: usize = 16_384;

/// The processes of this host that did not answer this process.
pub(crate) static SUSPECTS: SuspectTable = SuspectTable(Mutex::new(BTreeMap::new()));

/// Unanswered processes by PID. A reused PID is left alone too, for a minute at most.
#[derive(Debug, Default)]
pub(crate) struct SuspectTable(Mutex<BTreeMap<u32, SuspectEntry>>);

#[derive(Debug, Clone, Copy)]
struct SuspectEntry {
    again: Instant,
    pause: Duration,
}

impl SuspectTable {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, SuspectEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a process is in its back-off.
    pub(crate) fn rests(&self, pid: u32, now: Instant) -> bool {
        self.all().get(&pid).is_some_and(|suspect| now < suspect.again)
    }

    /// Returns the remaining back-off of a process.
    pub(crate) fn rest(&self, pid: u32, now: Instant) -> Duration {
        self.all().get(&pid).map_or(Duration::ZERO, |suspect| suspect.again.saturating_duration_since(now))
    }

    /// Returns true if a process did not answer its last read.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.all().contains_key(&pid)
    }

    /// Records that a process did not answer.
    pub(crate) fn record_silence(&self, pid: u32, now: Instant) {
        let mut all = self.all();
        let pause = all.get(&pid).map_or(FIRST_PAUSE, |suspect| (suspect.pause * 2).min(LAST_PAUSE));
        all.insert(pid, SuspectEntry { again: now + pause, pause });
        if all.len() > MOST
            && let Some(soonest) = all.iter().min_by_key(|(_, suspect)| suspect.again).map(|(pid, _)| *pid)
        {
            all.remove(&soonest);
        }
    }

    /// Records that a process has answered, or has ended.
    pub(crate) fn clear(&self, pid: u32) {
        self.all().remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_until_the_process_answers() {
        let suspects = SuspectTable::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            suspects.record_silence(7, now);
            let begin = now;
            while suspects.rests(7, now) {
                now += Duration::from_millis(250);
            }
            pauses.push((now - begin).as_millis());
        }
        assert_eq!(pauses[..4], [250, 500, 1000, 2000]);
        assert_eq!(pauses[11], 60_000);
        assert!(suspects.has(7) && !suspects.rests(8, now));
        suspects.clear(7);
        suspects.record_silence(7, now);
        assert!(suspects.rests(7, now) && !suspects.rests(7, now + FIRST_PAUSE));
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let suspects = SuspectTable::default();
        let now = Instant::now();
        (0..MOST as u32 + 10)
            .for_each(|pid| suspects.record_silence(pid, now + Duration::from_secs(u64::from(pid))));
        assert_eq!(suspects.all().len(), MOST);
        assert!(suspects.has(MOST as u32 + 9) && !suspects.has(3));
    }
}
