//! Readings of guests' page tables, with the arithmetic of the live ones.

use std::time::Duration;

use super::guest::SimPageState;
use super::machine::SimMachine;
use super::show::FIRST_PID;
use super::{HUGE_PAGE_BYTES, PAGE_SIZE};
use crate::field::KernelVersion;
use crate::fold::ZeroReading;
use crate::kernel::SmapsRollup;
use crate::sample::{MergeReading, ProcessId};

/// The kernel's PSS has so many bits behind the point (`PSS_SHIFT` in `fs/proc/task_mmu.c`).
const PSS_SHIFT: u32 = 12;

/// The kernel that first shows all figures of a reading: `KSM:` and `PAGEMAP_SCAN`.
const SHOWS_MERGED: KernelVersion = KernelVersion::new(6, 7);

/// The page tables of a guest.
#[derive(Debug, Clone, Copy)]
pub struct PageTableReading {
    /// Its merged pages.
    pub merged: MergeReading,
    /// Its pages that map the zero page.
    pub zeros: ZeroReading,
    /// Entries of the page tables, one for each small page and each huge one: a reading's cost.
    pub entries: u64,
}

impl SimMachine {
    /// Reads the page tables of a guest. `None` if it has ended, or the kernel lacks one of the figures.
    pub fn read_page_tables(&self, id: ProcessId, at: Duration) -> Option<PageTableReading> {
        let index = id.pid.checked_sub(FIRST_PID)?;
        let guest = self.memory.guests.get(index as usize).filter(|guest| !guest.ended)?;
        let process = self.process(index, guest);
        if process.id != id || self.config.kernel < SHOWS_MERGED {
            return None;
        }
        let run_pages = u64::from(self.config.run_pages);
        let (mut entries, mut merged_runs, mut pss_of_merged) = (0, 0, 0);
        for run in guest.huge.small_runs(guest.pages.len()) {
            entries += run_pages;
            let page = &guest.pages[run];
            if page.state == SimPageState::Merged {
                merged_runs += 1;
                pss_of_merged +=
                    (PAGE_SIZE << PSS_SHIFT) / u64::from(self.memory.stable.mappings(page.node).max(1));
            }
        }
        let huge_bytes = guest.huge.huge_pages() * HUGE_PAGE_BYTES;
        let merged_bytes = merged_runs * run_pages * PAGE_SIZE;
        let ksm_zero_bytes = process.zero_pages() * PAGE_SIZE;
        // All of a guest's memory is anonymous, and the zero page is not resident.
        let anonymous = process.known_rss_bytes();
        let shared = merged_bytes - ((pss_of_merged * run_pages) >> PSS_SHIFT);
        let sums = SmapsRollup {
            ksm: Some(merged_bytes + ksm_zero_bytes),
            anonymous: Some(anonymous),
            pss_anon: Some(anonymous.saturating_sub(shared)),
            anon_huge: Some(huge_bytes),
            ..SmapsRollup::default()
        };
        Some(PageTableReading {
            merged: MergeReading::from_figures(at, &sums, &process.ksm, PAGE_SIZE)?,
            zeros: ZeroReading {
                zero_mapped_bytes: guest.freed * run_pages * PAGE_SIZE + ksm_zero_bytes,
                ksm_zero_bytes,
                huge_bytes,
                host_split_bytes: Some(self.memory.huge_work.splits * HUGE_PAGE_BYTES),
                small_bytes: Some(anonymous.saturating_sub(huge_bytes)),
                is_tracked: process.ksm.tracks_pages(),
            },
            entries: entries + guest.huge.huge_pages(),
        })
    }
}
