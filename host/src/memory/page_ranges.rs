//! `PAGEMAP_SCAN` (Linux 6.7): ranges of pages of a process by their kinds, from a walk of its page tables.
//!
//! Source: `Documentation/admin-guide/mm/pagemap.rst` and `include/uapi/linux/fs.h`. Nothing is faulted in, and no page is pinned.

#![allow(unsafe_code, reason = "one ioctl that rustix does not have")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use super::under_way;

/// Kinds of pages, as `PAGE_IS_…` of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageKinds(u64);

impl PageKinds {
    /// Pages of a file, or shared anonymous ones.
    pub const FILE: Self = Self(1 << 2);
    /// Pages in memory.
    pub const PRESENT: Self = Self(1 << 3);
    /// Mappings of the kernel's zero page.
    pub const ZERO_MAPPED: Self = Self(1 << 5);
    /// Pages mapped as one huge page.
    pub const HUGE: Self = Self(1 << 6);

    /// Returns the kinds of both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if all kinds of `other` are among these.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The pages to find.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageQuery {
    /// Kinds that a page must all have.
    pub all_of: PageKinds,
    /// Kinds of which a page must have one. None: no such condition.
    pub any_of: PageKinds,
    /// Kinds that a page must not have.
    pub none_of: PageKinds,
}

/// `struct page_region`: a run of pages of the same kinds.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct PagemapRegion {
    start: u64,
    end: u64,
    kinds: u64,
}

/// `struct pm_scan_arg`.
#[derive(Debug, Default)]
#[repr(C)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = (3 << 30) | ((size_of::<ScanArgument>() as libc::Ioctl) << 16) | (0x66 << 8) | 16;

/// The most regions that one call returns.
const REGIONS: usize = 1024;

/// Calls `take` with each range of pages within `addresses` that `query` matches, in order. The second argument holds
/// those kinds of the range that the query names.
///
/// # Errors
/// The process is gone, or the kernel lacks the call (`ENOTTY`, before Linux 6.7).
pub fn each_range(
    pagemap: &File,
    pid: u32,
    addresses: Range<u64>,
    query: PageQuery,
    mut take: impl FnMut(Range<u64>, PageKinds),
) -> io::Result<()> {
    let mut regions = vec![PagemapRegion::default(); REGIONS];
    let mut start = addresses.start;
    while start < addresses.end {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start,
            end: addresses.end,
            vec: regions.as_mut_ptr().expose_provenance() as u64,
            vec_len: regions.len() as u64,
            category_inverted: query.none_of.0,
            category_mask: query.all_of.0 | query.none_of.0,
            category_anyof_mask: query.any_of.0,
            return_mask: query.all_of.0 | query.any_of.0,
            ..ScanArgument::default()
        };
        let found = under_way::during(pid, || scan(pagemap, &mut argument))?;
        for region in regions.get(..found).unwrap_or_default() {
            take(region.start..region.end, PageKinds(region.kinds));
        }
        if argument.walk_end <= start {
            break;
        }
        start = argument.walk_end;
    }
    Ok(())
}

/// Makes the call. Returns the number of regions filled in.
fn scan(pagemap: &File, argument: &mut ScanArgument) -> io::Result<usize> {
    // SAFETY: the argument is a `struct pm_scan_arg` that is borrowed mutably. Its `vec` is an exposed array of `vec_len` regions,
    // which the caller owns and does not touch meanwhile. The kernel writes to these two only.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, std::ptr::from_mut(argument)) };
    usize::try_from(found).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn pages_that_were_only_read_are_zero_mapped_and_written_ones_are_not() {
        let page = rustix::param::page_size();
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let mut memory = crate::memory::test_memory::MappedMemory::new(64 * page);
        std::hint::black_box(memory.bytes()[3 * page]);
        memory.bytes_mut()[5 * page] = 1;
        let at = |number: usize| memory.address() + (number * page) as u64;
        let find = |all_of| {
            let mut found: Vec<Range<u64>> = Vec::new();
            let query = PageQuery { all_of, none_of: PageKinds::FILE, ..PageQuery::default() };
            let outcome =
                each_range(&pagemap, std::process::id(), at(0)..at(64), query, |range, _| found.push(range));
            outcome.map(|()| found)
        };
        match find(PageKinds::ZERO_MAPPED) {
            Err(why) => assert_eq!(why.raw_os_error(), Some(libc::ENOTTY), "before Linux 6.7: {why}"),
            Ok(zeros) => {
                assert_eq!(zeros, vec![at(3)..at(4)]);
                assert_eq!(find(PageKinds::PRESENT).unwrap(), [at(3)..at(4), at(5)..at(6)]);
            }
        }
    }

    #[test]
    fn a_file_that_is_no_page_map_is_an_error() {
        let file = File::open("/dev/null").unwrap();
        let error = each_range(&file, 1, 0..1 << 30, PageQuery::default(), |_, _| panic!("nothing is there"));
        assert_ne!(error.unwrap_err().kind(), ErrorKind::NotFound);
    }
}
