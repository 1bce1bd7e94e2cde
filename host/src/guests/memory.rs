//! Memory figures of guests that need a walk over all page tables of a process. The walk takes some 6 ms for each
//! resident gigabyte of small pages, with the memory map locked for reading. So it runs on request only, and within a
//! budget.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ksmith_core::guest::{Guest, RollupFigures};
use ksmith_core::kernel::SmapsRollup;
use ksmith_core::reading::Reading;
use ksmith_core::sample::ProcessId;

use super::twins::is_of_any;
use crate::process::is_alive;
use crate::root::Root;

/// Resident memory of a batch of guests that is read at once: less than a millisecond of kernel time. A round trip for
/// each of a thousand small guests takes longer than the read.
const TOGETHER: u64 = 128 << 20;

/// Fills in PSS, private and shared memory of all guests, the small ones first, until `budget` is used up. Returns a
/// message if some were left out, and another if some may not be read.
pub fn read_memory(root: &Root, guests: &mut [Guest], budget: Option<Duration>) -> Vec<String> {
    let started = Instant::now();
    let mut order: Vec<&mut Guest> = guests.iter_mut().collect();
    order.sort_by_key(|guest| guest.figures.known_rss_bytes());
    let mut bytes = order.first().map_or(0, |guest| guest.figures.known_rss_bytes());
    let batches = order.chunk_by_mut(|_, next| {
        let rss_bytes = next.figures.known_rss_bytes();
        bytes = bytes.saturating_add(rss_bytes);
        let fits = bytes <= TOGETHER;
        bytes = if fits { bytes } else { rss_bytes };
        fits
    });
    let queue = Mutex::new(batches);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut denied = 0;
        while budget.is_none_or(|budget| started.elapsed() < budget)
            && let Some(some) = next()
        {
            denied += read_some(root, some);
        }
        denied
    };
    let denied = thread::scope(|scope| {
        // One thread does it as well.
        let helper = thread::Builder::new().name("memory".to_owned()).spawn_scoped(scope, work).ok();
        work() + helper.and_then(|helper| helper.join().ok()).unwrap_or(0)
    });
    let left_out: usize = queue.into_inner().unwrap_or_else(PoisonError::into_inner).map(|batch| batch.len()).sum();
    let mut errors = Vec::new();
    if left_out > 0 {
        errors.push(format!("PSS of {left_out} guests was not read, since that takes long; --pss reads it"));
    }
    if denied > 0 {
        errors.push(format!("PSS of {denied} guests may not be read by this user; run as root"));
    }
    errors
}

/// Fills in the memory of these guests. Returns the number that may not be read.
fn read_some(root: &Root, guests: &mut [&mut Guest]) -> usize {
    let processes: Vec<Vec<ProcessId>> = guests.iter().map(|guest| memories_of(guest)).collect();
    let mut rollups = rollups(root, &processes.concat()).into_iter();
    let mut denied = 0;
    for (guest, processes) in guests.iter_mut().zip(processes) {
        let mut sums: Vec<Reading<SmapsRollup>> = rollups.by_ref().take(processes.len()).collect();
        denied += usize::from(sums.contains(&Reading::Denied));
        // A process that has just ended has no memory. A kernel without these sums has them for none.
        sums.retain(|sums| *sums != Reading::Absent);
        guest.set_memory(sums.iter().map(|sums| sums.value().map(RollupFigures::from_rollup)));
    }
    denied
}

/// Returns the processes of a guest, one for each memory map.
fn memories_of(guest: &Guest) -> Vec<ProcessId> {
    let mut processes: Vec<ProcessId> = Vec::new();
    let mut pids = Vec::new();
    for id in &guest.processes {
        if !is_of_any(id.pid, &pids) {
            processes.push(*id);
            pids.push(id.pid);
        }
    }
    processes
}

/// Returns the bytes of a process that are merged right now; `None` before Linux 6.7, or if the process has ended. The
/// kernel's cheap figure (`ksm_stat`) follows a switch only when ksmd scans.
pub fn merged_now(root: &Root, id: ProcessId) -> Option<u64> {
    rollups(root, &[id]).pop()?.value()?.ksm
}

/// Reads `smaps_rollup` of these processes; absent for one that has ended.
fn rollups(root: &Root, ids: &[ProcessId]) -> Vec<Reading<SmapsRollup>> {
    let pids: Vec<u32> = ids.iter().map(|id| id.pid).collect();
    let sums = root.texts_of(&pids, "smaps_rollup").into_iter().zip(ids);
    let of = |(text, id): (Reading<String>, &ProcessId)| {
        let sums = text.and_then(|text| SmapsRollup::parse(&text));
        if is_alive(root, *id) { sums } else { Reading::Absent }
    };
    sums.map(of).collect()
}

#[cfg(test)]
mod tests {
    use ksmith_core::guest::group;
    use ksmith_core::kernel::KsmStat;
    use ksmith_core::sample::{ProcessSample, Sample};

    use super::*;

    /// Returns a guest's resident memory: some sizes leave only a few guests in a batch.
    fn rss(pid: u32) -> u64 {
        1 << (18 + pid % 12)
    }

    #[test]
    fn each_guest_has_the_sums_of_its_own_process_however_many_there_are() {
        let tree = tempfile::tempdir().unwrap();
        let pids = 1000..1400_u32;
        let mut sample = Sample { page_size: 4096, ..Sample::default() };
        for pid in pids {
            let directory = tree.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            let stat = format!("{pid} (p) S 1 1 1 0 -1 0 0 0 0 0 5 6 0 0 20 0 1 0 9 1000 33 0");
            std::fs::write(directory.join("stat"), stat).unwrap();
            let sums = format!("1000-2000 ---p 00000000 00:00 0 [rollup]\nRss: {pid} kB\nPss: {pid} kB\n");
            std::fs::write(directory.join("smaps_rollup"), sums).unwrap();
            let id = ProcessId { pid, start_ticks: 9 };
            let ksm = KsmStat { mergeable: Some(true), ..KsmStat::default() };
            sample.processes.push(ProcessSample {
                rss_bytes: Some(rss(pid)),
                ksm,
                ..ProcessSample::new(id, "p".into(), false)
            });
        }
        let root = Root::at(tree.path());
        let (mut guests, _) = group(&sample, |_| None);
        let left_out = read_memory(&root, &mut guests, Some(Duration::ZERO));
        assert_eq!(left_out, ["PSS of 400 guests was not read, since that takes long; --pss reads it"]);
        assert_eq!(read_memory(&root, &mut guests, None), [""; 0]);
        let read: Vec<Option<u64>> = guests.iter().map(|guest| guest.figures.memory.pss_bytes).collect();
        let expected: Vec<Option<u64>> =
            guests.iter().map(|guest| Some(u64::from(guest.id().pid()) << 10)).collect();
        assert_eq!((read, guests.len()), (expected, 400));
    }
}
