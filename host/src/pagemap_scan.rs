//! `PAGEMAP_SCAN` (Linux 6.7): ranges of pages of a process by their kinds, from a walk of its page tables.
//!
//! Source: `Documentation/admin-guide/mm/pagemap.rst` and `include/uapi/linux/fs.h`. Nothing is faulted in, and no page is pinned.

#![allow(unsafe_code, reason = "one ioctl that rustix does not have")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

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
pub struct PagemapRegion {
    /// Address of the first byte.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    kinds: u64,
}

impl PagemapRegion {
    /// Returns the kinds of its pages that the query names.
    pub const fn kinds(&self) -> PageKinds {
        PageKinds(self.kinds)
    }
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

/// The most regions that one call may return. With more than the kernel's own buffer holds (512), Linux 6.18 may say
/// that its walk ended before ranges that it has returned, and returns them again.
pub const REGIONS: usize = 256;

/// Fills `regions` with the first ranges of pages within `addresses` that `query` matches. Returns their number, and the
/// address from which to go on. It allocates nothing.
///
/// # Errors
/// The process is gone, or the kernel lacks the call (`ENOTTY`, before Linux 6.7).
pub fn scan_pagemap(
    pagemap: BorrowedFd<'_>,
    addresses: Range<u64>,
    query: PageQuery,
    regions: &mut [PagemapRegion],
) -> io::Result<(usize, u64)> {
    let mut argument = ScanArgument {
        size: size_of::<ScanArgument>() as u64,
        start: addresses.start,
        end: addresses.end,
        vec: regions.as_mut_ptr().expose_provenance() as u64,
        vec_len: regions.len() as u64,
        category_inverted: query.none_of.0,
        category_mask: query.all_of.0 | query.none_of.0,
        category_anyof_mask: query.any_of.0,
        return_mask: query.all_of.0 | query.any_of.0,
        ..ScanArgument::default()
    };
    // SAFETY: the argument is a `struct pm_scan_arg` that is borrowed mutably. Its `vec` is an exposed array of `vec_len` regions,
    // which is borrowed mutably too. The kernel writes to these two only.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, std::ptr::from_mut(&mut argument)) };
    let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
    Ok((found, argument.walk_end))
}
