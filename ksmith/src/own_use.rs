//! What ksmith itself costs: nobody should need another tool to see that.

use std::fs;
use std::time::Duration;

use ksmith_core::kernel::PidStat;
use rustix::time::{ClockId, clock_gettime};

/// CPU time and memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnUse {
    /// User and system time of all threads since the start.
    pub cpu: Duration,
    /// Resident memory in bytes. 0 where /proc does not say.
    pub rss_bytes: u64,
}

impl OwnUse {
    /// Looks now.
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let pages = stat.and_then(|text| PidStat::parse(&text).ok()).map_or(0, |stat| stat.rss_pages);
        Self { cpu, rss_bytes: pages.saturating_mul(rustix::param::page_size() as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_has_used_something() {
        let mut use_now = OwnUse::now();
        while use_now.cpu.is_zero() {
            use_now = OwnUse::now();
        }
        assert!(use_now.rss_bytes > 100_000);
    }
}
