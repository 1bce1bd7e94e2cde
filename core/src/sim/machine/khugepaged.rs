//! The simulated khugepaged: looks through guests' memory at its pace, and puts huge pages together where merging has split them.
//!
//! Source: `khugepaged_do_scan` and `hpage_collapse_scan_pmd` in `mm/khugepaged.c`.

use super::super::guest::SimGuestId;
use super::super::huge::{CollapseLimits, HUGE_PAGES, HugeRanges, HugeWork};
use super::{MachineEvent, SimMachine};
use crate::field::KernelVersion;
use crate::sim::PAGE_SIZE;

/// The pace of khugepaged, as in `/sys/kernel/mm/transparent_hugepage/khugepaged`. The defaults are the kernel's. Its
/// limits are settings that ksmith holds ([`crate::knobs::Knob::MaxPtesShared`]), so that they are no part of this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KhugepagedPace {
    /// Pages that it looks through before it sleeps. It looks through one huge page's at least.
    pub pages_to_scan: u32,
    /// The time that it sleeps, in milliseconds.
    pub scan_sleep_millisecs: u32,
}

impl Default for KhugepagedPace {
    fn default() -> Self {
        Self { pages_to_scan: 4096, scan_sleep_millisecs: 10_000 }
    }
}

/// The state of khugepaged.
#[derive(Debug, Clone, Default)]
pub(super) struct SimKhugepaged {
    pace: KhugepagedPace,
    /// The guest and range that it looks at next.
    guest: u32,
    range: usize,
    /// The number of the event that wakes it: earlier ones are outdated. 0: there is no huge guest.
    alarm: u32,
    pub cpu_ns: u64,
}

impl SimMachine {
    /// Has a guest's memory be in huge pages, the memory that it has and that it gets, as after `MADV_HUGEPAGE`. Only whole
    /// huge pages count. Returns true if there is such a guest.
    pub fn use_huge_pages(&mut self, guest: SimGuestId) -> bool {
        let Some(entry) = self.memory.guests.get_mut(guest.0 as usize).filter(|entry| !entry.ended) else {
            return false;
        };
        entry.huge = HugeRanges::new(entry.pages.len(), self.config.run_pages);
        if self.khugepaged.alarm == 0 {
            self.wake_khugepaged_in(self.khugepaged.pace.sleep_ns());
        }
        true
    }

    /// Writes khugepaged's pace. As in the kernel that wakes it.
    pub fn set_khugepaged(&mut self, pace: KhugepagedPace) {
        self.khugepaged.pace = pace;
        if self.khugepaged.alarm != 0 {
            self.wake_khugepaged_in(0);
        }
    }

    /// Returns true if a split frees the empty pages of its huge page, as since Linux 6.12.
    pub fn splits_free_zeros(&self) -> bool {
        self.config.kernel >= KernelVersion::new(6, 12)
    }

    /// The CPU time that khugepaged has used, in nanoseconds.
    pub(in super::super) fn khugepaged_ns(&self) -> u64 {
        self.khugepaged.cpu_ns
    }

    fn wake_khugepaged_in(&mut self, ns: u64) {
        self.khugepaged.alarm += 1;
        let at_ns = self.now_ns.saturating_add(ns);
        self.schedule(at_ns, MachineEvent::Khugepaged(self.khugepaged.alarm));
    }

    /// Looks through a batch of pages, and returns the time of the next batch. `None`: the alarm is outdated.
    pub(super) fn run_khugepaged(&mut self, alarm: u32, at_ns: u64) -> Option<u64> {
        if alarm != self.khugepaged.alarm {
            return None;
        }
        let pace = self.khugepaged.pace;
        let ids = &self.memory.living.ids;
        let all: usize = ids.iter().map(|&id| self.memory.guests[id as usize].huge.len()).sum();
        // It looks through no memory twice in a batch.
        let ranges = (pace.pages_to_scan.div_ceil(HUGE_PAGES).max(1) as usize).min(all);
        let mut work_ns = 0;
        for _ in 0..ranges {
            let Some((guest, range)) = self.next_range() else { break };
            if self.collapse_range(guest, range) {
                work_ns += self.config.costs.collapse;
            }
        }
        self.khugepaged.cpu_ns += work_ns;
        Some(at_ns.saturating_add(work_ns).saturating_add(pace.sleep_ns()))
    }

    /// The range at khugepaged's cursor, which advances.
    fn next_range(&mut self) -> Option<(u32, usize)> {
        let ids = &self.memory.living.ids;
        let mut at = ids.partition_point(|&id| id < self.khugepaged.guest);
        let mut range = if ids.get(at) == Some(&self.khugepaged.guest) { self.khugepaged.range } else { 0 };
        // Each guest once, and the first one again from its first range on.
        for _ in 0..=ids.len() {
            if let Some(&id) = ids.get(at)
                && range < self.memory.guests[id as usize].huge.len()
            {
                (self.khugepaged.guest, self.khugepaged.range) = (id, range + 1);
                return Some((id, range));
            }
            at = if at + 1 < ids.len() { at + 1 } else { 0 };
            range = 0;
        }
        None
    }

    fn collapse_range(&mut self, guest: u32, range: usize) -> bool {
        let count = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let max_ptes_none = count(self.settings.max_ptes_none);
        let max_ptes_shared = count(self.settings.max_ptes_shared);
        let run_pages = self.config.run_pages;
        if self.used_bytes() + u64::from(HUGE_PAGES) * PAGE_SIZE > self.config.total_bytes {
            return false;
        }
        let runs = self.memory.guests[guest as usize].huge.runs_of(range);
        self.settle(|inside| inside.guest == guest && runs.contains(&(inside.run as usize)));
        self.memory.collapse(guest, range, CollapseLimits { max_ptes_none, max_ptes_shared, run_pages })
    }

    /// Has ksmd pay for the splits since `before`.
    pub(super) fn pay_for_splits(&mut self, before: HugeWork) {
        let HugeWork { splits, freed, .. } = self.memory.huge_work;
        let freed = (freed - before.freed) * u64::from(self.config.run_pages);
        let costs = &self.config.costs;
        self.ksmd.spend((splits - before.splits) * costs.split + freed * costs.freed);
    }
}

impl KhugepagedPace {
    fn sleep_ns(self) -> u64 {
        // With no sleep at all the machine's time would stand still.
        u64::from(self.scan_sleep_millisecs.max(1)) * 1_000_000
    }
}
