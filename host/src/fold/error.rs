//! Errors of folding one process.

use std::io;

use ksmith_core::units::Bytes;

use crate::memory::error::{UnreadableProcess, right};

/// An error from folding a process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// The process can't be read, or has ended.
    #[error(transparent)]
    Unreadable(#[from] UnreadableProcess),
    /// The kernel does not let this user split another process's huge pages.
    #[error(
        "its huge pages may not be split: {}",
        right("run ksmith as root, or with CAP_SYS_NICE and CAP_SYS_PTRACE")
    )]
    Denied,
    /// The kernel lacks a call that folding needs.
    #[error("this kernel has no {0}")]
    NoCall(&'static str),
    /// The host lacks the memory for the zeros that huge pages would fill. Holds both in bytes.
    #[error(
        "its huge pages would hold up to {} of zeros, and the host has {} beyond its margin",
        Bytes::from(*.fill_bytes), Bytes::from(*.spare_bytes)
    )]
    NoHeadroom {
        /// The memory to fill with zeros.
        fill_bytes: u64,
        /// Available memory and free swap, less the margin.
        spare_bytes: u64,
    },
}

impl FoldError {
    /// Classifies an error of reading page tables or memory.
    pub(super) fn of_reading(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOTTY) => Self::NoCall("PAGEMAP_SCAN (Linux 6.7 has)"),
            _ => Self::Unreadable(UnreadableProcess::from_io(error)),
        }
    }
}
