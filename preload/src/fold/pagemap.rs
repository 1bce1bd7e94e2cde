//! The page map of this process (Documentation/admin-guide/mm/pagemap.rst).

use core::ffi::c_ulong;

use crate::marks;
use crate::sys::{self, Errno, MemoryAdvice, OwnedDescriptor};

/// Pages of a chunk.
pub const CHUNK_PAGES: usize = 512;

/// Maximum number of waits for a page that the kernel moves again and again.
const MOST_MOVES: usize = 8;

/// Bits of an entry: the page is in memory; it is swapped out, or the kernel is moving it; no other page table has it (4.2).
const IS_PRESENT: u64 = 1 << 63;
const IS_SWAPPED: u64 = 1 << 62;
const IS_EXCLUSIVE: u64 = 1 << 56;

/// `PAGEMAP_SCAN`, since 6.7.
const SCAN: c_ulong = 3 << 30 | (size_of::<ScanRequest>() as c_ulong) << 16 | (b'f' as c_ulong) << 8 | 16;
/// `PAGE_IS_HUGE` of include/uapi/linux/fs.h.
const IS_HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg`.
#[repr(C)]
struct ScanRequest {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vector: u64,
    vector_length: u64,
    most_pages: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

/// `struct page_region`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct ScanRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// The state of a page in the page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageState {
    /// Not in memory.
    Absent,
    /// In memory, and in no other page table.
    Exclusive,
    /// In memory, but shared since a fork, merged by KSM, or the kernel's zero page.
    Shared,
}

impl PageState {
    const fn from_entry(entry: u64) -> Self {
        if entry & IS_PRESENT == 0 {
            Self::Absent
        } else if entry & IS_EXCLUSIVE == 0 {
            Self::Shared
        } else {
            Self::Exclusive
        }
    }
}

/// The file `/proc/self/pagemap`.
#[derive(Debug)]
pub struct PagemapFile {
    file: OwnedDescriptor,
}

impl PagemapFile {
    /// Opens the page map.
    pub fn open() -> Result<Self, Errno> {
        Ok(Self { file: OwnedDescriptor::open(c"/proc/self/pagemap")? })
    }

    /// Passes each page from `start` to before `end`, [`CHUNK_PAGES`] at most, to `each`: its address and its state.
    pub fn each_page(&self, start: usize, end: usize, mut each: impl FnMut(usize, PageState)) -> Result<(), Errno> {
        let page = marks::page();
        let count = end.saturating_sub(start).checked_div(page).unwrap_or(0).min(CHUNK_PAGES);
        let mut entries = [0_u64; CHUNK_PAGES];
        let entries = entries.get_mut(..count).unwrap_or_default();
        self.read_entries(start, entries)?;
        for (entry, address) in entries.iter().zip((start..).step_by(page)) {
            let state = match PageState::from_entry(*entry) {
                PageState::Absent if entry & IS_SWAPPED != 0 => self.swapped_page(address)?,
                state => state,
            };
            each(address, state);
        }
        Ok(())
    }

    /// Reads the entries of the pages from `start` on.
    fn read_entries(&self, start: usize, entries: &mut [u64]) -> Result<(), Errno> {
        let offset = start.checked_div(marks::page()).unwrap_or(0).saturating_mul(size_of::<u64>());
        if self.file.read_at(entries, offset)? == size_of_val(entries) { Ok(()) } else { Err(libc::EIO) }
    }

    /// Returns the state of a page whose entry is a swap entry. While the kernel moves a page (compaction) it has such an
    /// entry too, but is in memory (`mincore_pte_range`, mm/mincore.c); to populate it waits for the move.
    fn swapped_page(&self, address: usize) -> Result<PageState, Errno> {
        let page = marks::page();
        for _ in 0..MOST_MOVES {
            if sys::is_resident(address) != Ok(true)
                || sys::madvise(address, page, MemoryAdvice::PopulateRead).is_err()
            {
                break;
            }
            let mut entry = [0_u64];
            self.read_entries(address, &mut entry)?;
            let [entry] = entry;
            if entry & IS_PRESENT != 0 {
                return Ok(PageState::from_entry(entry));
            }
        }
        Ok(PageState::Absent)
    }

    /// Returns true if the range is one huge page. `None`: the kernel does not say (before 6.7).
    pub fn is_huge(&self, start: usize, end: usize) -> Option<bool> {
        let mut region = ScanRegion::default();
        let mut request = ScanRequest {
            size: size_of::<ScanRequest>() as u64,
            flags: 0,
            start: start as u64,
            end: end as u64,
            walk_end: 0,
            vector: (&raw mut region) as u64,
            vector_length: 1,
            most_pages: 0,
            inverted: 0,
            mask: IS_HUGE,
            any_of: 0,
            returned: IS_HUGE,
        };
        // SAFETY: the structure of this request, with space for one region.
        let found = unsafe { self.file.control(SCAN, &mut request) }.ok()?;
        Some(found == 1 && region.start == start as u64 && region.end == end as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    #[test]
    fn pages_are_absent_until_they_are_read_and_exclusive_when_they_are_written_to() {
        const LENGTH: usize = 4 * 4096;
        let start = sys::map(LENGTH).unwrap();
        let at = |page: usize| std::ptr::with_exposed_provenance_mut::<u8>(start + page * 4096);
        // SAFETY: within the new mapping.
        unsafe {
            // Reading gives the kernel's zero page.
            assert_eq!(at(1).read_volatile(), 0);
            at(2).write_volatile(0);
        }
        let mut states = Vec::new();
        let pagemap = PagemapFile::open().unwrap();
        pagemap.each_page(start, start + LENGTH, |address, state| states.push((address - start, state))).unwrap();
        let is_huge = pagemap.is_huge(start, start + LENGTH);
        // SAFETY: the mapping of this test.
        unsafe { sys::unmap(start, LENGTH) };
        let expected = [PageState::Absent, PageState::Shared, PageState::Exclusive, PageState::Absent];
        assert_eq!(states, [0, 4096, 8192, 12288].into_iter().zip(expected).collect::<Vec<_>>());
        assert_ne!(is_huge, Some(true));
    }
}
