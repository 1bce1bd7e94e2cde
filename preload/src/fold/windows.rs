//! The windows of a range, in memory that the library maps for them.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::maps::{self, MapsEntry, MapsEntryKind};
use crate::sys::{self, Errno};

/// Maximum size of a window in bytes. Windows begin at multiples of it.
const WINDOW_BYTES: usize = 8 << 20;

/// A part of one mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldWindow {
    /// Its first byte.
    pub start: usize,
    /// The byte after its last.
    pub end: usize,
}

/// A queue of windows, shared by the threads of a call.
#[derive(Debug)]
pub struct WindowList {
    address: usize,
    bytes: usize,
    count: usize,
    next: AtomicUsize,
    /// Bytes of other kinds of memory in the range.
    pub other: u64,
}

impl WindowList {
    /// Divides the private anonymous memory from `start` to before `end`, by the map of the process.
    ///
    /// # Errors
    /// `ENODATA`: the map can't be read. `ENOMEM`: there is no memory for the list.
    pub fn from_maps(start: usize, end: usize) -> Result<Self, Errno> {
        let mut count = 0_usize;
        let mut other = 0_u64;
        each_mapping(start, end, |mapping, first, last| match mapping.kind {
            MapsEntryKind::Data | MapsEntryKind::Heap => {
                each_window(first, last, |_| count = count.saturating_add(1))
            }
            MapsEntryKind::Reserved => {}
            MapsEntryKind::Other => other = other.saturating_add(last.saturating_sub(first) as u64),
        })?;
        // Some more: other threads may divide mappings of the range meanwhile, by advice.
        let capacity = count.saturating_add(64);
        let bytes = capacity.saturating_mul(size_of::<FoldWindow>());
        let mut list = Self { address: sys::map(bytes)?, bytes, count: 0, next: AtomicUsize::new(0), other };
        each_mapping(start, end, |mapping, first, last| {
            if mapping.is_data() {
                each_window(first, last, |window| {
                    if list.count < capacity {
                        // SAFETY: within the list's memory, which no other code knows.
                        unsafe { list.slot(list.count).write(window) };
                        list.count = list.count.saturating_add(1);
                    }
                });
            }
        })?;
        Ok(list)
    }

    fn slot(&self, index: usize) -> *mut FoldWindow {
        core::ptr::with_exposed_provenance_mut::<FoldWindow>(self.address).wrapping_add(index)
    }

    /// Returns the number of windows.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Takes the next window.
    pub fn next(&self) -> Option<FoldWindow> {
        let index = self.next.fetch_add(1, Relaxed);
        // SAFETY: written when the list was made, and only read since.
        (index < self.count).then(|| unsafe { self.slot(index).read() })
    }
}

impl Drop for WindowList {
    fn drop(&mut self) {
        // SAFETY: the list's memory, of which no reference is left.
        unsafe { sys::unmap(self.address, self.bytes) };
    }
}

/// Passes each mapping that overlaps the range to `each`, with the start and end of the overlap.
fn each_mapping(start: usize, end: usize, mut each: impl FnMut(&MapsEntry, usize, usize)) -> Result<(), Errno> {
    maps::each(|mapping| {
        let (first, last) = (mapping.start.max(start), mapping.end.min(end));
        if first < last {
            each(mapping, first, last);
        }
        mapping.start < end
    })
    .map_err(|_| libc::ENODATA)
}

/// Divides a range at the multiples of [`WINDOW_BYTES`].
fn each_window(start: usize, end: usize, mut each: impl FnMut(FoldWindow)) {
    let mut at = start;
    while at < end {
        let last = (at | WINDOW_BYTES.wrapping_sub(1)).saturating_add(1).min(end);
        each(FoldWindow { start: at, end: last });
        at = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_private_memory_is_in_one_window() {
        let length = 3 * WINDOW_BYTES + 8192;
        let start = sys::map(length).unwrap();
        let list = WindowList::from_maps(start + 4096, start + length - 4096).unwrap();
        let mut at = start + 4096;
        while let Some(window) = list.next() {
            assert_eq!(window.start, at);
            assert_eq!(window.start / WINDOW_BYTES, (window.end - 1) / WINDOW_BYTES);
            at = window.end;
        }
        assert_eq!((at, list.other), (start + length - 4096, 0));
        // SAFETY: the mapping of this test.
        unsafe { sys::unmap(start, length) };
    }

    #[test]
    fn other_kinds_of_memory_are_in_no_window() {
        let code = WindowList::from_maps as *const () as usize & !4095;
        let list = WindowList::from_maps(code, code + 4096).unwrap();
        assert_eq!((list.count(), list.other), (0, 4096));
    }
}
