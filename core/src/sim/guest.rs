//! A guest: a process whose whole memory is mergeable.

use std::sync::Arc;

/// Names a guest of one machine for good; ids are not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GuestId(pub(super) u32);

/// What KSM knows of a page, and what the page table maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// A private page that ksmd has not come across.
    New,
    /// A private page with an `rmap_item` in no tree: counts as volatile.
    Tracked,
    /// A private page in the unstable tree, perhaps that of an earlier pass.
    Unstable,
    /// Merged: maps the frame of its stable node.
    Merged,
    /// A private page that was merged; its `rmap_item` still hangs on the stable node until ksmd comes by.
    Diverged,
    /// Maps the zero page, and still has its `rmap_item` until ksmd comes by.
    ZeroTracked,
    /// Maps the zero page.
    Zero,
}

impl State {
    /// Whether the page has an `rmap_item`.
    pub fn is_tracked(self) -> bool {
        !matches!(self, Self::New | Self::Zero)
    }

    /// Whether the page has a frame of its own.
    pub fn is_private(self) -> bool {
        matches!(self, Self::New | Self::Tracked | Self::Unstable | Self::Diverged)
    }
}

/// One page: 16 bytes, in the order of addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    /// Its content.
    pub slot: u32,
    /// The checksum at the last visit, 0 before the first.
    pub sum: u32,
    /// The stable node, where it is merged or diverged.
    pub node: u32,
    pub state: State,
    /// How often `smart_scan` met it.
    pub age: u8,
    /// How often `smart_scan` may still skip it.
    pub skips: u8,
}

impl Page {
    pub fn new(slot: u32) -> Self {
        Self { slot, sum: 0, node: super::content::NONE, state: State::New, age: 0, skips: 0 }
    }

    /// Forgets the `rmap_item`: the next visit is the first.
    pub fn forget(&mut self, state: State) {
        *self = Self { state, ..Self::new(self.slot) };
    }

    /// Ages the page as `smart_scan` does and says whether it is skipped this time.
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
pub(super) struct Guest {
    pub name: Arc<str>,
    pub pages: Vec<Page>,
    pub started_ns: u64,
    /// It ended: its memory is free, and ksmd has not yet noticed.
    pub ended: bool,
    /// Part of one CPU that it always uses, in thousandths.
    pub load_permille: u32,
    /// Further CPU time: what its writes took.
    pub write_ns: u64,
    pub minor_faults: u64,
    pub rmap_items: u64,
    pub merging: u64,
    pub zero: u64,
}

impl Guest {
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
        assert_eq!(size_of::<Page>(), 16);
    }

    #[test]
    fn an_old_page_is_visited_every_ninth_time() {
        let mut page = Page::new(0);
        let visits: Vec<_> = (0..1000).filter(|_| !page.is_skipped()).collect();
        assert_eq!(visits[..10], [0, 1, 2, 3, 5, 8, 13, 22, 31, 40]);
        assert!(visits[6..].windows(2).all(|pair| pair[1] - pair[0] == 9));
    }
}
