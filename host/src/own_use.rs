//! CPU and memory of ksmith itself.

use std::ffi::c_void;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use ksmith_core::kernel::PidStat;
use rustix::mm::{Advice, MlockAllFlags, madvise, mlockall};
use rustix::time::{ClockId, clock_gettime};

use crate::reader;

/// CPU time and memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnUse {
    /// User and system CPU time of all threads since the start, and of the reader children that are alive.
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
        let pages = stat.and_then(|text| PidStat::parse(&text).ok()).and_then(|stat| stat.rss_pages).unwrap_or(0);
        Self { cpu, rss_bytes: pages.saturating_mul(rustix::param::page_size() as u64) }
    }
}

/// Returns the CPU time of the calling thread since its start, without the time that it waited.
pub fn thread_cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// Measures the CPU time of a thread and of the child that reads for it.
#[derive(Debug)]
pub struct CpuStopwatch {
    began: Instant,
    cpu: Duration,
}

impl CpuStopwatch {
    /// Starts measuring in the calling thread.
    pub fn start() -> Self {
        Self { began: Instant::now(), cpu: Self::cpu() }
    }

    /// Returns the CPU time since the start, at most the elapsed time: children that read for other threads count too.
    /// The child works while the thread waits. A thread of the lowest priority may wait much longer for a CPU than it
    /// works.
    pub fn cpu_seconds(&self) -> f64 {
        Self::cpu().saturating_sub(self.cpu).min(self.began.elapsed()).as_secs_f64()
    }

    fn cpu() -> Duration {
        thread_cpu().saturating_add(reader::cpu())
    }
}

/// Makes all threads allocate from one heap. Call it before the first thread starts.
///
/// glibc gives each thread a heap of its own otherwise, and each of them keeps its holes: where guests start and end,
/// the process grows for hours (docs/measurements/2026-11-daemon.md).
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "the C library's allocator has no safe setting")]
pub fn share_heap() {
    // SAFETY: mallopt sets a number of the allocator under its own lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Does nothing: other C libraries have one heap.
#[cfg(not(target_env = "gnu"))]
pub fn share_heap() {}

/// Locks this program and its present data in RAM, as far as they are used: its code is not dropped when the host is
/// short of memory, which is when ksmith must act.
///
/// Memory that is allocated later stays unlocked, since the C library can't give locked memory back. Without swap it
/// does not leave RAM either; the systemd unit forbids swap.
///
/// # Errors
/// This process may not lock so much.
pub fn lock_program() -> io::Result<()> {
    // On fault: the unused part of the program and its libraries stays unused.
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT)?)
}

/// Unmaps the pages of this program's code and constants. They stay in the page cache, and those that are still used come
/// back one by one.
///
/// To be called where a start has run code that a long wait does not: 5 MiB of it.
#[allow(unsafe_code, reason = "the advice would discard what was written to the memory")]
pub fn release_code() {
    let Ok((program, maps)) =
        fs::read_link("/proc/self/exe").and_then(|program| Ok((program, fs::read_to_string("/proc/self/maps")?)))
    else {
        return;
    };
    for line in maps.lines() {
        // START-END PERMISSIONS OFFSET DEVICE INODE PATH
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(permissions), Some(offset)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        // Code, and the constants at the file's begin. Other memory that can't be written now was when the program was linked.
        let is_of_the_file = permissions == "r-xp" || permissions == "r--p" && offset == "00000000";
        let Some(path) = words.nth(2).filter(|_| is_of_the_file) else { continue };
        let bound = |hex: &str| usize::from_str_radix(hex, 16).ok();
        let Some((start, end)) = range.split_once('-').and_then(|(start, end)| Some((bound(start)?, bound(end)?)))
        else {
            continue;
        };
        if Path::new(path) == program {
            // SAFETY: both are mapped from the program's file, and nothing ever writes to them, so that each page is the file's.
            let _ = unsafe { madvise(start as *mut c_void, end - start, Advice::LinuxDontNeed) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_is_released_leaves_memory_and_runs_again() {
        // Other tests of this process would have its code read again.
        const ALONE: &str = "KSMITH_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name = "own_use::tests::code_that_is_released_leaves_memory_and_runs_again";
            let tests = std::env::current_exe().unwrap();
            let alone = std::process::Command::new(tests).args(["--exact", name]).env(ALONE, "1").output().unwrap();
            assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stdout));
            return;
        }
        let program = fs::read_link("/proc/self/exe").unwrap();
        let resident = || {
            let text = fs::read_to_string("/proc/self/smaps").unwrap();
            let mut lines = text
                .lines()
                .skip_while(|line| !(line.contains(" r-xp ") && line.ends_with(program.to_str().unwrap())));
            let rss = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
            rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        // Touches all code, as a start touches much of it.
        let begin = fs::read_to_string("/proc/self/maps").unwrap();
        let line = begin
            .lines()
            .find(|line| line.contains(" r-xp ") && line.ends_with(program.to_str().unwrap()))
            .unwrap();
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [start, end] = [start, end].map(|hex| usize::from_str_radix(hex, 16).unwrap());
        let advice = Advice::LinuxPopulateRead;
        #[allow(unsafe_code, reason = "a call of the kernel on memory")]
        // SAFETY: reading in the code of this program changes nothing.
        unsafe { madvise(start as *mut c_void, end - start, advice) }.unwrap();
        let before = resident();
        release_code();
        let after = resident();
        assert!(after < before / 2, "{before} kB, then {after} kB");
    }

    #[test]
    fn a_thread_that_sleeps_uses_next_to_nothing() {
        let (before, started) = (thread_cpu(), Instant::now());
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
