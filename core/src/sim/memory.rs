//! The guests' memory as KSM sees it: pages, their contents, and the effects of a visit or a write.

use super::content::{ContentTable, UNIQUE, ZERO_SLOT, is_unique};
use super::guest::{MachineGuest, SimPage, SimPageState};
use super::huge::{DeadNode, HugeRanges, HugeWork};
use super::living::LivingGuests;
use super::stable::StableTree;

/// The outcome of a visit, which decides its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VisitOutcome {
    /// The checksum was new.
    Checksum {
        /// True if the stable tree was searched before, as kernels before 6.11 do.
        has_searched: bool,
    },
    /// Both trees had no equal page.
    Unshared,
    /// The search of the unstable tree ended early, at a node without a page.
    Blocked,
    /// It was merged with a page of the stable tree.
    Merge,
    /// It was merged with a page of the unstable tree, and both went to the stable tree.
    Pair,
    /// It was merged with the zero page.
    Zero,
}

/// The rules of one visit.
#[derive(Debug, Clone, Copy)]
pub(super) struct VisitRules {
    /// The number of the pass: pages of the unstable tree are from this pass alone.
    pub pass: u32,
    pub now_ns: u64,
    pub prune_ns: u64,
    pub max_page_sharing: u32,
    pub use_zero_pages: bool,
    /// Since 6.12 the split of a huge page frees its empty pages.
    pub frees_zeros: bool,
    /// The length of a run of pages.
    pub run_pages: u32,
    /// Since 6.11 a page with a changed checksum is not even compared with merged pages.
    pub checksum_first: bool,
}

/// All mergeable memory.
#[derive(Debug, Clone)]
pub(super) struct MergeableMemory {
    /// The guests by id. An ended guest keeps its place, without pages.
    pub guests: Vec<MachineGuest>,
    pub living: LivingGuests,
    pub contents: ContentTable,
    pub stable: StableTree,
    /// Frames that belong to one page.
    pub private: u64,
    pub rmap_items: u64,
    pub unshared: u64,
    pub zero_pages: u64,
    pub cow_ksm: u64,
    /// The guest of the page that waited in the unstable tree for the last one that was merged from there.
    pub partner: Option<u32>,
    /// Pages in the unstable tree of this pass.
    pub in_unstable: u64,
    /// The node of the unstable tree of this pass that has lost its page.
    pub dead_node: DeadNode,
    pub huge_work: HugeWork,
}

impl MergeableMemory {
    pub fn new() -> Self {
        Self {
            guests: Vec::new(),
            living: LivingGuests::default(),
            contents: ContentTable::new(),
            stable: StableTree::default(),
            private: 0,
            rmap_items: 0,
            unshared: 0,
            zero_pages: 0,
            cow_ksm: 0,
            partner: None,
            in_unstable: 0,
            dead_node: DeadNode::default(),
            huge_work: HugeWork::default(),
        }
    }

    pub fn page(&mut self, guest: u32, page: u32) -> &mut SimPage {
        &mut self.guests[guest as usize].pages[page as usize]
    }

    /// Gives a page its `rmap_item`, if it has none.
    pub fn track(&mut self, guest: u32, page: u32) {
        let guest = &mut self.guests[guest as usize];
        let page = &mut guest.pages[page as usize];
        if page.state == SimPageState::New {
            page.state = SimPageState::Tracked;
            guest.rmap_items += 1;
            self.rmap_items += 1;
        }
    }

    /// Removes a private page from its tree.
    pub fn leave_tree(&mut self, guest: u32, page: u32) {
        let guest = &mut self.guests[guest as usize];
        let page = &mut guest.pages[page as usize];
        match page.state {
            SimPageState::Unstable | SimPageState::FreedUnstable => self.unshared -= 1,
            SimPageState::Diverged | SimPageState::TakenMerged => {
                self.stable.remove_item(page.node);
                guest.merging -= 1;
            }
            _ => return,
        }
        page.state = match page.state {
            SimPageState::TakenMerged => SimPageState::Taken,
            SimPageState::FreedUnstable => SimPageState::FreedTracked,
            _ => SimPageState::Tracked,
        };
    }

    /// Frees the `rmap_item` of a page that is not merged.
    pub fn untrack(&mut self, guest: u32, page: u32) {
        self.leave_tree(guest, page);
        let guest = &mut self.guests[guest as usize];
        let page = &mut guest.pages[page as usize];
        if page.state.is_tracked() {
            let left = match page.state {
                SimPageState::ZeroTracked => SimPageState::Zero,
                SimPageState::Taken => SimPageState::Absent,
                SimPageState::FreedTracked => SimPageState::Freed,
                _ => SimPageState::New,
            };
            page.forget(left);
            guest.rmap_items -= 1;
            self.rmap_items -= 1;
        }
    }

