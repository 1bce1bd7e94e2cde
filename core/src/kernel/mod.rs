//! Parsers of the kernel's text, one module per file: each takes `&str` and returns a type or a [`Malformed`].
//!
//! These few formats are parsed here, and not with a general /proc library, for two reasons. The difference between
//! "this kernel lacks it" and "this is not what the kernel promised" must survive. And no text whatever may panic:
//! every parser is property-tested on arbitrary input.

mod cmdline;
mod cpu_loads;
mod host_files;
mod keyed;
mod ksm;
mod ksm_stat;
mod mappings;
mod meminfo;
mod numa_maps;
mod page_size;
mod pagemap;
mod pid_stat;
mod proc_stat;
mod psi;
mod schedstat;
mod smaps;
mod smaps_rollup;
mod statm;
mod vmstat;

pub use cmdline::CommandLine;
pub use cpu_loads::CpuLoads;
pub use host_files::{HostFile, TextEnd};
pub use ksm::{AdvisorMode, FIELDS, Ksm, KsmValue, RMAP_ITEM_BYTES, RunState};
pub use ksm_stat::{KsmStat, merging_pages};
pub use mappings::{IneligibleReason, ProcessMapping, SmapsFigures};
pub use meminfo::Meminfo;
pub use numa_maps::{MappingNodes, nodes, number_list, parse_numa_maps};
pub use page_size::{
    PageSizeEvidence, page_size_of_auxv, page_size_of_cpuinfo, page_size_of_smaps, usual_huge_page_bytes,
};
pub use pagemap::{FrameFlags, PageEntry};
pub use pid_stat::{PidStat, is_asleep, is_running};
pub use proc_stat::CpuTimes;
pub use psi::{Psi, StallTimes};
pub use schedstat::cpu_ns;
pub use smaps::says_mergeable;
pub use smaps_rollup::SmapsRollup;
pub use statm::Statm;
pub use vmstat::Vmstat;

use self::host_files::host_files;
use crate::reading::{Malformed, Reading};

host_files! {
    /// Memory of the host.
    memory: Meminfo, "/proc/meminfo", TextEnd::ShortRead;
    /// Counters of the kernel's memory management.
    vmstat: Vmstat, "/proc/vmstat", TextEnd::EmptyRead;
    /// CPU times. On a large host the lines of interrupts, after those of the CPUs, are many times as long.
    cpu: CpuTimes, "/proc/stat", TextEnd::Before("\nintr ");
    /// Pressure on memory.
    memory_pressure: Psi, "/proc/pressure/memory", TextEnd::ShortRead;
    /// Pressure on CPUs.
    cpu_pressure: Psi, "/proc/pressure/cpu", TextEnd::ShortRead;
}

/// The source of the files' text: the live host, a captured tree, or a test's table.
pub trait KernelFileSource {
    /// Reads the text of the file at `path`: `/sys/kernel/mm/ksm/run`. No two files of KSM share a name.
    fn text(&mut self, path: &'static str) -> Reading<&str>;
}

/// The most memory that a host has, or a process maps without 5-level page tables, in bytes. A counter that fell below zero
/// shows a number near 2^64.
pub const MOST_BYTES: u64 = 1 << 48;

/// The most pages that a host can have.
const MOST_PAGES: u64 = MOST_BYTES >> 12;

/// The largest address space of a process, in bytes: user space with 5-level page tables.
const MOST_MAPPED_BYTES: u64 = 1 << 56;

/// The most events, nanoseconds or ticks that a counter shows. More is a sum over CPUs that fell below zero.
const MOST_EVENTS: u64 = i64::MAX as u64;

/// Parses a whole file that holds one unsigned number.
///
/// # Errors
/// Anything else in the file.
pub fn number(text: &str) -> Result<u64, Malformed> {
    unsigned(text.trim()).ok_or_else(|| Malformed::new(1, "an unsigned number", text))
}

/// Parses a whole file that holds a number of bytes, such as a cgroup's `memory.current`.
///
/// # Errors
/// Anything else in the file, or more than a host can have.
pub fn byte_count(text: &str) -> Result<u64, Malformed> {
    number(text).and_then(|bytes| match bytes {
        0..=MOST_BYTES => Ok(bytes),
        _ => Err(Malformed::new(1, "a number of bytes", text)),
    })
}

/// Parses digits as the kernel prints them. Rust's own parser would also accept a plus sign.
fn unsigned(word: &str) -> Option<u64> {
    if word.starts_with('+') { None } else { word.parse().ok() }
}

/// Parses digits with perhaps a minus sign.
fn signed(word: &str) -> Option<i64> {
    if word.starts_with('+') { None } else { word.parse().ok() }
}
