//! What only a walk over all page tables of a process tells: some 10 ms for each resident gigabyte of small pages,
//! with the process's memory map locked for reading. So it is read when asked for, and within a budget.

use std::time::{Duration, Instant};

use ksmith_core::guest::{Guest, Memory};
use ksmith_core::kernel::SmapsRollup;
use ksmith_core::reading::Reading;
use ksmith_core::sample::ProcessId;

use super::twins::have_one_memory;
use crate::process::is_alive;
use crate::root::Root;

/// Fills in PSS, private and shared memory of all guests, the small ones first, until `budget` is used up. Says in
/// one sentence if some had to be left out, and in another if some may not be read.
pub fn read_memory(root: &Root, guests: &mut [Guest], budget: Option<Duration>) -> Vec<String> {
    let started = Instant::now();
    let mut order: Vec<&mut Guest> = guests.iter_mut().collect();
    order.sort_by_key(|guest| guest.figures.rss_bytes);
    let (mut left_out, mut denied) = (0_usize, 0_usize);
    for guest in order {
        if budget.is_some_and(|budget| started.elapsed() >= budget) {
            left_out += 1;
            continue;
        }
        let mut processes: Vec<ProcessId> = Vec::new();
        for id in &guest.processes {
            if !processes.iter().any(|other| have_one_memory(id.pid, other.pid)) {
                processes.push(*id);
            }
        }
        let mut sums: Vec<Reading<SmapsRollup>> = processes.iter().map(|id| rollup(root, *id)).collect();
        denied += usize::from(sums.contains(&Reading::Denied));
        // A process that has just ended has no memory. A kernel without these sums has them for none.
        sums.retain(|sums| *sums != Reading::Absent);
        guest.set_memory(sums.iter().map(|sums| sums.value().map(Memory::of)));
    }
    let mut errors = Vec::new();
    if left_out > 0 {
        errors.push(format!("PSS of {left_out} guests was not read, since that takes long; --pss reads it"));
    }
    if denied > 0 {
        errors.push(format!("PSS of {denied} guests may not be read by this user; run as root"));
    }
    errors
}

/// Bytes of a process that are merged right now. The kernel's cheap figure (`ksm_stat`) follows a switch only when
/// ksmd scans. `None` before Linux 6.7, or if the process has ended.
pub fn merged_now(root: &Root, id: ProcessId) -> Option<u64> {
    rollup(root, id).value()?.ksm
}

fn rollup(root: &Root, id: ProcessId) -> Reading<SmapsRollup> {
    let sums = root.text(format!("proc/{}/smaps_rollup", id.pid)).and_then(|text| SmapsRollup::parse(&text));
    if is_alive(root, id) { sums } else { Reading::Absent }
}
