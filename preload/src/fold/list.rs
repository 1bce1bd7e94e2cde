//! The windows that are to be folded, in memory of the library's own.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::window::WINDOW;
use crate::maps::{self, Kind, Mapping};
use crate::sys::{self, Errno};

/// A part of one mapping, of `WINDOW` bytes at most.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Part {
    /// Its first byte.
    pub start: usize,
    /// The byte after its last.
    pub end: usize,
}

/// The windows, of which each thread takes the next one.
#[derive(Debug)]
pub struct List {
    place: usize,
    bytes: usize,
    length: usize,
    next: AtomicUsize,
    /// Bytes of other kinds of memory in the range.
    pub other: u64,
}

impl List {
    /// The private anonymous memory from `start` to before `end`, by the map of the process.
    ///
    /// # Errors
    /// The map can't be read, or there is no memory for the list.
    pub fn of(start: usize, end: usize) -> Result<Self, Errno> {
        let mut count = 0_usize;
        let mut other = 0_u64;
        each_mapping(start, end, |mapping, first, last| match mapping.kind {
            Kind::Data | Kind::Heap => parts(first, last, |_| count = count.saturating_add(1)),
            Kind::Reserved => {}
            Kind::Other => other = other.saturating_add(last.saturating_sub(first) as u64),
        })?;
        // Some more: the list's own mapping, and what other threads map meanwhile.
        let capacity = count.saturating_add(64);
        let bytes = capacity.saturating_mul(size_of::<Part>());
        let place = sys::map(bytes)?;
        let mut list = Self { place, bytes, length: 0, next: AtomicUsize::new(0), other };
        each_mapping(start, end, |mapping, first, last| {
            if mapping.is_data() {
                parts(first, last, |part| {
                    if list.length < capacity {
                        // SAFETY: within the list's memory, which no other code knows.
                        unsafe { list.slot(list.length).write(part) };
                        list.length = list.length.saturating_add(1);
                    }
                });
            }
        })?;
        Ok(list)
    }

    fn slot(&self, index: usize) -> *mut Part {
        core::ptr::with_exposed_provenance_mut::<Part>(self.place).wrapping_add(index)
    }

    /// How many windows there are.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Where the list itself lies: from its first byte to before the second.
    pub fn block(&self) -> (usize, usize) {
        (self.place, self.place.saturating_add(self.bytes))
    }

    /// The next window that no thread has taken.
    pub fn next(&self) -> Option<Part> {
        let index = self.next.fetch_add(1, Relaxed);
        // SAFETY: written when the list was made, and only read since.
        (index < self.length).then(|| unsafe { self.slot(index).read() })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        sys::unmap(self.place, self.bytes);
    }
}

/// Passes each mapping with bytes in the range to `each`, and that part of it.
fn each_mapping(start: usize, end: usize, mut each: impl FnMut(&Mapping, usize, usize)) -> Result<(), Errno> {
    maps::each(|mapping| {
        let (first, last) = (mapping.start.max(start), mapping.end.min(end));
        if first < last {
            each(mapping, first, last);
        }
        mapping.start < end
    })
}

/// Divides a range at the multiples of `WINDOW`.
fn parts(start: usize, end: usize, mut each: impl FnMut(Part)) {
    let mut at = start;
    while at < end {
        let last = (at | WINDOW.wrapping_sub(1)).saturating_add(1).min(end);
        each(Part { start: at, end: last });
        at = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_private_memory_is_in_one_window() {
        let length = 3 * WINDOW + 8192;
        let start = sys::map(length).unwrap();
        let list = List::of(start + 4096, start + length - 4096).unwrap();
        let mut at = start + 4096;
        while let Some(part) = list.next() {
            assert_eq!(part.start, at);
            assert!(part.end - part.start <= WINDOW && part.start / WINDOW == (part.end - 1) / WINDOW);
            at = part.end;
        }
        assert_eq!((at, list.other), (start + length - 4096, 0));
        assert!(list.next().is_none());
        sys::unmap(start, length);
    }

    #[test]
    fn all_memory_of_a_process_is_listed() {
        let list = List::of(0, usize::MAX).unwrap();
        assert!(list.length() > 0 && list.other > 0);
        let (first, end) = list.block();
        assert!(first < end && list.next().is_some());
    }
}
