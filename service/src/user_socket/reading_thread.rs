//! Readings of memory in threads of their own, which are left behind if a process holds them up.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};
use ksmith_host::memory::under_way;

/// The most readings that may be held up at a time, one for each accountable uid. Each keeps up to 16 MiB of the
/// daemon's memory.
const MOST_HELD_UP: usize = 8;

/// The longest read of memory. A process that holds one up for longer does not answer.
const LONGEST_READ: Duration = Duration::from_secs(2);

/// A reason for which there is no reading.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadingError {
    /// A process of the user's holds this one or an earlier one up.
    #[error("process {0} holds up a reading")]
    HeldUp(u32),
    /// As many as may be are held up.
    #[error("too many readings are held up")]
    Busy,
    /// There is no thread for it, or the thread has failed.
    #[error("the thread of the reading: {0}")]
    Failed(#[from] io::Error),
}

/// The state of a reading that its thread shares with the request.
#[derive(Debug, Default)]
pub(super) struct ReadingWatch {
    pid: AtomicU32,
    is_given_up: AtomicBool,
}

impl ReadingWatch {
    /// Records the process that is read from now on. Returns false if nobody waits for the reading any more.
    pub(super) fn begin(&self, pid: u32) -> bool {
        self.pid.store(pid, Ordering::Relaxed);
        self.is_wanted()
    }

    /// Returns true as long as the request waits for the reading.
    pub(super) fn is_wanted(&self) -> bool {
        !self.is_given_up.load(Ordering::Relaxed)
    }

    fn is_stuck(&self) -> bool {
        under_way::stuck(LONGEST_READ).contains(&self.pid.load(Ordering::Relaxed))
    }
}

/// The accountable uids whose readings are held up, each with the process that does it. Their threads are left behind.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldUpReadings(Arc<Mutex<Vec<(u32, u32)>>>);

impl HeldUpReadings {
    fn list(&self) -> MutexGuard<'_, Vec<(u32, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result of `read`, which runs in a thread for the accountable uid, if that takes no longer than
    /// `longest` and no process holds one read up. A request for the same uid may not run at the same time.
    ///
    /// # Errors
    /// It is held up, or an earlier one of the uid still is ([`ReadingError::HeldUp`]); too many are
    /// ([`ReadingError::Busy`]); there is no thread.
    pub(super) fn run<T: Send + 'static>(
        &self,
        uid: u32,
        longest: Duration,
        read: impl FnOnce(&ReadingWatch) -> T + Send + 'static,
    ) -> Result<T, ReadingError> {
        if let Some((_, pid)) = self.list().iter().find(|(other, _)| *other == uid) {
            return Err(ReadingError::HeldUp(*pid));
        }
        if self.list().len() >= MOST_HELD_UP {
            return Err(ReadingError::Busy);
        }
        let watch = Arc::new(ReadingWatch::default());
        let (sender, outcome) = bounded(1);
        let (shared, held_up) = (Arc::clone(&watch), self.clone());
        let work = move || {
            // The request may have been given up.
            let _ = sender.send(read(&shared));
            held_up.list().retain(|(other, _)| *other != uid);
        };
        let started = std::thread::Builder::new().name("user-ranges".to_owned()).spawn(work);
        started?;
        let deadline = Instant::now() + longest;
        loop {
            match outcome.recv_deadline(deadline.min(Instant::now() + LONGEST_READ / 8)) {
                Ok(reading) => return Ok(reading),
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("it has failed").into()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            // A page that comes just in time is no stuck read, but a reading of many such pages has no end.
            if Instant::now() < deadline && !watch.is_stuck() {
                continue;
            }
            let mut held_up = self.list();
            // The thread takes itself from the list after its word. So it has none now, or will find itself there.
            if outcome.is_empty() {
                watch.is_given_up.store(true, Ordering::Relaxed);
                let pid = watch.pid.load(Ordering::Relaxed);
                held_up.push((uid, pid));
                return Err(ReadingError::HeldUp(pid));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::Sender;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(600);

    /// Begins a reading that goes on until it is unwanted and let go. Returns the sender whose end lets it go.
    fn hold_up(readings: &HeldUpReadings, uid: u32) -> Sender<()> {
        let (end, ends) = bounded::<()>(0);
        let read = move |watch: &ReadingWatch| {
            watch.begin(7);
            let begin = Instant::now();
            while watch.is_wanted() {
                if begin.elapsed() > Duration::from_secs(60) {
                    return;
                }
                std::thread::yield_now();
            }
            let _ = ends.recv();
        };
        assert!(matches!(readings.run(uid, SOON, read), Err(ReadingError::HeldUp(_))));
        end
    }

    #[test]
    fn a_reading_that_goes_on_for_too_long_is_held_up_and_others_are_served() {
        let readings = HeldUpReadings::default();
        let end = hold_up(&readings, 1);
        assert!(
            matches!(readings.run(1, LATE, |_| ()), Err(ReadingError::HeldUp(_))),
            "its user waits for its end"
        );
        assert!(readings.run(2, LATE, |watch| watch.begin(8)).unwrap());
        drop(end);
        while readings.run(1, LATE, |_| ()).is_err() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn threads_that_are_left_behind_are_bounded() {
        let readings = HeldUpReadings::default();
        let ends: Vec<_> = (0..MOST_HELD_UP as u32).map(|uid| hold_up(&readings, uid)).collect();
        assert!(matches!(readings.run(100, LATE, |_| ()), Err(ReadingError::Busy)));
        drop(ends);
        while readings.run(100, LATE, |_| ()).is_err() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_read_that_does_not_end_holds_its_reading_up() {
        let readings = HeldUpReadings::default();
        let pid = 4_000_000_009;
        let (end, ends) = bounded::<()>(0);
        let read = move |watch: &ReadingWatch| {
            watch.begin(pid);
            let _ = under_way::during(pid, || ends.recv());
        };
        assert!(matches!(readings.run(1, LATE, read), Err(ReadingError::HeldUp(found)) if found == pid));
        drop(end);
    }
}
