//! The program's own requests for ranges of its memory, which take precedence over the library's rules.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::lock::{TryLock, TryLockGuard};

/// A program's request for a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeRequest {
    /// Merge the range, by `MADV_MERGEABLE` or `ksmith_mark`.
    Merge,
    /// Leave the range out, because of `MADV_UNMERGEABLE` or `ksmith_unmark`, or because the program wants huge pages.
    Leave,
}

/// Limit of stored ranges.
const MOST: usize = 128;

/// The requested ranges, unsorted and without overlap.
#[derive(Debug)]
pub struct RequestTable {
    ranges: [(usize, usize, RangeRequest); MOST],
    used: usize,
    /// True if a range did not fit. Then no range may be marked without a request.
    is_full: bool,
}

/// The requests of this process.
static WISHES: TryLock<RequestTable> = TryLock::new(RequestTable::new());

/// True if any request to leave a range out was ever made. Usually none is, which saves the search.
static LEAVES: AtomicBool = AtomicBool::new(false);

/// True if any request was ever made.
static ANY: AtomicBool = AtomicBool::new(false);

/// Locks the requests as soon as no other thread holds them. Gives up after a short time, as in a signal handler that
/// interrupted their owner.
fn lock_requests() -> Option<TryLockGuard<'static, RequestTable>> {
    (0..1000).find_map(|_| {
        core::hint::spin_loop();
        WISHES.try_lock()
    })
}

/// Records a request for a range.
pub fn record_request(start: usize, end: usize, wish: RangeRequest) {
    ANY.store(true, Relaxed);
    if wish == RangeRequest::Leave {
        LEAVES.store(true, Relaxed);
    }
    if let Some(mut wishes) = lock_requests() {
        wishes.insert(start, end, wish);
    }
}

/// Drops the requests for a range that holds new memory.
pub fn forget(start: usize, end: usize) {
    if ANY.load(Relaxed)
        && let Some(mut wishes) = lock_requests()
    {
        wishes.forget(start, end);
    }
}

/// Moves the requests for a range that the program has moved.
pub fn move_requests(from: (usize, usize), to: (usize, usize)) {
    if ANY.load(Relaxed)
        && let Some(mut wishes) = lock_requests()
    {
        let wish =
            [RangeRequest::Leave, RangeRequest::Merge].into_iter().find(|wish| wishes.has(from.0, from.1, *wish));
        wishes.forget(from.0, from.1);
        if let Some(wish) = wish {
            wishes.insert(to.0, to.1, wish);
        }
    }
}

/// Returns true if the library may mark a range by itself. It may not if the requests can't be read.
pub fn allow(start: usize, end: usize) -> bool {
    !LEAVES.load(Relaxed) || lock_requests().is_some_and(|wishes| wishes.allow(start, end))
}

/// Returns true if the program requested merging for any byte of the range.
pub fn wants_merged(start: usize, end: usize) -> bool {
    ANY.load(Relaxed) && lock_requests().is_none_or(|wishes| wishes.has(start, end, RangeRequest::Merge))
}

/// Passes each range for which the program requested merging to `each`.
pub fn each_to_merge(mut each: impl FnMut(usize, usize)) {
    if let Some(wishes) = lock_requests() {
        let used = wishes.ranges.get(..wishes.used).unwrap_or_default();
        used.iter().filter(|range| range.2 == RangeRequest::Merge).for_each(|range| each(range.0, range.1));
    }
}

impl RequestTable {
    /// Creates an empty set of requests.
    pub const fn new() -> Self {
        Self { ranges: [(0, 0, RangeRequest::Leave); MOST], used: 0, is_full: false }
    }

    /// Records a request, which replaces earlier ones for the same bytes.
    pub fn insert(&mut self, start: usize, end: usize, wish: RangeRequest) {
        self.forget(start, end);
        self.add(start, end, wish);
    }

    /// Drops the requests for these bytes.
    pub fn forget(&mut self, start: usize, end: usize) {
        let mut at = 0_usize;
        while let Some(&(from, to, wish)) = self.ranges.get(..self.used).and_then(|used| used.get(at)) {
            if from >= end || to <= start {
                at = at.saturating_add(1);
                continue;
            }
            self.used = self.used.saturating_sub(1);
            self.ranges.swap(at, self.used);
            // The remaining pieces are added at the end. They do not overlap the range, so seeing them again
            // changes nothing.
            if from < start {
                self.add(from, start, wish);
            }
            if to > end {
                self.add(end, to, wish);
            }
        }
    }

    /// Returns true if the program made this request for any byte of the range.
    pub fn has(&self, start: usize, end: usize, wish: RangeRequest) -> bool {
        let used = self.ranges.get(..self.used).unwrap_or_default();
        used.iter().any(|&(from, to, what)| what == wish && from < end && to > start)
    }

    /// Returns true if the library may mark this range by itself.
    pub fn allow(&self, start: usize, end: usize) -> bool {
        !self.is_full && !self.has(start, end, RangeRequest::Leave)
    }

    fn add(&mut self, start: usize, end: usize, wish: RangeRequest) {
        match self.ranges.get_mut(self.used) {
            Some(place) => {
                *place = (start, end, wish);
                self.used = self.used.saturating_add(1);
            }
            // Losing a request to merge loses only its savings.
            None => self.is_full |= wish == RangeRequest::Leave,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_wish_for_a_byte_counts(
            said in proptest::collection::vec((0_usize..60, 1_usize..20, any::<bool>()), 0..30),
        ) {
            let mut wishes = RequestTable::new();
            let mut bytes = [None; 80];
            for (start, length, merge) in said {
                let wish = if merge { RangeRequest::Merge } else { RangeRequest::Leave };
                wishes.insert(start, start + length, wish);
                bytes[start..start + length].fill(Some(wish));
            }
            for (at, wish) in bytes.iter().enumerate() {
                prop_assert_eq!(wishes.has(at, at + 1, RangeRequest::Merge), *wish == Some(RangeRequest::Merge));
                prop_assert_eq!(wishes.allow(at, at + 1), *wish != Some(RangeRequest::Leave));
            }
        }
    }

    #[test]
    fn when_a_wish_finds_no_place_nothing_is_marked_any_more() {
        let mut wishes = RequestTable::new();
        for at in 0..MOST {
            wishes.insert(at * 10, at * 10 + 5, RangeRequest::Leave);
        }
        assert!(wishes.allow(1_000_000, 1_000_001));
        wishes.insert(2_000_000, 2_000_001, RangeRequest::Leave);
        assert!(!wishes.allow(1_000_000, 1_000_001));
    }
}
