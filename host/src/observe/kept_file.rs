//! A kernel file that is opened once and read at each tick.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ksmith_core::kernel::TextEnd;
use ksmith_core::reading::Reading;
use rustix::fs::{Mode, OFlags, open};

use super::scratch::ReadBuffer;
use crate::root::{Root, outcome};

/// The flags for opening every file. `NONBLOCK` matters only in a tree that holds a FIFO.
pub(super) const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// A file by its path. On the live host its descriptor stays open, because the kernel makes a new text at each read. In
/// a captured tree, where a file may be replaced, it is opened at each read.
pub(super) struct KeptFile {
    path: PathBuf,
    end: TextEnd,
    keep: bool,
    file: Option<OwnedFd>,
}

impl KeptFile {
    /// Creates a reader of the file `relative` under `root`, without opening it.
    pub(super) fn new(root: &Root, relative: &str, end: TextEnd) -> Self {
        Self { path: root.path(relative), end, keep: root.is_host(), file: None }
    }

    /// Reads the file. If the kept descriptor fails, the file is opened again.
    pub(super) fn read<'a>(&mut self, scratch: &'a mut ReadBuffer) -> Reading<&'a str> {
        let kept = self.file.take().filter(|file| scratch.fill(file, self.end).is_ok());
        let file = match kept {
            Some(file) => Ok(file),
            None => self.open_and_fill(scratch),
        };
        match file {
            Ok(file) => {
                self.file = self.keep.then_some(file);
                Reading::Value(scratch.text())
            }
            Err(error) => outcome(&error),
        }
    }

    fn open_and_fill(&self, scratch: &mut ReadBuffer) -> io::Result<OwnedFd> {
        let file = open(&self.path, READ, Mode::empty())?;
        scratch.fill(&file, self.end)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_kept_file_is_read_anew_each_time() {
        let mut scratch = ReadBuffer::new();
        let mut uptime = KeptFile::new(&Root::host(), "proc/self/schedstat", TextEnd::ShortRead);
        let first = uptime.read(&mut scratch).map(str::to_owned);
        let descriptor = uptime.file.as_ref().map(std::os::fd::AsRawFd::as_raw_fd);
        let mut last = first.clone();
        while last == first {
            last = uptime.read(&mut scratch).map(str::to_owned);
        }
        assert!(matches!(last, Reading::Value(_)));
        assert_eq!(uptime.file.as_ref().map(std::os::fd::AsRawFd::as_raw_fd), descriptor);
    }

    #[test]
    fn a_descriptor_that_fails_is_given_up_and_the_file_opened_anew() {
        let mut scratch = ReadBuffer::new();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut stat = KeptFile::new(&Root::host(), &format!("proc/{}/stat", child.id()), TextEnd::ShortRead);
        assert!(matches!(stat.read(&mut scratch), Reading::Value(_)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(stat.read(&mut scratch), Reading::Absent);
        assert!(stat.file.is_none());
        // The descriptor of an ended process must not hide a file that exists.
        stat.file = Some(open("/proc/self/mem", READ, Mode::empty()).unwrap());
        stat.path = "/proc/self/stat".into();
        assert!(matches!(stat.read(&mut scratch), Reading::Value(text) if text.contains('(')));
    }

    #[test]
    fn a_replaced_file_of_a_captured_tree_is_noticed() {
        let tree = tempfile::tempdir().unwrap();
        let mut scratch = ReadBuffer::new();
        let mut file = KeptFile::new(&Root::at(tree.path()), "f", TextEnd::ShortRead);
        assert_eq!(file.read(&mut scratch), Reading::Absent);
        fs::write(tree.path().join("f"), "1").unwrap();
        assert_eq!(file.read(&mut scratch), Reading::Value("1"));
        fs::remove_file(tree.path().join("f")).unwrap();
        fs::create_dir(tree.path().join("f")).unwrap();
        assert!(matches!(file.read(&mut scratch), Reading::Malformed(_)));
    }
}
