//! Putting huge pages of another process together again that were split: the opposite of a fold.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::FoldError;
use super::pass::MOST_FAILURES;
use super::split::collapse;
use super::target::FoldTarget;
use crate::memory::error::UnreadableProcess;
use crate::memory::page_ranges::{PageKinds, PageQuery};
use crate::own_use::thread_cpu;

/// Figures of a pass that puts huge pages together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CollapseTally {
    /// Memory that was put together, in bytes.
    pub collapsed_bytes: u64,
    /// Memory that the kernel left in small pages, in bytes: pages are in use, or it has no huge page free.
    pub refused_bytes: u64,
    /// CPU time of the pass, in seconds.
    pub cpu_seconds: f64,
    /// True if nothing is left that could be put together: the CPU time was not used up before.
    pub is_done: bool,
}

impl FoldTarget {
    /// Puts small pages of anonymous memory together into huge ones by `MADV_COLLAPSE`, until the CPU time is used up.
    ///
    /// A huge page's worth is left as it is where `least_zero_permille` of it, in thousandths, is not resident: a fold would
    /// split it. So is memory that another process shares, merged or by a fork. Mappings without huge pages are refused.
    ///
    /// # Errors
    /// The process can't be read or has ended, or this user may not advise on its memory.
    pub fn collapse_small(
        &self,
        least_zero_permille: u32,
        cpu_limit: Duration,
    ) -> Result<CollapseTally, FoldError> {
        let begin = thread_cpu();
        let size = self.huge_size as u64;
        let mut tally = CollapseTally { is_done: true, ..CollapseTally::default() };
        let mut failures = 0;
        for (start, resident_bytes) in self.find_split(least_zero_permille)? {
            if thread_cpu().saturating_sub(begin) >= cpu_limit {
                tally.is_done = false;
                break;
            }
            if self.exclusive_bytes(start, size).map_err(UnreadableProcess::from_io)? < resident_bytes {
                continue;
            }
            if collapse(&self.pidfd, start, self.huge_size)? {
                tally.collapsed_bytes += size;
                failures = 0;
                continue;
            }
            tally.refused_bytes += size;
            failures += 1;
            if failures == MOST_FAILURES {
                break;
            }
        }
        tally.cpu_seconds = thread_cpu().saturating_sub(begin).as_secs_f64();
        Ok(tally)
    }

    /// Finds the addresses of huge pages' worths that are mapped in small pages, less than `least_zero_permille` of each not
    /// resident or zero-mapped, and their resident bytes.
    fn find_split(&self, least_zero_permille: u32) -> Result<Vec<(u64, u64)>, FoldError> {
        let size = self.huge_size as u64;
        let query = PageQuery {
            all_of: PageKinds::PRESENT,
            none_of: PageKinds::FILE.and(PageKinds::ZERO_MAPPED).and(PageKinds::HUGE),
            ..PageQuery::default()
        };
        let mut resident: BTreeMap<u64, u64> = BTreeMap::new();
        for stretch in self.process.stretches()? {
            let (first, end) = (stretch.start.next_multiple_of(size), stretch.end / size * size);
            if first >= end {
                continue;
            }
            self.each_range(first..end, query, |range, _| {
                for start in (range.start / size * size..range.end).step_by(self.huge_size) {
                    let bytes = range.end.min(start + size) - range.start.max(start);
                    *resident.entry(start).or_default() += bytes;
                }
            })?;
        }
        let is_whole = |bytes: u64| (size - bytes.min(size)) * 1000 < size * u64::from(least_zero_permille);
        Ok(resident.into_iter().filter(|(_, bytes)| is_whole(*bytes)).collect())
    }
}
