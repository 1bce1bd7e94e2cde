//! Marks ranges as mergeable, at the program's request or on its behalf.

use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use crate::state;
use crate::sys::{self, Errno, MemoryAdvice};
use crate::wishes::{self, RangeRequest};

/// Page size in bytes, set when the library is loaded.
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// Ranges marked one by one since mappings were last counted. Each may add a mapping, and a process may have 65530
/// mappings (`vm.max_map_count`). Above a limit no more ranges are marked one by one.
static MARKED: AtomicUsize = AtomicUsize::new(0);
const MOST_MARKED: usize = 8000;

/// Returns the page size in bytes.
pub fn page() -> usize {
    PAGE.load(Relaxed)
}

/// Sets the page size, a power of two.
pub fn set_page(bytes: usize) {
    PAGE.store(bytes, Relaxed);
}

/// Rounds an address down to a page boundary.
pub fn floor(address: usize) -> usize {
    address & !page().wrapping_sub(1)
}

/// Rounds an address up to a page boundary.
pub fn ceil(address: usize) -> usize {
    floor(address.saturating_add(page()).wrapping_sub(1))
}

/// Marks a mapping or block on the program's behalf, with its first and last page, unless the program forbade it.
/// Returns true if it is marked.
pub fn offer(start: usize, length: usize) -> bool {
    if length > state::largest() || MARKED.load(Relaxed) >= MOST_MARKED {
        return false;
    }
    MARKED.fetch_add(1, Relaxed);
    mark_allowed(floor(start), ceil(start.saturating_add(length)))
}

/// Marks a whole mapping, which adds no mappings, unless the program forbade it.
pub fn mark_allowed(start: usize, end: usize) -> bool {
    let is_marked = || sys::madvise(start, end.saturating_sub(start), MemoryAdvice::Mergeable).is_ok();
    if !wishes::allow(start, end) || !is_marked() {
        return false;
    }
    // The program notes its wish before it unmarks: one that came in between is seen now.
    let is_allowed = wishes::allow(start, end);
    if !is_allowed {
        let _ = withdraw(start, end);
    }
    is_allowed
}

/// Number of the program's threads that rejoin a divided mapping in order to move it.
static MOVERS: AtomicU32 = AtomicU32::new(0);

/// Limit of the library's waits for those threads, and the length of each. A child of a fork may have inherited a count
/// of threads that it does not have.
const WAITS: usize = 40;
const WAIT_NANOSECONDS: libc::c_long = 50_000;

/// A guard of a program's thread that moves a mapping. Until it is dropped, the library's thread starts no further mark
/// or unmark.
#[derive(Debug)]
pub struct MoveGuard(());

impl MoveGuard {
    /// Blocks the library's thread.
    pub fn begin() -> Self {
        MOVERS.fetch_add(1, SeqCst);
        Self(())
    }
}

impl Drop for MoveGuard {
    fn drop(&mut self) {
        let _ = MOVERS.fetch_update(SeqCst, SeqCst, |movers| movers.checked_sub(1));
    }
}

/// Resets the count of threads that move a mapping, for a child of a fork, which does not have them.
pub fn forget_movers() {
    MOVERS.store(0, SeqCst);
}

/// Waits while the program moves a mapping. The library's thread calls it before each mark.
pub fn give_way() {
    for _ in 0..WAITS {
        if MOVERS.load(SeqCst) == 0 {
            return;
        }
        sys::nap(WAIT_NANOSECONDS);
    }
}

/// Rejoins a mapping that the library's thread has divided. If the program forbids the mark, or its requests can't be
/// read, the whole mapping is unmarked: that only loses savings, until the next round.
pub fn rejoin(start: usize, end: usize) -> bool {
    mark_allowed(start, end) || withdraw(start, end).is_ok()
}

/// Marks a new mapping of the program. Drops requests for an earlier mapping at its address.
pub fn offer_new(start: usize, length: usize) -> bool {
    wishes::forget(start, start.saturating_add(length));
    offer(start, length)
}

/// Records the number of mappings.
pub fn counted(mappings: usize) {
    if mappings < 32_000 {
        MARKED.store(0, Relaxed);
    }
}

/// Marks the whole pages in a range at the program's request.
pub fn mark(start: usize, length: usize) -> Result<(), Errno> {
    let (start, end) = (ceil(start), floor(start.checked_add(length).ok_or(libc::EINVAL)?));
    if end <= start {
        return Err(libc::EINVAL);
    }
    wishes::record_request(start, end, RangeRequest::Merge);
    // The range is aligned, so EINVAL means that the kernel has no KSM.
    sys::madvise(start, end.saturating_sub(start), MemoryAdvice::Mergeable).map_err(|errno| match errno {
        libc::EINVAL => libc::ENOSYS,
        errno => errno,
    })
}

/// Unmarks each page with a byte of the range, at the program's request.
pub fn unmark(start: usize, length: usize) -> Result<(), Errno> {
    let (start, end) = (floor(start), ceil(start.checked_add(length).ok_or(libc::EINVAL)?));
    if end <= start {
        return Err(libc::EINVAL);
    }
    wishes::record_request(start, end, RangeRequest::Leave);
    withdraw(start, end)
}

/// Unmarks whole pages. Merged pages have been copied when this returns.
pub fn withdraw(start: usize, end: usize) -> Result<(), Errno> {
    sys::madvise(start, end.saturating_sub(start), MemoryAdvice::Unmergeable).map_err(|errno| match errno {
        libc::EINVAL => libc::ENOSYS,
        errno => errno,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_begin_at_their_multiples() {
        assert_eq!((floor(4095), floor(4096), ceil(4096), ceil(4097)), (0, 4096, 4096, 8192));
        assert_eq!(ceil(usize::MAX), floor(usize::MAX));
    }

    #[test]
    fn a_child_that_inherits_a_count_of_movers_counts_none() {
        let mover = MoveGuard::begin();
        assert_eq!(MOVERS.load(SeqCst), 1);
        forget_movers();
        drop(mover);
        assert_eq!(MOVERS.load(SeqCst), 0);
        give_way();
    }

    #[test]
    fn a_range_without_a_whole_page_is_no_range_to_mark() {
        assert_eq!(mark(4097, 4096), Err(libc::EINVAL));
        assert_eq!(mark(4096, usize::MAX), Err(libc::EINVAL));
        assert_eq!(unmark(4096, 0), Err(libc::EINVAL));
    }
}
