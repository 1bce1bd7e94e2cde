//! CPU and memory of ksmith itself.

use std::fs;
use std::io;
use std::time::Duration;

use ksmith_core::kernel::PidStat;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::time::{ClockId, clock_gettime};

use crate::reader;

/// CPU time and memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnUse {
    /// User and system CPU time of all threads since the start, and of the children that read for this process now.
    pub cpu: Duration,
    /// Resident memory in bytes, or 0 if /proc is not readable.
    pub rss_bytes: u64,
}

impl OwnUse {
    /// Reads the present values.
    pub fn now() -> Self {
        let own: Duration = clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default();
        let cpu = own.saturating_add(reader::cpu());
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let pages = stat.and_then(|text| PidStat::parse(&text).ok()).map_or(0, |stat| stat.rss_pages);
        Self { cpu, rss_bytes: pages.saturating_mul(rustix::param::page_size() as u64) }
    }
}

/// CPU time of the calling thread since its start, without the time that it waited.
pub fn thread_cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// Has all threads allocate from one heap. To be called before there are threads.
///
/// glibc gives each thread a heap of its own otherwise, and each of them keeps its holes: where guests come and go, the process
/// grows for hours (docs/measurements/2026-11-daemon.md).
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "the C library's allocator has no safe setting")]
pub fn share_heap() {
    // SAFETY: mallopt sets a number of the allocator under its own lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Other C libraries have one heap.
#[cfg(not(target_env = "gnu"))]
pub fn share_heap() {}

/// Locks this program and its present data in RAM, as far as they are used: its code is not dropped when the host is
/// short of memory, which is when ksmith must act.
///
/// Memory that is allocated later stays free, since the C library can't give locked memory back. Without swap it does not
/// leave RAM either; the systemd unit forbids swap.
///
/// # Errors
/// This process may not lock so much.
pub fn lock_program() -> io::Result<()> {
    // On fault: the unused part of the program and its libraries stays unused.
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_uses_next_to_nothing() {
        let (before, started) = (thread_cpu(), std::time::Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        assert!(thread_cpu() - before < started.elapsed() / 2);
    }

    #[test]
    fn a_process_that_runs_has_used_something() {
        let mut use_now = OwnUse::now();
        while use_now.cpu.is_zero() {
            use_now = OwnUse::now();
        }
        assert!(use_now.rss_bytes > 100_000);
    }
}
