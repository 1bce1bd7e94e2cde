//! The CPU time allowed for the kernel's walk of a process's page tables.
//!
//! Some files of a process sum up all of its pages. For them a 64 GiB guest that answers takes as long as a process
//! that keeps the kernel busy on purpose. Only its resident memory tells them apart. Mappings of the zero page cost a
//! walk too, but are not resident.

use std::time::Duration;

use ksmith_core::kernel::Statm;

use super::WantedFile;

/// CPU time per resident GiB. Linux 6.18 takes 6 ms for small pages, and less for huge ones.
pub(super) const OF_A_GIB: Duration = Duration::from_millis(20);

/// The files for which the kernel walks all page tables of a process.
const WALKED: [&str; 4] = ["smaps", "smaps_rollup", "numa_maps", "pagemap"];

/// Returns the CPU time allowed for walking the page tables for this file, with `of_a_gib` per resident GiB.
pub(super) fn allowance(want: &WantedFile<'_>, of_a_gib: Duration) -> Duration {
    if !WALKED.contains(&want.file) {
        return Duration::ZERO;
    }
    of_a_gib.mul_f64(resident_bytes(want.pid) as f64 / f64::from(1 << 30))
}

/// Returns the resident memory of a process, from a file that takes no lock of it; 0 if the process has ended.
fn resident_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = Statm::parse(&text).ok().and_then(|sizes| sizes.resident_pages);
    pages.unwrap_or(0).saturating_mul(rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_the_memory_that_a_process_has() {
        let want = |file| WantedFile { pid: std::process::id(), file, offset: 0, most: 1 };
        let before = allowance(&want("smaps"), OF_A_GIB);
        let memory = vec![1_u8; 256 << 20];
        let grown = allowance(&want("smaps"), OF_A_GIB) - before;
        assert!(grown > OF_A_GIB / 8 && grown < OF_A_GIB, "{grown:?} for {} bytes", memory.len());
        assert_eq!(allowance(&want("cmdline"), OF_A_GIB), Duration::ZERO);
        let ended = WantedFile { pid: u32::MAX, ..want("smaps") };
        assert_eq!(allowance(&ended, OF_A_GIB), Duration::ZERO);
    }
}
