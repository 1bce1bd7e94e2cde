//! A forecast of what merging would split of the examined process, from some of its huge pages, which are read whole.

use std::collections::BTreeSet;

use ksmith_core::sketch::{ZERO, mix};
use schemars::JsonSchema;
use serde::Serialize;

use super::equals::EqualPageSearch;
use super::looks::DrawnPage;
use super::pages::page_now;
use crate::memory::scan::{ScanBuffers, ScanContext, huge_page_size};
use crate::memory::target::ReadTarget;

/// Huge pages that are read: the part that splits is then accurate to nine percentage points.
const HUGE_PAGES: u64 = 32;

/// Pages in them at most. Where a huge page has more than 512, fewer are read.
const MOST_PAGES: u64 = 16_384;

/// The huge pages of a process that merging would split, and what it would save in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SplitForecast {
    /// Bytes of its huge pages that would be split.
    pub split_bytes: u64,
    /// Bytes in them that merging would save.
    pub saved_bytes: u64,
}

/// A huge page that was read: its pages, by address and fingerprint.
#[derive(Debug)]
pub struct DrawnHugePage(Vec<(u64, u64)>);

impl DrawnHugePage {
    /// Reads huge pages of the process, drawn at random from those of its sampled pages.
    pub fn read_some(
        context: &ScanContext,
        target: &ReadTarget,
        scratch: &mut ScanBuffers,
        sampled: &[DrawnPage],
    ) -> Vec<Self> {
        let huge_page_bytes = huge_page_size();
        let is_huge = |page: &&DrawnPage| {
            let now = page_now(&target.memory.pagemap, &context.frames, page.address, context.page_size);
            now.is_some_and(|(_, flags)| flags.is_huge())
        };
        let starts: BTreeSet<u64> =
            sampled.iter().filter(is_huge).map(|page| page.address / huge_page_bytes * huge_page_bytes).collect();
        let mut starts: Vec<u64> = starts.into_iter().collect();
        starts.sort_by_key(|start| mix(start ^ context.salt.seed()));
        let mut read = |start: u64| {
            let addresses = (start..start + huge_page_bytes).step_by(context.page_size as usize);
            let mut fingerprint = |address| scratch.read_page(context, &target.memory, address).ok()?.0;
            Self(addresses.filter_map(|address| Some((address, fingerprint(address)?))).collect())
        };
        let most = (MOST_PAGES * context.page_size / huge_page_bytes).clamp(2, HUGE_PAGES);
        starts.into_iter().take(most as usize).map(&mut read).collect()
    }

    /// Returns the fingerprints of its pages.
    pub fn fingerprints(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|&(_, fingerprint)| fingerprint)
    }

    /// Returns how many pages merging would save in it, where the search found copies elsewhere. Of a page with one copy half
    /// is saved.
    fn saved_pages(&self, search: &EqualPageSearch, own: usize) -> f64 {
        let saved = |&(address, fingerprint): &(u64, u64)| match search.copies(fingerprint, (own, address)) {
            _ if fingerprint == ZERO => 1.0,
            copies => copies as f64 / (copies + 1) as f64,
        };
        self.0.iter().map(saved).sum()
    }
}

impl SplitForecast {
    /// Extrapolates from the huge pages that were read to all `huge_bytes` of the process, which is target number `own`.
    /// `sizes` are those of a page and of a huge page. `None` without huge pages.
    pub fn new(
        drawn: &[DrawnHugePage],
        search: &EqualPageSearch,
        own: usize,
        huge_bytes: u64,
        sizes: [u64; 2],
    ) -> Option<Self> {
        let saved: Vec<f64> = drawn.iter().map(|page| page.saved_pages(search, own)).collect();
        Self::from_saved_pages(&saved, huge_bytes, sizes)
    }

    fn from_saved_pages(saved: &[f64], huge_bytes: u64, [page_size, huge_page_bytes]: [u64; 2]) -> Option<Self> {
        let split = saved.iter().filter(|&&pages| pages > 0.0).count() as u64;
        let huge_pages = (!saved.is_empty()).then_some(saved.len() as u64)?;
        let of_one = saved.iter().sum::<f64>() * page_size as f64 / (huge_pages * huge_page_bytes) as f64;
        Some(Self {
            split_bytes: huge_bytes / huge_pages * split,
            saved_bytes: (huge_bytes as f64 * of_one).round() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_huge_pages_that_were_read_stand_for_all() {
        let forecast_of = |saved: &[f64], sizes| SplitForecast::from_saved_pages(saved, 1 << 30, sizes);
        let forecast = |saved: &[f64]| forecast_of(saved, [4096, 2 << 20]);
        assert_eq!(forecast(&[]), None);
        assert_eq!(forecast(&[0.0; 4]), Some(SplitForecast { split_bytes: 0, saved_bytes: 0 }));
        let half = forecast(&[128.0, 0.0, 0.5, 0.0]).unwrap();
        assert_eq!(half.split_bytes, 1 << 29);
        assert_eq!(half.saved_bytes, ((1_u64 << 30) as f64 * 128.5 / 2048.0).round() as u64);
        let larger = forecast_of(&[1024.0, 0.0], [64 << 10, 512 << 20]).unwrap();
        assert_eq!((larger.split_bytes, larger.saved_bytes), (512 << 20, 64 << 20));
    }
}
