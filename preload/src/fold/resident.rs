//! Which pages of a range are resident, private and not yet the kernel's zero page (Documentation/admin-guide/mm/pagemap.rst).

use core::ffi::c_ulong;

use crate::sys::{Descriptor, Errno};

/// `PAGE_IS_PRESENT` and others of include/uapi/linux/fs.h.
const IS_PRESENT: u64 = 1 << 3;
const IS_ZERO: u64 = 1 << 5;
const IS_HUGE: u64 = 1 << 6;

/// `PAGEMAP_SCAN`, since 6.7.
const SCAN: c_ulong = 3 << 30 | (size_of::<Scan>() as c_ulong) << 16 | (b'f' as c_ulong) << 8 | 16;

/// Bit 56 of an entry of /proc/PID/pagemap: no other page table has the page.
const IS_EXCLUSIVE: u64 = 1 << 56;

/// Regions of one answer.
const REGIONS: usize = 128;

/// `struct pm_scan_arg`.
#[repr(C)]
struct Scan {
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
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// A run of resident pages of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Its first byte.
    pub start: usize,
    /// The byte after its last.
    pub end: usize,
    /// Whether they are mapped as huge pages.
    pub is_huge: bool,
}

/// The page map of this process.
#[derive(Debug)]
pub struct Pagemap {
    file: Descriptor,
}

impl Pagemap {
    /// Opens the page map.
    pub fn open() -> Result<Self, Errno> {
        Ok(Self { file: Descriptor::open(c"/proc/self/pagemap")? })
    }

    /// Passes the runs of an anonymous mapping from `start` to before `end` to `each`, in their order, until that says `false`.
    pub fn runs(&self, start: usize, end: usize, mut each: impl FnMut(Run) -> bool) -> Result<(), Errno> {
        let mut regions = [Region::default(); REGIONS];
        let mut at = start as u64;
        while at < end as u64 {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: 0,
                start: at,
                end: end as u64,
                walk_end: 0,
                vector: regions.as_mut_ptr() as u64,
                vector_length: REGIONS as u64,
                most_pages: 0,
                inverted: IS_ZERO,
                mask: IS_PRESENT | IS_ZERO,
                any_of: 0,
                returned: IS_HUGE,
            };
            let found = self.file.control(SCAN, &mut scan)?;
            for region in regions.iter().take(found) {
                let is_huge = region.categories & IS_HUGE != 0;
                let run = Run { start: region.start as usize, end: region.end as usize, is_huge };
                if !each(run) {
                    return Ok(());
                }
            }
            if scan.walk_end <= at {
                return Err(libc::EIO);
            }
            at = scan.walk_end;
        }
        Ok(())
    }

    /// Whether no other page table has the page at this address. `None`: unknown.
    pub fn is_exclusive(&self, address: usize, page_size: usize) -> Option<bool> {
        let mut entry = 0_u64;
        let offset = address.checked_div(page_size)?.checked_mul(size_of::<u64>())?;
        let read = self.file.read_at(&mut entry, offset).ok()?;
        (read == size_of::<u64>()).then_some(entry & IS_EXCLUSIVE != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    /// Runs within a mapping, in pages from its start.
    fn runs(start: usize, pages: usize) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let end = start + pages * 4096;
        let each = |run: Run| {
            found.push(((run.start - start) / 4096, (run.end - start) / 4096));
            true
        };
        Pagemap::open().unwrap().runs(start, end, each).unwrap();
        found
    }

    #[test]
    fn only_pages_that_were_written_to_are_found() {
        const PAGES: usize = 1000;
        let start = sys::map(PAGES * 4096).unwrap();
        sys::madvise(start, PAGES * 4096, libc::MADV_NOHUGEPAGE).unwrap();
        let at = |page: usize| std::ptr::with_exposed_provenance_mut::<u8>(start + page * 4096);
        // SAFETY: within the new mapping.
        unsafe {
            // Reading gives the kernel's zero page.
            assert_eq!(at(3).read_volatile(), 0);
            (10..20).chain([999]).for_each(|page| at(page).write_volatile(0));
        }
        let found = runs(start, PAGES);
        let is_exclusive = Pagemap::open().unwrap().is_exclusive(start + 10 * 4096, 4096);
        // Every second page: more runs than fit in one answer.
        // SAFETY: as above.
        unsafe { (100..900).step_by(2).for_each(|page| at(page).write_volatile(1)) };
        let many = runs(start, PAGES);
        sys::unmap(start, PAGES * 4096);
        assert_eq!(found, [(10, 20), (999, 1000)]);
        assert_eq!((many.len(), many[1], many[400]), (402, (100, 101), (898, 899)));
        assert_eq!(is_exclusive, Some(true));
    }
}
