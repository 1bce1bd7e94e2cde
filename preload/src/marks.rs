//! Marks ranges as mergeable, at the program's request or on its behalf.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::state;
use crate::sys::{self, Errno};
use crate::wishes::{self, Wish};

/// Page size in bytes, set when the library is loaded.
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// Ranges marked one by one since the mappings were counted last. Each may make one more mapping, and a process
/// may have 65530 mappings (`vm.max_map_count`). Above a limit no more ranges are marked one by one.
static MARKED: AtomicUsize = AtomicUsize::new(0);
const MOST_MARKED: usize = 8000;

/// Page size in bytes.
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
/// Returns whether it is marked.
pub fn offer(start: usize, length: usize) -> bool {
    if length > state::largest() || MARKED.load(Relaxed) >= MOST_MARKED {
        return false;
    }
    MARKED.fetch_add(1, Relaxed);
    mark_allowed(floor(start), ceil(start.saturating_add(length)))
}

/// Marks a whole mapping, which makes no more mappings, unless the program forbade it.
pub fn mark_allowed(start: usize, end: usize) -> bool {
    wishes::allow(start, end) && sys::madvise(start, end.saturating_sub(start), libc::MADV_MERGEABLE).is_ok()
}

/// Marks a new mapping of the program. Requests for an earlier mapping at its place are dropped.
pub fn offer_new(start: usize, length: usize) -> bool {
    wishes::forget(start, start.saturating_add(length));
    offer(start, length)
}

/// Notes the number of mappings that were counted.
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
    wishes::note(start, end, Wish::Merge);
    // The range is aligned, so EINVAL means that the kernel has no KSM.
    sys::madvise(start, end.saturating_sub(start), libc::MADV_MERGEABLE).map_err(|errno| match errno {
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
    wishes::note(start, end, Wish::Leave);
    withdraw(start, end)
}

/// Unmarks whole pages. Merged pages have been copied when this returns.
pub fn withdraw(start: usize, end: usize) -> Result<(), Errno> {
    sys::madvise(start, end.saturating_sub(start), libc::MADV_UNMERGEABLE).map_err(|errno| match errno {
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
    fn a_range_without_a_whole_page_is_no_range_to_mark() {
        assert_eq!(mark(4097, 4096), Err(libc::EINVAL));
        assert_eq!(mark(4096, usize::MAX), Err(libc::EINVAL));
        assert_eq!(unmark(4096, 0), Err(libc::EINVAL));
    }
}
