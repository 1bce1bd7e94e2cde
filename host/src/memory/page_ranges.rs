//! Ranges of pages of a process by their kinds, all of them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use super::under_way;
pub use crate::pagemap_scan::{PageKinds, PageQuery};
use crate::pagemap_scan::{PagemapRegion, REGIONS, scan_pagemap};

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
    let mut regions = [PagemapRegion::default(); REGIONS];
    let mut start = addresses.start;
    while start < addresses.end {
        let scan = || scan_pagemap(pagemap.as_fd(), start..addresses.end, query, &mut regions);
        let (found, walk_end) = under_way::during(pid, scan)?;
        for region in regions.get(..found).unwrap_or_default() {
            take(region.start..region.end, region.kinds());
        }
        if walk_end <= start {
            break;
        }
        start = walk_end;
    }
    Ok(())
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
    fn each_of_many_ranges_comes_once_and_in_order() {
        let page = rustix::param::page_size();
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        // More ranges than the kernel's own buffer has room for, and so many that the last call is full.
        let mut memory = crate::memory::test_memory::MappedMemory::new(4096 * page);
        for number in (0..4096).step_by(2) {
            memory.bytes_mut()[number * page] = 1;
        }
        let mut starts: Vec<u64> = Vec::new();
        let query = PageQuery { all_of: PageKinds::PRESENT, none_of: PageKinds::FILE, ..PageQuery::default() };
        let addresses = memory.address()..memory.address() + (4096 * page) as u64;
        let outcome =
            each_range(&pagemap, std::process::id(), addresses, query, |range, _| starts.push(range.start));
        match outcome {
            Err(why) => assert_eq!(why.raw_os_error(), Some(libc::ENOTTY), "before Linux 6.7: {why}"),
            Ok(()) => {
                let expected = (0..4096).step_by(2).map(|number| memory.address() + (number * page) as u64);
                assert!(starts.iter().copied().eq(expected), "{} ranges", starts.len());
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
