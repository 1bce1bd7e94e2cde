//! A file that is read within a rate, and whose progress is shown.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use crate::memory::pace::ReadPace;
use crate::memory::progress::ReadProgress;

/// An image's file.
#[derive(Debug)]
pub(super) struct PacedFile<'a> {
    file: &'a File,
    pace: &'a ReadPace,
    progress: &'a ReadProgress<'a>,
}

impl<'a> PacedFile<'a> {
    /// Creates a reader of a file.
    pub fn new(file: &'a File, pace: &'a ReadPace, progress: &'a ReadProgress<'a>) -> Self {
        Self { file, pace, progress }
    }
}

impl Read for PacedFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.pace.wait_for(buffer.len() as u64);
        let read = self.file.read(buffer)?;
        self.progress.add(read as u64);
        Ok(read)
    }
}

impl Seek for PacedFile<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}
