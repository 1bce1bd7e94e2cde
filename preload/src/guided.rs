//! Guided mode: marks only the ranges that the daemon considers worth merging.

use crate::client::{self, RequestDeadline};
use crate::lock::TryLock;
use crate::maps::{MapsEntry, MapsEntryKind};
use crate::sys::{self, Errno};
use crate::text::{hexadecimal, words};
use crate::{marks, sweep, wishes};

/// Limit of marked ranges. Each may divide a mapping into three, and a process may have 65530 mappings.
const MOST: usize = 4096;

/// Ranges of whole pages.
struct RangeList {
    ranges: [(usize, usize); MOST],
    used: usize,
}

static RANGES: TryLock<RangeList> = TryLock::new(RangeList { ranges: [(0, 0); MOST], used: 0 });

/// Number and size of the marked ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MarkedCounts {
    /// Number of ranges, including those that the program marked itself.
    pub ranges: u64,
    /// Bytes in the ranges.
    pub bytes: u64,
}

/// Requests the ranges from the daemon, marks them, and unmarks all others except those that the program marked itself.
/// Without a reply nothing changes.
pub fn follow(deadline: RequestDeadline) -> Result<MarkedCounts, Errno> {
    let mut ranges = RANGES.try_lock().ok_or(libc::EBUSY)?;
    ranges.used = 0;
    client::send_request(
        b"ranges",
        deadline,
        |line| {
            if let Some((start, end)) = range(line) {
                ranges.add(marks::ceil(start), marks::floor(end));
            }
        },
        |_| Some(()),
    )?;
    wishes::each_to_merge(|start, end| ranges.add(start, end));
    ranges.join();
    let mut guided = MarkedCounts::default();
    for &(start, end) in ranges.all() {
        marks::give_way();
        if marks::mark_allowed(start, end) {
            guided.ranges = guided.ranges.saturating_add(1);
            guided.bytes = guided.bytes.saturating_add(end.saturating_sub(start) as u64);
        }
    }
    // With the prctl the kernel marks everything, also memory outside the ranges.
    let is_everything_marked = sys::has_memory_merge();
    sweep::mappings(|mapping| {
        if is_everything_marked || mapping.kind != MapsEntryKind::Other {
            gaps(mapping, ranges.all(), |start, end| {
                // Pages that can't be unmerged for lack of memory stay merged, and are tried again at the next
                // answer.
                marks::give_way();
                let _ = marks::withdraw(start, end);
            });
        }
    })?;
    Ok(guided)
}

/// Parses a line `range START END SHARE_PERMILLE`.
fn range(line: &[u8]) -> Option<(usize, usize)> {
    let mut words = words(line);
    (words.next()? == b"range").then_some(())?;
    let (start, end) = (hexadecimal(words.next()?)?, hexadecimal(words.next()?)?);
    (start < end).then_some((start, end))
}

/// Passes the parts of a mapping outside all ranges to `each`. The ranges must be sorted.
fn gaps(mapping: &MapsEntry, ranges: &[(usize, usize)], mut each: impl FnMut(usize, usize)) {
    let first = ranges.partition_point(|range| range.1 <= mapping.start);
    let mut from = mapping.start;
    for &(start, end) in ranges.get(first..).unwrap_or_default() {
        if start >= mapping.end {
            break;
        }
        if start > from {
            each(from, start);
        }
        from = end;
    }
    if from < mapping.end {
        each(from, mapping.end);
    }
}

impl RangeList {
    fn all(&self) -> &[(usize, usize)] {
        self.ranges.get(..self.used).unwrap_or_default()
    }

    fn add(&mut self, start: usize, end: usize) {
        if start < end
            && let Some(place) = self.ranges.get_mut(self.used)
        {
            *place = (start, end);
            self.used = self.used.saturating_add(1);
        }
    }

    /// Sorts the ranges and joins adjacent ones.
    fn join(&mut self) {
        let Some(used) = self.ranges.get_mut(..self.used) else { return };
        used.sort_unstable();
        let mut kept = 0_usize;
        for at in 0..used.len() {
            let Some(&(start, end)) = used.get(at) else { break };
            match kept.checked_sub(1).and_then(|last| used.get_mut(last)) {
                Some(last) if last.1 >= start => last.1 = last.1.max(end),
                _ => {
                    if let Some(place) = used.get_mut(kept) {
                        *place = (start, end);
                    }
                    kept = kept.saturating_add(1);
                }
            }
        }
        self.used = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_ranges() {
        assert_eq!(range(b"range 7f00 7fff 900"), Some((0x7f00, 0x7fff)));
        assert_eq!(range(b"range 0x10 0x20"), Some((0x10, 0x20)));
        for line in ["range 20 10 1", "ranges 1 2 3", "range 1", "", "range x y z"] {
            assert_eq!(range(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn gaps_are_what_no_range_has(
            given in proptest::collection::vec((0_usize..100, 1_usize..20), 0..12), start in 0_usize..60, length in 1_usize..60,
        ) {
            let mut ranges = RangeList { ranges: [(0, 0); MOST], used: 0 };
            given.iter().for_each(|&(start, length)| ranges.add(start, start + length));
            ranges.join();
            prop_assert!(ranges.all().windows(2).all(|pair| pair[0].1 < pair[1].0));
            let mapping = MapsEntry { start, end: start + length, kind: MapsEntryKind::Data };
            let mut is_gap = [false; 120];
            gaps(&mapping, ranges.all(), |from, to| is_gap[from..to].fill(true));
            for (at, is_gap) in is_gap.iter().enumerate() {
                let is_in_range = given.iter().any(|&(start, length)| (start..start + length).contains(&at));
                let is_in_mapping = (start..start + length).contains(&at);
                prop_assert_eq!(*is_gap, is_in_mapping && !is_in_range);
            }
        }
    }
}
