//! The buffer for reading kernel files. It grows once, so that ticks allocate nothing.

use std::io;
use std::os::fd::AsFd;

use ksmith_core::kernel::TextEnd;
use rustix::io::{pread, retry_on_intr};

/// The longest text that is read. The parsed fields stand near the beginning.
const LONGEST: usize = 1 << 20;

/// Size of the first read, into which most files fit.
const FIRST: usize = 16 << 10;

/// A buffer with the text of the file read last.
pub(super) struct ReadBuffer {
    bytes: Vec<u8>,
    length: usize,
    /// A copy of the text as UTF-8, if it was not UTF-8.
    replaced: String,
}

impl ReadBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; FIRST], length: 0, replaced: String::new() }
    }

    /// Reads a file from its beginning, regardless of its position.
    pub(super) fn fill(&mut self, file: impl AsFd, end: TextEnd) -> io::Result<()> {
        self.length = 0;
        loop {
            let longest = if matches!(end, TextEnd::Before(_)) { self.length + FIRST } else { usize::MAX };
            let until = longest.min(self.bytes.len());
            let room = &mut self.bytes[self.length..until];
            let wanted = room.len();
            let count = retry_on_intr(|| pread(&file, &mut *room, self.length as u64))?;
            let begin = self.length;
            self.length += count;
            let is_short = count < wanted && end != TextEnd::EmptyRead;
            if count == 0 || is_short || end.is_in(&self.bytes[begin..self.length]) {
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

    /// Returns the bytes read last.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Returns the bytes read last as text. Bytes that are not UTF-8, as in a process name, are replaced.
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
        let mut scratch = ReadBuffer::new();
        file.write_all(b"one\n").unwrap();
        for end in [TextEnd::ShortRead, TextEnd::EmptyRead] {
            scratch.fill(&file, end).unwrap();
            assert_eq!(scratch.text(), "one\n");
        }
    }

    #[test]
    fn a_long_file_grows_the_buffer_up_to_its_bound() {
        let mut file = tempfile::tempfile().unwrap();
        let mut scratch = ReadBuffer::new();
        file.write_all(&vec![b'x'; FIRST * 3]).unwrap();
        scratch.fill(&file, TextEnd::ShortRead).unwrap();
        assert_eq!(scratch.bytes().len(), FIRST * 3);
        file.write_all(&vec![b'x'; LONGEST]).unwrap();
        scratch.fill(&file, TextEnd::EmptyRead).unwrap();
        assert_eq!(scratch.bytes().len(), LONGEST);
    }

    #[test]
    fn what_is_not_wanted_is_not_read() {
        let mut file = tempfile::tempfile().unwrap();
        let mut scratch = ReadBuffer::new();
        // A buffer that another file has grown does not make the pieces larger.
        file.write_all(&vec![b'a'; FIRST * 8]).unwrap();
        scratch.fill(&file, TextEnd::ShortRead).unwrap();
        file.write_all(b"\nintr 1").unwrap();
        file.write_all(&vec![b'b'; FIRST * 8]).unwrap();
        scratch.fill(&file, TextEnd::Before("\nintr ")).unwrap();
        assert_eq!(scratch.bytes().len(), FIRST * 9);
        assert!(scratch.text().contains("aa\nintr 1bb"));
        scratch.fill(&file, TextEnd::Before("nowhere")).unwrap();
        assert_eq!(scratch.bytes().len(), FIRST * 16 + 7);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let mut file = tempfile::tempfile().unwrap();
        let mut scratch = ReadBuffer::new();
        file.write_all(b"a\xffb").unwrap();
        scratch.fill(&file, TextEnd::ShortRead).unwrap();
        assert_eq!(scratch.text(), "a\u{fffd}b");
    }
}
