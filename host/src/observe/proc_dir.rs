//! The directory `/proc`, kept open, and the files of one process in it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ksmith_core::kernel::TextEnd;
use ksmith_core::reading::Reading;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::kept_file::READ;
use super::scratch::ReadBuffer;
use crate::accountable;
use crate::root::{Root, outcome};

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The directory `/proc`.
pub(super) struct ProcDir(OwnedFd);

/// The directory of one process. After the PID is reused, its files are gone.
pub(super) struct ProcessDir {
    directory: OwnedFd,
    pid: u32,
}

impl ProcDir {
    pub(super) fn open(root: &Root) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, root.path("proc"), flags, Mode::empty())?))
    }

    /// Lists the PIDs of all visible processes.
    pub(super) fn pids(&self) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            if let Ok(pid) = entry.file_name().to_str().unwrap_or_default().parse() {
                pids.push(pid);
            }
        }
        Ok(pids)
    }

    /// Opens the directory of one process.
    pub(super) fn process(&self, pid: u32) -> io::Result<ProcessDir> {
        Ok(ProcessDir { directory: openat(&self.0, pid.to_string(), DIRECTORY, Mode::empty())?, pid })
    }

    /// Opens a file of the current process of this PID.
    pub(super) fn open_file(&self, pid: u32, name: &str) -> io::Result<OwnedFd> {
        Ok(openat(&self.0, format!("{pid}/{name}"), READ, Mode::empty())?)
    }

    /// Reads the bytes of a file of the current process of this PID. The file holds one record and takes no lock.
    pub(super) fn bytes(&self, pid: u32, name: &str, scratch: &mut ReadBuffer) -> io::Result<Vec<u8>> {
        scratch.fill(self.open_file(pid, name)?, TextEnd::ShortRead)?;
        Ok(scratch.bytes().to_vec())
    }

    /// Reads a file of the current process of this PID. The file holds one record and takes no lock.
    pub(super) fn read<'a>(&self, pid: u32, name: &str, scratch: &'a mut ReadBuffer) -> Reading<&'a str> {
        text(self.open_file(pid, name), scratch)
    }
}

impl ProcessDir {
    /// Returns the accountable uid of the process; `None` if it has ended.
    pub(super) fn accountable_uid(&self) -> Option<u32> {
        accountable::uid_of_directory(&self.directory, self.pid)
    }
}

/// Reads a file that holds one record.
fn text(file: io::Result<impl AsFd>, scratch: &mut ReadBuffer) -> Reading<&str> {
    match file.and_then(|file| scratch.fill(file, TextEnd::ShortRead)) {
        Ok(()) => Reading::Value(scratch.text()),
        Err(error) => outcome(&error),
    }
}
