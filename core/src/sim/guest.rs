//! A guest: a process with all its memory mergeable.

use std::sync::Arc;

use super::huge::HugeRanges;

/// The identity of a guest of one machine. It is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SimGuestId(pub(super) u32);

/// The state of a page in KSM and in the page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SimPageState {
    /// A private page without an `rmap_item`.
    New,
    /// A private page with an `rmap_item` in no tree: counts as volatile.
    Tracked,
    /// A private page in the unstable tree, perhaps that of an earlier pass.
    Unstable,
    /// Merged: maps the frame of its stable node.
    Merged,
    /// A private page that was merged: its `rmap_item` stays at the stable node until ksmd's next visit.
    Diverged,
    /// Maps the zero page, and has its `rmap_item` until ksmd's next visit.
    ZeroTracked,
    /// Maps the zero page.
    Zero,
    /// Not there: the guest has not touched it, or has given it up. `Taken` has its `rmap_item` until ksmd's next
    /// visit, and `TakenMerged` counts as merged until then.
    Absent,
    Taken,
    TakenMerged,
    /// Maps the zero page since a huge page was split, which no counter says. `FreedTracked` has its `rmap_item` until
    /// ksmd's next visit, and `FreedUnstable` counts as unshared until then.
    Freed,
    FreedTracked,
    FreedUnstable,
}

impl SimPageState {
    /// Returns true if the page has an `rmap_item`.
    pub fn is_tracked(self) -> bool {
        !matches!(self, Self::New | Self::Zero | Self::Absent | Self::Freed)
    }

    /// Returns true if the page has a frame of its own.
    pub fn is_private(self) -> bool {
        matches!(self, Self::New | Self::Tracked | Self::Unstable | Self::Diverged)
    }

    /// Returns true if the page maps the zero page, uncounted.
    pub fn is_freed(self) -> bool {
        matches!(self, Self::Freed | Self::FreedTracked | Self::FreedUnstable)
    }

    /// Returns true if the page takes no memory and holds no content.
    pub fn is_absent(self) -> bool {
        matches!(self, Self::Absent | Self::Taken | Self::TakenMerged)
    }
}

/// One page, or run of pages with the same fate: 16 bytes, in the order of addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimPage {
    /// The slot of its content.
    pub slot: u32,
    /// The checksum at the last visit, 0 before the first.
    pub sum: u32,
    /// The stable node, where it is merged or diverged.
    pub node: u32,
    pub state: SimPageState,
    /// The number of times that `smart_scan` considered it.
    pub age: u8,
    /// The number of times that `smart_scan` still skips it.
    pub skips: u8,
}

impl SimPage {
    pub fn new(slot: u32) -> Self {
        Self { slot, sum: 0, node: super::content::NONE, state: SimPageState::New, age: 0, skips: 0 }
    }

    /// Drops the `rmap_item`: the next visit is the first.
    pub fn forget(&mut self, state: SimPageState) {
        *self = Self { state, ..Self::new(self.slot) };
    }

    /// Ages the page as `smart_scan` does, and returns true if it is skipped this time.
    pub fn is_skipped(&mut self) -> bool {
        let age = self.age;
        self.age = age.saturating_add(1);
        if age < 3 {
            return false;
        }
        if self.skips == 0 {
            self.skips = match age {
                ..=3 => 1,
                4..=5 => 2,
                6..=8 => 4,
                _ => 8,
            };
            return false;
        }
        self.skips -= 1;
        true
    }
}

/// A guest and the kernel's figures for its process.
#[derive(Debug, Clone)]
pub(super) struct MachineGuest {
    pub name: Arc<str>,
    /// Its pages, or runs of them. The counts below are in the same unit.
    pub pages: Vec<SimPage>,
    pub started_ns: u64,
    /// True if it has ended: its memory is free, and ksmd has not visited it since.
    pub ended: bool,
    /// The part of one CPU that it always uses, in thousandths.
    pub load_permille: u32,
    /// The CPU time of its writes.
    pub write_ns: u64,
    pub minor_faults: u64,
    pub rmap_items: u64,
    pub merging: u64,
    pub zero: u64,
    /// Pages that are not there.
    pub absent: u64,
    /// Empty pages that splits of huge pages have freed.
    pub freed: u64,
    pub huge: HugeRanges,
}

impl MachineGuest {
    /// Pages that are there.
    pub fn present(&self) -> u64 {
        self.pages.len() as u64 - self.absent
    }

    /// CPU time used until `now_ns`.
    pub fn cpu_ns(&self, now_ns: u64) -> u64 {
        let lived = u128::from(now_ns.saturating_sub(self.started_ns));
        let load = lived * u128::from(self.load_permille) / 1000;
        self.write_ns.saturating_add(u64::try_from(load).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_sixteen_bytes() {
        assert_eq!(size_of::<SimPage>(), 16);
    }

    #[test]
    fn an_old_page_is_visited_every_ninth_time() {
        let mut page = SimPage::new(0);
        let visits: Vec<_> = (0..1000).filter(|_| !page.is_skipped()).collect();
        assert_eq!(visits[..10], [0, 1, 2, 3, 5, 8, 13, 22, 31, 40]);
        assert!(visits[6..].windows(2).all(|pair| pair[1] - pair[0] == 9));
    }
}
