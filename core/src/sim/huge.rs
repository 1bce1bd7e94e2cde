//! Huge pages of guests: the ranges that they back, and the node that a split may leave in ksmd's tree.

/// Pages in a huge page.
pub(super) const HUGE_PAGES: u32 = 512;

/// The ranges of a guest's memory that a huge page can back.
#[derive(Debug, Clone, Default)]
pub(super) struct HugeRanges {
    /// The runs of pages in a range; 0 for a guest on small pages.
    runs: u32,
    /// True for each range that a huge page backs.
    pub(super) whole: Vec<bool>,
}

impl HugeRanges {
    /// The ranges of a guest that has huge pages where its memory is `runs` runs of `run_pages` pages.
    pub fn new(runs: usize, run_pages: u32) -> Self {
        let mut ranges = Self { runs: (HUGE_PAGES / run_pages.max(1)).max(1), whole: Vec::new() };
        ranges.extend(runs, true);
        ranges
    }

    /// Adds the ranges that are complete once the guest has `runs` runs. `is_whole`: huge pages back them.
    pub fn extend(&mut self, runs: usize, is_whole: bool) {
        if self.runs != 0 {
            self.whole.resize(runs / self.runs as usize, is_whole);
        }
    }

    /// The range of a run that a huge page backs.
    pub fn whole_at(&self, run: u32) -> Option<usize> {
        if self.runs == 0 {
            return None;
        }
        let range = (run / self.runs) as usize;
        (self.whole.get(range) == Some(&true)).then_some(range)
    }

    /// The runs of a range.
    pub fn runs_of(&self, range: usize) -> std::ops::Range<usize> {
        let runs = self.runs as usize;
        range * runs..(range + 1) * runs
    }

    /// The runs that no huge page backs, of a guest with so many.
    pub fn small_runs(&self, runs: usize) -> impl Iterator<Item = usize> {
        let split = self.whole.iter().enumerate().filter(|(_, whole)| !**whole);
        split.flat_map(|(range, _)| self.runs_of(range)).chain(self.whole.len() * self.runs as usize..runs)
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.whole.len()
    }

    /// The runs of each huge page.
    #[cfg(test)]
    pub fn whole_ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        self.whole.iter().enumerate().filter(|(_, whole)| **whole).map(|(range, _)| self.runs_of(range))
    }

    /// The number of huge pages.
    pub fn huge_pages(&self) -> u64 {
        self.whole.iter().filter(|whole| **whole).count() as u64
    }

    /// Takes a huge page apart without looking at its pages, as the guest's balloon does.
    pub fn unmap(&mut self, run: u32) {
        if let Some(range) = self.whole_at(run) {
            self.whole[range] = false;
        }
    }
}

/// Work on huge pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HugeWork {
    /// Huge pages that were split.
    pub splits: u64,
    /// Runs of empty pages that splits freed.
    pub freed: u64,
    /// Huge pages that were put together.
    pub collapses: u64,
}

/// The part of the unstable tree that no search gets past in this pass.
///
/// A split that frees an empty page of the tree leaves its node there, and a search ends at a node without a page
/// (`get_mergeable_page` in `unstable_tree_search_insert`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeadNode {
    /// True if the node of empty pages has lost its page.
    pub is_dead: bool,
    /// Contents with a spread checksum up to this one end there; 0 for none.
    bound: u32,
}

impl DeadNode {
    /// The node of empty pages has lost its page among `pages` pages of the tree.
    ///
    /// The empty page is the least content. It is on the way to 2 in `n + 1` others, and to all while it is the root.
    pub fn new(pages: u64) -> Self {
        let bound = if pages < 3 { u32::MAX } else { ((2_u64 << 32) / (pages + 1)) as u32 };
        Self { is_dead: true, bound }
    }

    /// Returns true if a search for a content with that checksum ends at the node.
    pub fn blocks(self, sum: u32) -> bool {
        self.bound != 0 && sum.wrapping_mul(0x9e37_79b1) <= self.bound
    }
}

/// The limits of khugepaged on a range of 512 pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct CollapseLimits {
    pub max_ptes_none: u32,
    pub max_ptes_shared: u32,
    pub run_pages: u32,
}
