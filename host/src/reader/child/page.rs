//! A page of another process: where it is, and what it holds.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use ksmith_core::kernel::PageEntry;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, pread, retry_on_intr};
use twox_hash::XxHash3_64;

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

/// Processes with files that are kept open. Opening takes longer than reading a page, and pages are sampled again and again. With its
/// other descriptors the child stays below 1024, which is the limit on many hosts.
const KEPT: usize = 256;

/// Open files of processes, each at its PID modulo [`KEPT`].
pub(super) struct Pages([Option<Open>; KEPT]);

struct Open {
    pid: u32,
    pagemap: OwnedFd,
    memory: OwnedFd,
}

impl Default for Pages {
    fn default() -> Self {
        Self([const { None }; KEPT])
    }
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
        let pid = number(directory.to_bytes());
        let slot = self.0.get_mut(pid as usize % KEPT).ok_or(Errno::NOENT)?;
        let at = address / (page.len() as u64).max(1) * 8;
        let mut entry = [0; 8];
        let mut is_read = false;
        if let Some(open) = slot.as_ref().filter(|open| open.pid == pid) {
            is_read = retry_on_intr(|| pread(&open.pagemap, &mut entry, at)) == Ok(entry.len());
        }
        if !is_read {
            // The process has ended or begun another program, or this is its first page.
            *slot = None;
            let directory = openat(proc, directory, READ | OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
            let file = |name| openat(&directory, name, READ, Mode::empty());
            let open = slot.insert(Open { pid, pagemap: file(c"pagemap")?, memory: file(c"mem")? });
            if retry_on_intr(|| pread(&open.pagemap, &mut entry, at))? < entry.len() {
                return Ok(None);
            }
        }
        let Some(open) = slot else { return Err(Errno::NOENT) };
        let entry = PageEntry::from_bytes(entry);
        // A page that KSM has merged with the zero page counts as of a file.
        if !entry.is_anonymous() && !entry.is_of_file() {
            return Ok(None);
        }
        let count = retry_on_intr(|| pread(&open.memory, &mut *page, address))?;
        Ok((count == page.len()).then(|| SampledPage { entry, content: XxHash3_64::oneshot(page) }))
    }
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

/// The number that these digits are.
fn number(digits: &[u8]) -> u32 {
    digits
        .iter()
        .fold(0, |number: u32, digit| number.wrapping_mul(10).wrapping_add(u32::from(digit.wrapping_sub(b'0'))))
}