    /// Visits a private page that has its `rmap_item`. Source: `cmp_and_merge_page`.
    pub fn visit(&mut self, guest: u32, page: u32, rules: &VisitRules) -> VisitOutcome {
        let slot = self.page(guest, page).slot;
        self.leave_tree(guest, page);
        if !rules.checksum_first && self.join(guest, page, slot, rules) {
            return VisitOutcome::Merge;
        }
        let sum = self.contents.sum(slot);
        let entry = self.page(guest, page);
        if entry.sum != sum {
            entry.sum = sum;
            return VisitOutcome::Checksum { has_searched: !rules.checksum_first };
        }
        if rules.use_zero_pages && slot == ZERO_SLOT {
            if self.split(guest, page, rules) {
                return self.search_for_freed(guest, page, rules);
            }
            self.page(guest, page).state = SimPageState::ZeroTracked;
            self.guests[guest as usize].zero += 1;
            self.zero_pages += 1;
            self.private -= 1;
            return VisitOutcome::Zero;
        }
        if rules.checksum_first && self.join(guest, page, slot, rules) {
            return VisitOutcome::Merge;
        }
        self.pair(guest, page, slot, rules)
    }

    /// Merges a page with a stable node, if there is one that is not full.
    fn join(&mut self, guest: u32, page: u32, slot: u32, rules: &VisitRules) -> bool {
        if is_unique(slot) {
            return false;
        }
        let found = self.stable.search(&self.contents, slot, rules.max_page_sharing, rules.now_ns, rules.prune_ns);
        if let Some(node) = found
            && !self.split(guest, page, rules)
        {
            self.map(guest, page, node);
        }
        found.is_some()
    }

    /// Searches the unstable tree for a page's equal: merges the two, or adds the page to the tree.
    fn pair(&mut self, guest: u32, page: u32, slot: u32, rules: &VisitRules) -> VisitOutcome {
        if is_unique(slot) {
            if self.is_blocked(slot) {
                return VisitOutcome::Blocked;
            }
            self.page(guest, page).state = SimPageState::Unstable;
            self.unshared += 1;
            self.in_unstable += 1;
            return VisitOutcome::Unshared;
        }
        let content = self.contents.get(slot);
        let (other_guest, other_page) = (content.unstable_guest, content.unstable_page);
        let waits = content.unstable_pass == rules.pass
            && self.guests.get(other_guest as usize).is_some_and(|other| {
                // The page may have been written to since, or its guest have ended.
                !other.ended
                    && other
                        .pages
                        .get(other_page as usize)
                        .is_some_and(|page| page.state == SimPageState::Unstable && page.slot == slot)
            });
        if waits && self.split_pair((guest, page), (other_guest, other_page), rules) {
            return VisitOutcome::Unshared;
        }
        if waits {
            self.leave_tree(other_guest, other_page);
            self.in_unstable -= 1;
            let node = self.stable.insert(&mut self.contents, slot, rules.now_ns);
            self.map(other_guest, other_page, node);
            self.partner = Some(other_guest);
            self.map(guest, page, node);
            return VisitOutcome::Pair;
        }
        if self.is_blocked(slot) {
            return if slot == ZERO_SLOT { VisitOutcome::Unshared } else { VisitOutcome::Blocked };
        }
        let content = self.contents.get_mut(slot);
        content.unstable_pass = rules.pass;
        content.unstable_guest = guest;
        content.unstable_page = page;
        self.page(guest, page).state = SimPageState::Unstable;
        self.unshared += 1;
        self.in_unstable += 1;
        VisitOutcome::Unshared
    }

    fn map(&mut self, guest: u32, page: u32, node: u32) {
        self.stable.append(node);
        self.private -= 1;
        let guest = &mut self.guests[guest as usize];
        guest.merging += 1;
        let page = &mut guest.pages[page as usize];
        page.state = SimPageState::Merged;
        page.node = node;
    }

