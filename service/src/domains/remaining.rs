//! The remaining mergeable memory of a guest that was switched off: QEMU offers its firmware's and devices' memory too,
//! and has a switch for the guest's RAM alone.

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::kernel::Mapping;
use ksmith_core::sample::ProcessId;

use ksmith_host::root::Root;

/// It is looked up again after this: the kernel walks all page tables for it.
const FRESH: Duration = Duration::from_secs(30);

/// What was found in each guest.
#[derive(Debug, Default)]
pub struct Remaining(BTreeMap<ProcessId, Found>);

#[derive(Debug, Clone, Copy)]
struct Found {
    at: Duration,
    /// Bytes marked mergeable. `None` if that can't be seen.
    marked: Option<u64>,
    /// Pages that ksmd tracked by then.
    tracked: u64,
}

impl Remaining {
    /// Bytes of address space of a guest's processes that are marked mergeable. `None` if that can't be seen.
    /// `tracked` is what ksmd tracks in it now: that grows when a process marks more, before any of it merges, and then
    /// it is looked up at once.
    pub fn bytes(&mut self, root: &Root, processes: &[ProcessId], now: Duration, tracked: u64) -> Option<u64> {
        self.0.retain(|_, found| now.saturating_sub(found.at) < FRESH);
        let id = *processes.first()?;
        if let Some(found) = self.0.get(&id).filter(|found| tracked <= found.tracked) {
            return found.marked;
        }
        let marked = processes.iter().map(|id| of_process(root, id.pid)).sum();
        self.0.insert(id, Found { at: now, marked, tracked });
        marked
    }

    /// Forgets what was found in a guest: it was switched since.
    pub fn forget(&mut self, id: ProcessId) {
        self.0.remove(&id);
    }
}

fn of_process(root: &Root, pid: u32) -> Option<u64> {
    let mappings = root.text(format!("proc/{pid}/smaps")).and_then(|text| Mapping::parse_all(&text));
    let marked = mappings.value()?.iter().filter(|mapping| mapping.is_mergeable() != Some(false));
    Some(marked.map(|mapping| mapping.end - mapping.start).sum())
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
        let (root, id) = (Root::at(tree.path()), ProcessId { pid: 9, start_ticks: 1 });
        let mut remaining = Remaining::default();
        let mut bytes = |seconds, tracked| remaining.bytes(&root, &[id], Duration::from_secs(seconds), tracked);
        write("2000");
        assert_eq!(bytes(0, 10), Some(4096));
        write("4000");
        assert_eq!(bytes(1, 5), Some(4096));
        assert_eq!(bytes(1, 11), Some(3 * 4096));
        write("3000");
        assert_eq!(bytes(31, 0), Some(2 * 4096), "it was long ago");
    }
}
