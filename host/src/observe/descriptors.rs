//! The budget of descriptors that stay open for processes.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors left to the rest of the program: files of the host, a database, and 256 user connections with two
/// each.
const RESERVE: u64 = 256 + 2 * 256;

/// The most descriptors kept: enough for 1,024 processes. Each pins about a page of kernel memory.
const MOST: u64 = 2048;

/// A budget of descriptors.
#[derive(Debug)]
pub(super) struct DescriptorBudget {
    left: u64,
}

impl DescriptorBudget {
    /// Raises this process's soft limit on open files as far as needed and allowed, and creates a budget of the
    /// surplus. Programs started later inherit the raised limit.
    pub(super) fn of_host() -> Self {
        let limit = getrlimit(Resource::Nofile);
        // `None` means no limit.
        let soft = limit.current.unwrap_or(u64::MAX);
        let wanted = limit.maximum.unwrap_or(u64::MAX).min(MOST + RESERVE);
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        let granted = if wanted > soft && setrlimit(Resource::Nofile, raised).is_ok() { wanted } else { soft };
        Self::with(granted.saturating_sub(RESERVE).min(MOST))
    }

    /// Creates a budget of `count` descriptors. With 0 every file is opened at each reading.
    pub(super) fn with(count: u64) -> Self {
        Self { left: count }
    }

    /// Takes `count` descriptors from the budget. Returns true if it had as many.
    pub(super) fn try_reserve(&mut self, count: u64) -> bool {
        let left = self.left.checked_sub(count);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Returns descriptors to the budget.
    pub(super) fn give_back(&mut self, count: u64) {
        self.left += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_handed_out_than_there_are() {
        let mut descriptors = DescriptorBudget::with(5);
        assert!(descriptors.try_reserve(3));
        assert!(!descriptors.try_reserve(3));
        descriptors.give_back(3);
        assert!(descriptors.try_reserve(5));
        assert!(!descriptors.try_reserve(1));
    }

    #[test]
    fn the_hosts_limit_leaves_a_reserve() {
        let descriptors = DescriptorBudget::of_host();
        let soft = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(descriptors.left + RESERVE <= soft.max(RESERVE) && descriptors.left <= MOST);
    }
}
