//! What the kernel's walk over a process's page tables may take.
//!
//! Some files of a process sum up all of its pages. A guest of 64 GiB that answers takes as long for them as a process that
//! makes the kernel work on purpose: only the memory that it really has tells them apart. Mappings of the zero page cost a walk
//! as well, and are not resident.

use std::time::Duration;

use super::Want;

/// CPU time for each resident GiB. Linux 6.18 takes 6 ms for small pages, and less for huge ones.
pub(super) const OF_A_GIB: Duration = Duration::from_millis(20);

/// The files for which the kernel walks all page tables of a process.
const WALKED: [&str; 3] = ["smaps", "smaps_rollup", "numa_maps"];

/// CPU time that the kernel may use to walk the page tables for this file, at so much for each resident GiB.
pub(super) fn allowance(want: &Want<'_>, of_a_gib: Duration) -> Duration {
    if !WALKED.contains(&want.file) {
        return Duration::ZERO;
    }
    of_a_gib.mul_f64(resident_bytes(want.pid) as f64 / f64::from(1 << 30))
}

/// Resident memory of a process, from a file that takes no lock of it. 0 if the process has ended.
fn resident_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0_u64);
    pages.saturating_mul(rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_the_memory_that_a_process_has() {
        let want = |file| Want { pid: std::process::id(), file, offset: 0, most: 1 };
        let before = allowance(&want("smaps"), OF_A_GIB);
        let memory = vec![1_u8; 256 << 20];
        let grown = allowance(&want("smaps"), OF_A_GIB) - before;
        assert!(grown > OF_A_GIB / 8 && grown < OF_A_GIB, "{grown:?} for {} bytes", memory.len());
        assert_eq!(allowance(&want("cmdline"), OF_A_GIB), Duration::ZERO);
        let ended = Want { pid: u32::MAX, ..want("smaps") };
        assert_eq!(allowance(&ended, OF_A_GIB), Duration::ZERO);
    }
}
