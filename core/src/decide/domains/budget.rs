//! The limit `max_passes_per_hour`: it bounds how often an attacker may see whether something merged.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

/// The time over which passes are counted.
const HOUR: Duration = Duration::from_secs(3600);

/// A counter of the passes of the last hour. At most one may end between two updates, which the guard's pace sees to
/// ([`super::paced`]); then no hour has more passes than allowed.
#[derive(Debug, Clone)]
pub struct PassBudget {
    most: NonZeroU32,
    /// The times at which the passes of the last hour were seen to have ended.
    ended: VecDeque<Duration>,
    full_scans: Option<u64>,
}

impl PassBudget {
    /// Allows so many passes in an hour.
    pub fn new(most: NonZeroU32) -> Self {
        Self { most, ended: VecDeque::new(), full_scans: None }
    }

    /// Records the kernel's count of passes. Returns the time for which ksmd must be parked; `None` if it may scan.
    pub fn record_passes(&mut self, now: Duration, full_scans: Option<u64>) -> Option<Duration> {
        // Without a count the rate of passes is not known.
        let Some(count) = full_scans else { return Some(HOUR) };
        let before = self.full_scans.replace(count).unwrap_or(count);
        // The kernel counts from 0 again after everything was unmerged.
        let new = count.checked_sub(before).unwrap_or(count);
        let most = self.most.get() as usize;
        for _ in 0..new.min(most as u64) {
            self.ended.push_back(now);
        }
        while self.ended.front().is_some_and(|&ended| now.saturating_sub(ended) >= HOUR) {
            self.ended.pop_front();
        }
        // Only the newest can still be in the way.
        while self.ended.len() > most {
            self.ended.pop_front();
        }
        let oldest = self.ended.front().copied().filter(|_| self.ended.len() >= most)?;
        Some((oldest + HOUR).saturating_sub(now))
    }
}
