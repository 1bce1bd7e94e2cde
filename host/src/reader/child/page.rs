//! Pages of another process: their pagemap entries and their contents.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ksmith_core::kernel::PageEntry;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, pread, retry_on_intr};
use twox_hash::XxHash3_64;

/// The most pages of one request: few enough to be read within a millisecond.
pub(in super::super) const ADDRESSES: usize = 64;

/// Bytes of the record of one page.
pub(in super::super) const ENTRY: usize = 16;

/// A present page of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledPage {
    /// Its entry in `/proc/PID/pagemap`.
    pub entry: PageEntry,
    /// `XxHash3_64` of its bytes.
    pub content: u64,
}

impl SampledPage {
    fn to_bytes(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        let (entry, content) = bytes.split_at_mut(8);
        entry.copy_from_slice(&self.entry.0.to_ne_bytes());
        content.copy_from_slice(&self.content.to_ne_bytes());
        bytes
    }

    /// Decodes the child's record; `None` if no page is present there.
    pub(in super::super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (entry, rest) = bytes.split_first_chunk()?;
        let content = u64::from_ne_bytes(*rest.first_chunk()?);
        let entry = PageEntry(u64::from_ne_bytes(*entry));
        (entry.0 != 0).then_some(Self { entry, content })
    }
}

/// The open files of a process for reading its pages.
pub(super) struct PageFiles {
    pagemap: OwnedFd,
    memory: OwnedFd,
}

impl PageFiles {
    /// Opens the files of the process with this directory under `/proc`.
    pub(super) fn open(proc: BorrowedFd<'_>, directory: &CStr) -> Result<Self, Errno> {
        const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
        // Both files by one directory are of one process, also where its PID is used again.
        let directory = openat(proc, directory, READ | OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let file = |name| openat(&directory, name, READ, Mode::empty());
        Ok(Self { pagemap: file(c"pagemap")?, memory: file(c"mem")? })
    }

    /// Reads the pages at these addresses into records of [`ENTRY`] bytes, which are zero if no page is present.
    /// Returns the number of bytes written. `page` is as long as a page.
    pub(super) fn read(&self, addresses: &[u8], records: &mut [u8], page: &mut [u8]) -> Result<usize, Errno> {
        let mut length = 0;
        for (address, record) in addresses.chunks_exact(8).zip(records.chunks_exact_mut(ENTRY)) {
            let address = address.first_chunk().map_or(0, |address| u64::from_ne_bytes(*address));
            match read(self.pagemap.as_fd(), self.memory.as_fd(), address, page)? {
                Some(page) => record.copy_from_slice(&page.to_bytes()),
                None => record.fill(0),
            }
            length += ENTRY;
        }
        Ok(length)
    }
}

/// Reads one page; `None` if no page is present there. Reading an absent page would fault it in.
fn read(
    pagemap: BorrowedFd<'_>,
    memory: BorrowedFd<'_>,
    address: u64,
    page: &mut [u8],
) -> Result<Option<SampledPage>, Errno> {
    let mut entry = [0; 8];
    let at = address / (page.len() as u64).max(1) * 8;
    if retry_on_intr(|| pread(pagemap, &mut entry, at))? < entry.len() {
        return Ok(None);
    }
    let entry = PageEntry::from_bytes(entry);
    // A page that KSM has merged with the zero page counts as of a file.
    if !entry.is_anonymous() && !entry.is_of_file() {
        return Ok(None);
    }
    // A mapping that has ended meanwhile is an error of this page alone.
    let count = retry_on_intr(|| pread(memory, &mut *page, address)).unwrap_or(0);
    Ok((count == page.len()).then(|| SampledPage { entry, content: XxHash3_64::oneshot(page) }))
}
