//! The remaining mergeable memory of a guest that was switched off: QEMU offers its firmware's and devices' memory too,
//! and has a switch for the guest's RAM alone.

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::sample::ProcessId;

use super::lookups::ProcessLookups;
use ksmith_host::mappings;
use ksmith_host::root::Root;

/// The age from which a figure is looked up again: the kernel walks all page tables for it.
const FRESH: Duration = Duration::from_secs(30);

/// The remaining mergeable memory of each process.
#[derive(Debug)]
pub struct RemainingMergeable {
    found: BTreeMap<ProcessId, RemainingFigure>,
    /// Lookups, each with the time of its request and the pages that ksmd tracked by then.
    lookups: ProcessLookups<Option<u64>, (Duration, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct RemainingFigure {
    at: Duration,
    /// Bytes marked mergeable. `None` if that can't be seen.
    marked: Option<u64>,
    /// Pages that ksmd tracked in the guest by then.
    tracked: u64,
}

impl RemainingMergeable {
    /// Creates figures of no process.
    pub fn new(root: &Root) -> Self {
        Self { found: BTreeMap::new(), lookups: ProcessLookups::new(root, read_marked_bytes) }
    }

    /// Returns the bytes of address space of a guest's processes that are marked mergeable. `None` if that can't be
    /// seen, or is being looked up. `tracked` is the number of pages that ksmd tracks in it. That grows when a process
    /// marks more, before any of it merges, and then it is looked up at once.
    pub fn bytes(&mut self, processes: &[ProcessId], now: Duration, tracked: u64) -> Option<u64> {
        for (id, marked, (at, tracked)) in self.lookups.take_found() {
            self.found.insert(id, RemainingFigure { at, marked, tracked });
        }
        self.found.retain(|_, found| now.saturating_sub(found.at) < FRESH);
        let mut all = Some(0);
        for id in processes {
            let known = self.found.get(id).filter(|found| tracked <= found.tracked).copied();
            let is_ageing = known.is_some_and(|found| now.saturating_sub(found.at) >= FRESH / 2);
            let mut marked = known.and_then(|found| found.marked);
            if (known.is_none() || is_ageing)
                && let Some((found, (at, tracked))) = self.lookups.request_lookup(*id, (now, tracked))
            {
                self.found.insert(*id, RemainingFigure { at, marked: found, tracked });
                marked = found;
            }
            all = all.zip(marked).map(|(all, marked)| all + marked);
        }
        all
    }

    /// Drops the figure of a process that was switched.
    pub fn forget(&mut self, id: ProcessId) {
        self.found.remove(&id);
        // A look under way may be from before the switch.
        self.lookups.forget(id);
    }
}

fn read_marked_bytes(root: &Root, pid: u32) -> Option<u64> {
    let mut marked = 0;
    let read = mappings::read(root, pid, "smaps", |mapping| {
        if mapping.is_mergeable() != Some(false) {
            marked += mapping.end - mapping.start;
        }
    });
    read.get().map(|()| marked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_up_again_when_ksmd_tracks_more() {
        let tree = tempfile::tempdir().unwrap();
        let directory = tree.path().join("proc/9");
        std::fs::create_dir_all(&directory).unwrap();
        let write = |end: &str| {
            let text = format!(
                "1000-{end} rw-p 00000000 00:00 0 \nVmFlags: rd mg\n9000-a000 rw-p 0 0:0 0 \nVmFlags: rd\n"
            );
            std::fs::write(directory.join("smaps"), text).unwrap();
        };
        let id = ProcessId { pid: 9, start_ticks: 1 };
        let mut remaining = RemainingMergeable::new(&Root::at(tree.path()));
        let mut bytes = |seconds, tracked| remaining.bytes(&[id], Duration::from_secs(seconds), tracked);
        write("2000");
        assert_eq!(bytes(0, 10), Some(4096));
        write("4000");
        assert_eq!(bytes(1, 5), Some(4096));
        assert_eq!(bytes(1, 11), Some(3 * 4096));
        write("3000");
        assert_eq!(bytes(31, 0), Some(2 * 4096), "it was long ago");
    }
}
