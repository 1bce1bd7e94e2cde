//! A rate limit for reading, and low scheduling priorities.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ksmith_core::token_bucket::TokenBucket;

/// A rate limiter, shared by all threads.
#[derive(Debug)]
pub struct ReadPace {
    started: Instant,
    /// Of capacity 0: unused bytes do not accumulate. `None` without a limit.
    bucket: Option<Mutex<TokenBucket>>,
}

impl ReadPace {
    /// Creates a limiter; `None` for no limit.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        let bucket = bytes_per_second.map(|rate| Mutex::new(TokenBucket::new(0.0, rate.max(1) as f64)));
        Self { started: Instant::now(), bucket }
    }

    /// Waits until the bytes before these are used up at that rate, so that `bytes` more may be read.
    pub fn wait_for(&self, bytes: u64) {
        let Some(bucket) = &self.bucket else { return };
        let wait = {
            let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.refill(self.started.elapsed());
            let wait = bucket.time_until(0.0);
            bucket.charge(bytes as f64);
            wait
        };
        std::thread::sleep(wait.unwrap_or(Duration::MAX));
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
