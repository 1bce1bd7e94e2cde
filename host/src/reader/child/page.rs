//! A page of another process: where it is, and what it holds.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use ksmith_core::kernel::PageEntry;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, pread, retry_on_intr};
use twox_hash::XxHash3_64;

use super::LONGEST_PATH;

/// A present page of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledPage {
    /// Its entry in `/proc/PID/pagemap`.
    pub entry: PageEntry,
    /// `XxHash3_64` of its bytes.
    pub content: u64,
}

impl SampledPage {
    const BYTES: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (entry, content) = bytes.split_at_mut(8);
        entry.copy_from_slice(&self.entry.0.to_ne_bytes());
        content.copy_from_slice(&self.content.to_ne_bytes());
        bytes
    }

    /// Takes apart what the child has said. `None`: no page is present there.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (entry, rest) = bytes.split_first_chunk()?;
        let content = u64::from_ne_bytes(*rest.first_chunk()?);
        Some(Self { entry: PageEntry(u64::from_ne_bytes(*entry)), content })
    }
}

/// The files of the process that was read last. Pages of a process are mostly read one after the other.
#[derive(Default)]
pub(super) struct Pages(Option<Open>);

struct Open {
    /// The directory's name, with a NUL behind it.
    name: [u8; LONGEST_PATH],
    pagemap: OwnedFd,
    memory: OwnedFd,
}

impl Pages {
    /// Reads the page at an address of the process with this directory under `/proc`, into a buffer of a page's size. `None`: no
    /// page is present there. Reading an absent page would bring it in.
    pub(super) fn read(
        &mut self,
        proc: BorrowedFd<'_>,
        directory: &CStr,
        address: u64,
        page: &mut [u8],
    ) -> Result<Option<SampledPage>, Errno> {
        let open = self.open(proc, directory)?;
        let mut entry = [0; 8];
        let at = address / (page.len() as u64).max(1) * 8;
        if retry_on_intr(|| pread(&open.pagemap, &mut entry, at))? < entry.len() {
            return Ok(None);
        }
        let entry = PageEntry::from_bytes(entry);
        // A page that KSM has merged with the zero page counts as of a file.
        if !entry.is_anonymous() && !entry.is_of_file() {
            return Ok(None);
        }
        let count = retry_on_intr(|| pread(&open.memory, &mut *page, address))?;
        Ok((count == page.len()).then(|| SampledPage { entry, content: XxHash3_64::oneshot(page) }))
    }

    fn open(&mut self, proc: BorrowedFd<'_>, directory: &CStr) -> Result<&Open, Errno> {
        let wanted = directory.to_bytes_with_nul();
        if self.0.as_ref().is_some_and(|open| !open.name.starts_with(wanted)) {
            self.0 = None;
        }
        match &mut self.0 {
            Some(open) => Ok(open),
            none => {
                let mut name = [0; LONGEST_PATH];
                name.get_mut(..wanted.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(wanted);
                // Both files by one directory are of one process, also where its PID is used again.
                let directory = openat(proc, directory, READ | OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
                let file = |name| openat(&directory, name, READ, Mode::empty());
                Ok(none.insert(Open { name, pagemap: file(c"pagemap")?, memory: file(c"mem")? }))
            }
        }
    }
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
