//! Putting huge pages of another process together again that were split: the opposite of a fold.

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::kernel::Meminfo;
use serde::{Deserialize, Serialize};

use super::FoldError;
use super::pass::MOST_FAILURES;
use super::split::collapse;
use super::target::FoldTarget;
use crate::memory::error::UnreadableProcess;
use crate::memory::page_ranges::{PageKinds, PageQuery};
use crate::own_use::thread_cpu;
use crate::root::Root;

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

/// Huge pages that are put together between two checks of the host's memory.
const RANGES_PER_CHECK: usize = 32;

/// Memory that stays free. The margin is an eighth of what is filled, since guests allocate memory meanwhile.
const LEAST_MARGIN_BYTES: u64 = 64 << 20;

/// Checks that the host has memory to fill so many bytes. One whose memory is unknown has none.
fn check_headroom(root: &Root, fill_bytes: u64) -> Result<(), FoldError> {
    if fill_bytes == 0 {
        return Ok(());
    }
    let memory = root.text("proc/meminfo").and_then(|text| Meminfo::parse(&text));
    let headroom_bytes = memory.value().and_then(Meminfo::headroom).unwrap_or(0);
    let spare_bytes = headroom_bytes.saturating_sub(LEAST_MARGIN_BYTES.max(fill_bytes / 8));
    if spare_bytes < fill_bytes { Err(FoldError::NoHeadroom { fill_bytes, spare_bytes }) } else { Ok(()) }
}

impl FoldTarget {
    /// Puts small pages of anonymous memory together into huge ones by `MADV_COLLAPSE`, until the CPU time is used up.
    ///
    /// A huge page's worth is left as it is where `least_zero_permille` of it, in thousandths, is not resident: a fold would
    /// split it. So is memory that another process shares, merged or by a fork. Mappings without huge pages are refused.
    ///
    /// # Errors
    /// The process can't be read or has ended, this user may not advise on its memory, or the host, whose `/proc` is
    /// below `root`, lacks memory for what is not resident: it is filled with zeros.
    pub fn collapse_small(
        &self,
        root: &Root,
        least_zero_permille: u32,
        cpu_limit: Duration,
    ) -> Result<CollapseTally, FoldError> {
        let begin = thread_cpu();
        let size = self.huge_size as u64;
        let mut tally = CollapseTally { is_done: true, ..CollapseTally::default() };
        let mut failures = 0;
        let split = self.find_split(least_zero_permille)?;
        let fill = |(_, resident_bytes): &(u64, u64)| size.saturating_sub(*resident_bytes);
        let mut fill_bytes: u64 = split.iter().map(fill).sum();
        for (number, range) in split.into_iter().enumerate() {
            if number % RANGES_PER_CHECK == 0 {
                check_headroom(root, fill_bytes)?;
            }
            fill_bytes = fill_bytes.saturating_sub(fill(&range));
            let (start, resident_bytes) = range;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_filled_without_the_memory_for_it() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let spare = |fill_mib: u64| match check_headroom(&root, fill_mib << 20) {
            Ok(()) => None,
            Err(FoldError::NoHeadroom { fill_bytes, spare_bytes }) => {
                assert_eq!(fill_bytes, fill_mib << 20);
                Some(spare_bytes >> 20)
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!((spare(0), spare(1)), (None, Some(0)), "the host's memory is unknown");
        std::fs::create_dir(tree.path().join("proc")).unwrap();
        let text = "MemTotal: 1048576 kB\nMemFree: 65536 kB\nMemAvailable: 98304 kB\nSwapFree: 1024 kB\n";
        std::fs::write(tree.path().join("proc/meminfo"), text).unwrap();
        assert_eq!([spare(0), spare(33), spare(34)], [None, None, Some(33)]);
    }
}
