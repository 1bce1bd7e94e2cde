//! How many descriptors may be kept open for processes.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Left to the rest of the program: the files of the host, a database, and 256 connections of users with two each.
const RESERVE: u64 = 256 + 2 * 256;

/// The most that are kept: enough for 1,024 processes. Each pins kernel memory, about a page for the text alone.
const MOST: u64 = 4096;

/// A number of descriptors to hand out.
#[derive(Debug)]
pub(super) struct Descriptors {
    left: u64,
}

impl Descriptors {
    /// Raises this process's soft limit on open files as far as it needs and may, and takes what that leaves.
    /// Programs started later inherit the raised limit.
    pub(super) fn of_host() -> Self {
        let limit = getrlimit(Resource::Nofile);
        // No limit is told as `None`.
        let soft = limit.current.unwrap_or(u64::MAX);
        let wanted = limit.maximum.unwrap_or(u64::MAX).min(MOST + RESERVE);
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        let granted = if wanted > soft && setrlimit(Resource::Nofile, raised).is_ok() { wanted } else { soft };
        Self::with(granted.saturating_sub(RESERVE).min(MOST))
    }

    /// `count` descriptors; with 0 every file is opened each time.
    pub(super) fn with(count: u64) -> Self {
        Self { left: count }
    }

    /// Takes `count`, if there are that many.
    pub(super) fn take(&mut self, count: u64) -> bool {
        let left = self.left.checked_sub(count);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&mut self, count: u64) {
        self.left += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_handed_out_than_there_are() {
        let mut descriptors = Descriptors::with(5);
        assert!(descriptors.take(3));
        assert!(!descriptors.take(3));
        descriptors.give_back(3);
        assert!(descriptors.take(5));
        assert!(!descriptors.take(1));
    }

    #[test]
    fn the_hosts_limit_leaves_a_reserve() {
        let descriptors = Descriptors::of_host();
        let soft = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(descriptors.left + RESERVE <= soft.max(RESERVE) && descriptors.left <= MOST);
    }
}
