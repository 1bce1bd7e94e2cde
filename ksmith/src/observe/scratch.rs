//! The one buffer that every kernel file is read into: no allocation per tick once it has grown.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{pread, retry_on_intr};

/// Longest text that is taken; the rest is left. What we parse stands near the beginning.
const LONGEST: usize = 1 << 20;

/// Most files fit at the first read.
const FIRST: usize = 16 << 10;

/// How the kernel ends a file's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// One read gives everything that fits: files with one record (sysfs, most of /proc) and regular ones.
    ShortRead,
    /// Only an empty read is the end: files of many records give them by the page (`/proc/vmstat`).
    EmptyRead,
}

/// A buffer with the text of the file read last.
pub(super) struct Scratch {
    bytes: Vec<u8>,
    length: usize,
    /// The text again, where it was not UTF-8.
    replaced: String,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; FIRST], length: 0, replaced: String::new() }
    }

    /// Reads a file from its beginning, wherever it was read to before.
    pub(super) fn fill(&mut self, file: impl AsFd, end: End) -> io::Result<()> {
        self.length = 0;
        loop {
            let room = &mut self.bytes[self.length..];
            let wanted = room.len();
            let count = retry_on_intr(|| pread(&file, &mut *room, self.length as u64))?;
            self.length += count;
            let is_short = count < wanted;
            if count == 0 || (is_short && end == End::ShortRead) {
                return Ok(());
            }
            if self.length == self.bytes.len() {
                if self.length >= LONGEST {
                    return Ok(());
                }
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
        }
    }

    /// What was read last.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// What was read last as text; bytes that are not UTF-8 (a process may have any as its name) are replaced.
    pub(super) fn text(&mut self) -> &str {
        match std::str::from_utf8(&self.bytes[..self.length]) {
            Ok(text) => text,
            Err(_) => {
                self.replaced = String::from_utf8_lossy(&self.bytes[..self.length]).into_owned();
                &self.replaced
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_read_again_from_its_beginning() {
        let mut file = tempfile::tempfile().unwrap();
        let mut scratch = Scratch::new();
        file.write_all(b"one\n").unwrap();
        for end in [End::ShortRead, End::EmptyRead] {
            scratch.fill(&file, end).unwrap();
            assert_eq!(scratch.text(), "one\n");
        }
    }

    #[test]
    fn a_long_file_grows_the_buffer_up_to_its_bound() {
        let mut file = tempfile::tempfile().unwrap();
        let mut scratch = Scratch::new();
        file.write_all(&vec![b'x'; FIRST * 3]).unwrap();
        scratch.fill(&file, End::ShortRead).unwrap();
        assert_eq!(scratch.bytes().len(), FIRST * 3);
        file.write_all(&vec![b'x'; LONGEST]).unwrap();
        scratch.fill(&file, End::EmptyRead).unwrap();
        assert_eq!(scratch.bytes().len(), LONGEST);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let mut file = tempfile::tempfile().unwrap();
        let mut scratch = Scratch::new();
        file.write_all(b"a\xffb").unwrap();
        scratch.fill(&file, End::ShortRead).unwrap();
        assert_eq!(scratch.text(), "a\u{fffd}b");
    }
}
