//! A registry of reads of processes' memory in progress, with their start: a process may block its reader for ever.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The reads in progress, at most one per thread.
static READS: Mutex<Vec<(u32, Instant)>> = Mutex::new(Vec::new());

/// Calls `read`, registered as a read of process `pid` while it runs.
pub fn during<T>(pid: u32, read: impl FnOnce() -> T) -> T {
    let entry = (pid, Instant::now());
    let reads = || READS.lock().unwrap_or_else(PoisonError::into_inner);
    reads().push(entry);
    let outcome = read();
    let mut reads = reads();
    if let Some(at) = reads.iter().position(|other| *other == entry) {
        reads.swap_remove(at);
    }
    outcome
}

/// Returns the processes that have blocked a reader for longer than `bound`.
pub fn stuck(bound: Duration) -> Vec<u32> {
    let reads = READS.lock().unwrap_or_else(PoisonError::into_inner);
    reads.iter().filter(|(_, since)| since.elapsed() > bound).map(|(pid, _)| *pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_does_not_end_is_told_with_its_process() {
        let pid = 4_000_000_007;
        during(pid, || {
            assert!(!stuck(Duration::from_secs(3600)).contains(&pid));
            while !stuck(Duration::ZERO).contains(&pid) {}
        });
        assert!(!stuck(Duration::ZERO).contains(&pid));
    }
}
