//! A sample of a process's huge pages: estimates how many are worth splitting, without reading them all.

use std::hash::{BuildHasher, RandomState};

use super::look::{CountUntil, ZeroCounter};
use super::target::FoldTarget;
use super::{FoldError, FoldSettings};

/// Figures of some huge pages, drawn at random, which represent all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HugePageSample {
    /// Memory in huge pages, in bytes.
    pub huge_bytes: u64,
    /// Huge pages that were read.
    pub sampled: u64,
    /// Sampled huge pages with enough zeros.
    pub foldable: u64,
    /// Zero pages in the foldable ones, in bytes.
    pub zero_bytes: u64,
    /// Bytes in a huge page.
    pub huge_page_size: u64,
}

impl FoldTarget {
    /// Reads at most `most` huge pages, drawn at random without repetition.
    ///
    /// # Errors
    /// The process can't be read or has ended.
    pub fn sample(&self, most: usize, settings: &FoldSettings) -> Result<HugePageSample, FoldError> {
        let memory = self.find_anonymous()?;
        let size = self.huge_size as u64;
        let mut pages: Vec<u64> =
            memory.huge.iter().flat_map(|range| range.clone().step_by(self.huge_size)).collect();
        let mut sample = HugePageSample {
            huge_bytes: pages.len() as u64 * size,
            huge_page_size: size,
            ..HugePageSample::default()
        };
        let enough = settings.enough(self.huge_size / self.page_size);
        let mut counter = ZeroCounter::new(self.page_size, self.huge_size, enough);
        let random = RandomState::new();
        for drawn in 0..most.min(pages.len()) {
            // A step of Fisher and Yates: `drawn` pages are drawn, any of the others may be next.
            let left = pages.len() - drawn;
            let next = drawn + (random.hash_one(drawn) % left as u64) as usize;
            pages.swap(drawn, next);
            let zeros = counter.count(&self.memory.mem, self.process.pid, pages[drawn], CountUntil::End)?;
            sample.sampled += 1;
            sample.foldable += u64::from(zeros.is_some());
            sample.zero_bytes += (zeros.unwrap_or(0) * self.page_size) as u64;
        }
        Ok(sample)
    }
}
