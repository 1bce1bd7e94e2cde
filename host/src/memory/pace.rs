//! A rate limit for reading, and low scheduling priorities.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// A rate limiter, shared by all threads.
#[derive(Debug)]
pub struct ReadPace {
    bytes_per_second: Option<u64>,
    /// The time at which the bytes granted so far are used up at that rate.
    until: Mutex<Instant>,
}

impl ReadPace {
    /// Creates a limiter; `None` for no limit.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, until: Mutex::new(Instant::now()) }
    }

    /// Waits until `bytes` more may be read. Unused bytes do not accumulate.
    pub fn wait_for(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_second else { return };
        let takes = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        let now = Instant::now();
        let start = {
            let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
            let start = (*until).max(now);
            *until = start + takes;
            start
        };
        std::thread::sleep(start.saturating_duration_since(now));
    }
}

/// Gives this thread the lowest priority.
pub fn lower_priority() {
    // It may have the lowest already, or a sandbox may forbid it: no reason to read nothing.
    let _ = rustix::process::setpriority_process(None, 19);
}

/// Gives this process the lowest priority and the idle scheduling policy. Threads that it starts later inherit both.
#[allow(unsafe_code, reason = "the C library's scheduler calls have no safe form")]
pub fn set_idle_priority() {
    lower_priority();
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads the parameters, which outlive it.
    // A sandbox may forbid it, as above.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_those_before_them() {
        let pace = ReadPace::new(Some(1000));
        let started = Instant::now();
        for _ in 0..3 {
            pace.wait_for(50);
        }
        // The third waits for the two before it. Only a lower bound: sleeping may take longer.
        assert!(started.elapsed() >= Duration::from_millis(99));
        ReadPace::new(None).wait_for(u64::MAX);
    }
}