    /// Gives a page a frame of its own again, as a write or unmerging does first.
    pub fn unshare(&mut self, guest: u32, page: u32) {
        let guest = &mut self.guests[guest as usize];
        let page = &mut guest.pages[page as usize];
        match page.state {
            SimPageState::Merged => {
                self.stable.unmap(&mut self.contents, page.node);
                page.state = SimPageState::Diverged;
                self.cow_ksm += 1;
            }
            SimPageState::ZeroTracked | SimPageState::Zero => {
                page.state =
                    if page.state == SimPageState::Zero { SimPageState::New } else { SimPageState::Tracked };
                guest.zero -= 1;
                self.zero_pages -= 1;
            }
            SimPageState::Freed | SimPageState::FreedTracked | SimPageState::FreedUnstable => {
                page.state = match page.state {
                    SimPageState::Freed => SimPageState::New,
                    SimPageState::FreedTracked => SimPageState::Tracked,
                    _ => SimPageState::Unstable,
                };
                guest.freed -= 1;
            }
            SimPageState::Absent | SimPageState::Taken | SimPageState::TakenMerged => {
                page.state = match page.state {
                    SimPageState::Absent => SimPageState::New,
                    SimPageState::Taken => SimPageState::Tracked,
                    _ => SimPageState::Diverged,
                };
                guest.absent -= 1;
                self.living.grow(1);
            }
            _ => return,
        }
        guest.minor_faults += 1;
        self.private += 1;
    }

    /// Takes a page from a guest, with its content. The gauges count it as merged until ksmd's next visit.
    pub fn take_page(&mut self, guest: u32, page: u32) {
        let entry = &mut self.guests[guest as usize];
        entry.huge.unmap(page);
        let taken = &mut entry.pages[page as usize];
        taken.state = match taken.state {
            SimPageState::Absent | SimPageState::Taken | SimPageState::TakenMerged => return,
            SimPageState::New => {
                self.private -= 1;
                SimPageState::Absent
            }
            SimPageState::Unstable => {
                (self.private, self.unshared) = (self.private - 1, self.unshared - 1);
                SimPageState::Taken
            }
            SimPageState::Tracked => {
                self.private -= 1;
                SimPageState::Taken
            }
            SimPageState::Diverged => {
                self.private -= 1;
                SimPageState::TakenMerged
            }
            SimPageState::Merged => {
                self.stable.unmap(&mut self.contents, taken.node);
                SimPageState::TakenMerged
            }
            SimPageState::ZeroTracked | SimPageState::Zero => {
                (entry.zero, self.zero_pages) = (entry.zero - 1, self.zero_pages - 1);
                if taken.state == SimPageState::Zero { SimPageState::Absent } else { SimPageState::Taken }
            }
            SimPageState::Freed => {
                entry.freed -= 1;
                SimPageState::Absent
            }
            SimPageState::FreedTracked | SimPageState::FreedUnstable => {
                entry.freed -= 1;
                self.unshared -= u64::from(taken.state == SimPageState::FreedUnstable);
                SimPageState::Taken
            }
        };
        entry.absent += 1;
        let content = std::mem::replace(&mut taken.slot, self.contents.acquire(UNIQUE));
        self.contents.release(content);
        self.living.shrink();
    }

    /// Writes `content` to a page of a guest.
    pub fn write(&mut self, guest: u32, page: u32, content: u64, cost_ns: u64) {
        self.unshare(guest, page);
        let new = self.contents.acquire(content);
        let entry = self.page(guest, page);
        let old = std::mem::replace(&mut entry.slot, new);
        self.contents.release(old);
        self.guests[guest as usize].write_ns += cost_ns;
        self.living.write(cost_ns);
    }

    /// Frees a guest's memory. Its `rmap_item`s stay until ksmd's next visit.
    pub fn end(&mut self, guest: u32) {
        let Some(entry) = self.guests.get_mut(guest as usize) else { return };
        self.living.remove(guest, entry);
        entry.ended = true;
        self.zero_pages -= std::mem::take(&mut entry.zero);
        (entry.freed, entry.huge) = (0, HugeRanges::default());
        for page in &mut entry.pages {
            match page.state {
                SimPageState::Merged => {
                    self.stable.unmap(&mut self.contents, page.node);
                    page.state = SimPageState::Diverged;
                }
                SimPageState::ZeroTracked => page.state = SimPageState::Tracked,
                SimPageState::Zero | SimPageState::Freed => page.state = SimPageState::New,
                SimPageState::FreedTracked => page.state = SimPageState::Tracked,
                SimPageState::FreedUnstable => page.state = SimPageState::Unstable,
                SimPageState::Absent | SimPageState::Taken | SimPageState::TakenMerged => {}
                _ => self.private -= 1,
            }
            self.contents.release(page.slot);
        }
    }

    /// Frees the `rmap_item`s of an ended guest.
    pub fn bury(&mut self, guest: u32) {
        for page in 0..self.guests[guest as usize].pages.len() {
            self.untrack(guest, page as u32);
        }
        self.guests[guest as usize].pages = Vec::new();
    }
}
