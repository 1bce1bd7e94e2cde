//! Memory that guests of known contents really save: that of their contents less their proportional set size.
//!
//! KSM's counters have neither the empty pages that splits of huge pages free nor the merged pages that khugepaged has
//! copied.

use std::path::Path;

use ksmith_core::kernel::SmapsRollup;
use ksmith_host::root::Root;

use crate::filled::page_size;
use crate::{GuestContents, GuestError, MemoryGuest};

/// Reads page tables of guests.
#[derive(Debug)]
pub(crate) struct GuestTruth {
    root: Root,
    /// Memory of a guest that holds none of its contents, but the program itself.
    own_bytes: u64,
}

/// Memory of guests at one moment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TrueMemory {
    /// Contents less the proportional set size.
    pub saved_bytes: u64,
    /// In huge pages.
    pub huge_bytes: u64,
}

impl GuestTruth {
    /// Starts a guest without contents, to learn what `program` itself takes.
    ///
    /// # Errors
    /// The guest can't be started.
    pub fn new(root: Root, program: &Path) -> Result<Self, GuestError> {
        let mut empty = MemoryGuest::start(program, &GuestContents::default())?;
        empty.wait_ready()?;
        let own_bytes = read_rollup(&root, empty.pid()).and_then(|sums| held_bytes(&sums)).unwrap_or(0);
        Ok(Self { root, own_bytes })
    }

    /// Reads the guests with these PIDs and bytes of contents, all of which are filled. A guest that can't be read saves
    /// nothing.
    pub fn read(&self, guests: impl IntoIterator<Item = (u32, u64)>) -> TrueMemory {
        let mut memory = TrueMemory::default();
        for (pid, contents) in guests {
            let Some(sums) = read_rollup(&self.root, pid) else { continue };
            let held = held_bytes(&sums).map_or(contents, |held| held.saturating_sub(self.own_bytes));
            memory.saved_bytes += contents.saturating_sub(held);
            memory.huge_bytes += sums.anon_huge.unwrap_or(0);
        }
        memory
    }
}

/// The PID of a guest and the bytes of its contents, for [`GuestTruth::read`].
pub(crate) fn filled_guest(guest: &MemoryGuest) -> (u32, u64) {
    (guest.pid(), guest.contents().pages() as u64 * page_size() as u64)
}

/// Reads the sums of a process's memory map. `None` where there are none.
pub(crate) fn read_rollup(root: &Root, pid: u32) -> Option<SmapsRollup> {
    root.text(format!("proc/{pid}/smaps_rollup")).value().and_then(|text| SmapsRollup::parse(text).ok())
}

fn held_bytes(sums: &SmapsRollup) -> Option<u64> {
    sums.pss_anon.or(sums.pss)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_guests_lack_of_their_contents_is_saved_but_the_program_is_none_of_it() {
        let tree = tempfile::tempdir().unwrap();
        for (pid, text) in [(7, "Pss_Anon: 612 kB\nAnonHugePages: 2048 kB\n"), (8, "Pss: 1024 kB\n")] {
            let directory = tree.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("smaps_rollup"), text).unwrap();
        }
        let truth = GuestTruth { root: Root::at(tree.path()), own_bytes: 100 << 10 };
        let memory = truth.read([(7, 1 << 20), (8, 1 << 20), (9, 1 << 20)]);
        assert_eq!(memory, TrueMemory { saved_bytes: (512 << 10) + (100 << 10), huge_bytes: 2 << 20 });
    }
}
