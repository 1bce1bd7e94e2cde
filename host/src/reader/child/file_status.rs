//! The status of a file behind a link of a process, such as its program (`exe`) or an open file (`fd/7`).

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;

/// The status of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStatus {
    /// Major and minor number of the device.
    pub device: [u32; 2],
    /// The inode number.
    pub inode: u64,
    /// Type and permissions, as of `stat(2)`.
    pub mode: u32,
    /// Names of the file.
    pub links: u32,
    /// Its length in bytes.
    pub length: u64,
    /// Its blocks, of 512 bytes each.
    pub blocks: u64,
}

/// Bytes of a status.
pub(super) const STATUS: usize = 40;

impl FileStatus {
    /// Reads the status of the file at this path under `/proc`, without asking its file system: that may be a user's
    /// (FUSE), which never answers.
    pub(super) fn read(proc: BorrowedFd<'_>, path: &CStr) -> Result<Self, Errno> {
        let flags = AtFlags::STATX_DONT_SYNC.union(AtFlags::NO_AUTOMOUNT);
        let found = statx(proc, path, flags, StatxFlags::BASIC_STATS)?;
        Ok(Self {
            device: [found.stx_dev_major, found.stx_dev_minor],
            inode: found.stx_ino,
            mode: found.stx_mode.into(),
            links: found.stx_nlink,
            length: found.stx_size,
            blocks: found.stx_blocks,
        })
    }

    pub(super) fn to_bytes(self) -> [u8; STATUS] {
        let words = [pair(self.device), self.inode, pair([self.mode, self.links]), self.length, self.blocks];
        let mut bytes = [0; STATUS];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Decodes the child's reply; `None` if it is none.
    pub(in super::super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let &[device, inode, mode_and_links, length, blocks] = words else { return None };
        let [mode, links] = halves(u64::from_ne_bytes(mode_and_links));
        Some(Self {
            device: halves(u64::from_ne_bytes(device)),
            inode: u64::from_ne_bytes(inode),
            mode,
            links,
            length: u64::from_ne_bytes(length),
            blocks: u64::from_ne_bytes(blocks),
        })
    }
}

fn pair([high, low]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> [u32; 2] {
    [(word >> 32) as u32, word as u32]
}
