//! Splitting and putting together: a merge splits a huge page, khugepaged puts one together again.
//!
//! Source: `split_huge_page` and `try_to_map_unused_to_zeropage` (Linux 6.12), `mm/khugepaged.c`.

use super::content::{NONE, ZERO, ZERO_SLOT};
use super::guest::SimPageState;
use super::huge::{CollapseLimits, DeadNode};
use super::memory::{MergeableMemory, VisitOutcome, VisitRules};

impl MergeableMemory {
    /// Returns true if one huge page backs both runs.
    fn share_huge_page(&self, one: (u32, u32), other: (u32, u32)) -> bool {
        let range = |(guest, run): (u32, u32)| self.guests[guest as usize].huge.whole_at(run);
        one.0 == other.0 && range(one).is_some() && range(one) == range(other)
    }

    /// Splits the huge page that backs a run, if there is one, and returns true if that freed the run: it is empty.
    pub fn split(&mut self, guest: u32, run: u32, rules: &VisitRules) -> bool {
        let Some(range) = self.guests[guest as usize].huge.whole_at(run) else { return false };
        let huge = &mut self.guests[guest as usize].huge;
        huge.whole[range] = false;
        let runs = huge.runs_of(range);
        self.huge_work.splits += 1;
        if !rules.frees_zeros {
            return false;
        }
        for run in runs {
            let page = self.guests[guest as usize].pages[run];
            if page.slot == ZERO_SLOT && page.state.is_private() {
                self.free_zero(guest, run as u32, rules);
            }
        }
        self.guests[guest as usize].pages[run as usize].slot == ZERO_SLOT
    }

    /// Frees an empty page: it maps the zero page, and no counter of KSM says so.
    fn free_zero(&mut self, guest: u32, run: u32, rules: &VisitRules) {
        if self.page(guest, run).state == SimPageState::Diverged {
            self.leave_tree(guest, run);
        }
        let waiting = self.contents.get(ZERO_SLOT);
        let is_node =
            (waiting.unstable_pass, waiting.unstable_guest, waiting.unstable_page) == (rules.pass, guest, run);
        let page = self.page(guest, run);
        page.state = match page.state {
            SimPageState::New => SimPageState::Freed,
            SimPageState::Unstable => SimPageState::FreedUnstable,
            _ => SimPageState::FreedTracked,
        };
        if is_node && page.state == SimPageState::FreedUnstable {
            self.dead_node = DeadNode::new(self.in_unstable * u64::from(rules.run_pages));
        }
        self.guests[guest as usize].freed += 1;
        self.private -= 1;
        self.huge_work.freed += 1;
    }

    /// Searches the trees for a page that the split on its visit has freed. It gets a node that is dead at once, or
    /// ends at one.
    pub fn search_for_freed(&mut self, guest: u32, run: u32, rules: &VisitRules) -> VisitOutcome {
        if self.contents.get(ZERO_SLOT).stable == NONE && !self.dead_node.is_dead {
            self.page(guest, run).state = SimPageState::FreedUnstable;
            self.unshared += 1;
            self.in_unstable += 1;
            self.dead_node = DeadNode::new(self.in_unstable * u64::from(rules.run_pages));
        }
        VisitOutcome::Unshared
    }

    /// Splits the huge pages of two pages that are to merge. Returns true if they can't merge for that: one has been freed, or
    /// both were in one huge page, which ksmd holds twice and splits once it holds it no more.
    pub fn split_pair(&mut self, page: (u32, u32), waiting: (u32, u32), rules: &VisitRules) -> bool {
        let is_one = self.share_huge_page(page, waiting);
        let is_freed = self.split(page.0, page.1, rules);
        // A page that is gone does not come to the one that waits.
        is_freed || is_one || self.split(waiting.0, waiting.1, rules)
    }

    /// Returns true if a search of the unstable tree ends at a node without a page.
    pub fn is_blocked(&self, slot: u32) -> bool {
        self.dead_node.is_dead && (slot == ZERO_SLOT || self.dead_node.blocks(self.contents.sum(slot)))
    }

    /// Has khugepaged look at a range of a guest, and returns true if it puts a huge page there.
    pub fn collapse(&mut self, guest: u32, range: usize, limits: CollapseLimits) -> bool {
        let Some(entry) = self.guests.get(guest as usize).filter(|entry| !entry.ended) else { return false };
        if entry.huge.whole.get(range) != Some(&false) {
            return false;
        }
        let runs = entry.huge.runs_of(range);
        let (mut none, mut shared) = (0, 0);
        for page in &entry.pages[runs.clone()] {
            match page.state {
                SimPageState::Merged => shared += u32::from(self.stable.mappings(page.node) > 1),
                state => none += u32::from(!state.is_private()),
            }
        }
        if none * limits.run_pages > limits.max_ptes_none || shared * limits.run_pages > limits.max_ptes_shared {
            return false;
        }
        for run in runs {
            self.copy_page(guest, run as u32);
        }
        self.guests[guest as usize].huge.whole[range] = true;
        self.huge_work.collapses += 1;
        true
    }

    /// Gives a page a frame in a new huge page. KSM's counters of merged pages follow at ksmd's next visit.
    fn copy_page(&mut self, guest: u32, run: u32) {
        let entry = &mut self.guests[guest as usize];
        let page = &mut entry.pages[run as usize];
        let state = page.state;
        page.state = match state {
            SimPageState::Merged | SimPageState::TakenMerged => SimPageState::Diverged,
            SimPageState::Zero | SimPageState::Freed | SimPageState::Absent => SimPageState::New,
            SimPageState::ZeroTracked | SimPageState::FreedTracked | SimPageState::Taken => SimPageState::Tracked,
            SimPageState::FreedUnstable => SimPageState::Unstable,
            _ => return,
        };
        match state {
            SimPageState::Merged => {
                let node = page.node;
                self.stable.unmap(&mut self.contents, node);
            }
            SimPageState::Zero | SimPageState::ZeroTracked => {
                (entry.zero, self.zero_pages) = (entry.zero - 1, self.zero_pages - 1);
            }
            SimPageState::Absent | SimPageState::Taken | SimPageState::TakenMerged => {
                // A page that is not there reads as zeros, and is filled with them.
                let before = std::mem::replace(&mut page.slot, self.contents.acquire(ZERO));
                entry.absent -= 1;
                self.contents.release(before);
                self.living.grow(1);
            }
            _ => entry.freed -= 1,
        }
        self.private += 1;
    }
}
